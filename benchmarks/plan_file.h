/* Lifetimes as text, the form that published planner benchmarks have:
 *
 *      id,lower,upper,size
 *      a,0,3,4096
 *
 * A buffer of `size` bytes is alive from step `lower` up to, not including, `upper`.  The first
 * line must be exactly that; every other line has four fields, an id that is not empty and three
 * decimal numbers.  Lines may end in CR LF; the last may lack its end; there are no empty ones.
 */
#ifndef BENCHMARKS_PLAN_FILE_H
#define BENCHMARKS_PLAN_FILE_H

#include "graph/planner.h"

/* The file's buffers in its order (free() them), their offsets 0.  The error says file, line, what
 * was found and what is allowed: STATUS_INVALID for the text, STATUS_IO for reading it,
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status plan_file_read(const char *path, struct plan_buffer **out_buffers,
                                      size_t *out_count, struct error *err);
/* A limit known to be reachable, out of a file name like "A.1048576.csv" or "cnn_1.cap4374.csv";
 * 0 when it names none. */
uint64_t plan_file_limit(const char *path);

#endif
