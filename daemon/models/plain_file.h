/* Opens the small files of a repository: config.pbtxt, labels, inputs of a warmup. */
#ifndef SLUICE_MODELS_PLAIN_FILE_H
#define SLUICE_MODELS_PLAIN_FILE_H

#include "base/error.h"

#include <stdio.h>

/* Opens an ordinary file for reading; the caller closes it.  A fifo or a device could make the
 * loader wait or read for ever and is STATUS_INVALID, as is a file larger than `most` bytes;
 * STATUS_NOT_FOUND when there is none, STATUS_IO when it cannot be opened. */
MUST_CHECK enum status plain_file_open(const char *path, size_t most, FILE **out_file,
                                       struct error *err);

#endif
