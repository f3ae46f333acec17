/* A mem_source for tests that misbehaves by order: refuses, is slow, is small, loses memory to
 * others.
 *
 * device_open() puts one around the memory of any device when the environment has SLUICE_FAULT, so
 * that a whole daemon can be tried against a device that fails.  Words, separated by spaces or
 * commas:
 *
 *   map:n=N       the N-th map (from 1) is refused, once
 *   map:every=K   every K-th map is refused
 *   map:above=S   every map of more than S bytes is refused (64M, 1G)
 *   map:slow=T    every map and unmap takes T longer (500us, 2ms)
 *   size=S        the device has S bytes in all; a map that does not fit beside what is mapped and
 *                 the hog is refused, and query() tells it so
 *   hog=S         somebody else holds S bytes of the device
 *   hog=S/T       … and lets go of them and takes them again every T
 *   hog=/PATH     … as many as that file says whenever it is looked at (no file: none)
 *
 * Ownership: borrows the source behind it, which must outlive it.
 * Threads:   any.
 */
#ifndef DEVICE_FAULTY_SOURCE_H
#define DEVICE_FAULTY_SOURCE_H

#include "base/error.h"
#include "memory/mem_source.h"

#define FAULT_VARIABLE "SLUICE_FAULT"

/* STATUS_INVALID names the word that is none, and what is allowed; STATUS_NO_MEMORY. */
MUST_CHECK enum status faulty_source_create(struct mem_source *behind, const char *words,
                                            struct mem_source **out_source, struct error *err);
void faulty_source_destroy(
    struct mem_source *source); /* every range must be released; NULL is fine */
/* From now on somebody else holds so many bytes; the words' hog is over. */
void faulty_source_set_hog(struct mem_source *source, uint64_t bytes);

struct faulty_source_counts {
    uint64_t maps, refused; /* maps asked for, and those of them that were refused */
    uint64_t mapped_bytes;
};
void faulty_source_read(struct mem_source *source, struct faulty_source_counts *out_counts);

#endif
