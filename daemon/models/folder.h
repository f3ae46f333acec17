/* What lies in the repository's folders.  File system only; no state. */
#ifndef MODELS_FOLDER_H
#define MODELS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A name that can be a model's folder: UTF-8 text (others cannot be asked for, and one would spoil
 * every list), no slash, no leading dot, not too long. */
bool folder_is_model_name(const char *name);
bool folder_exists(const char *path);

/* Sub-folders of `path` that can be models, sorted; free with folder_free_names(). */
MUST_CHECK enum status folder_models(const char *path, char ***out_names, size_t *out_count,
                                     struct error *err);
void folder_free_names(char **names, size_t count);

/* Sub-folders of a model that are versions (numbers from 1), ascending; free() the list. */
MUST_CHECK enum status folder_versions(const char *path, int64_t **out_versions, size_t *out_count,
                                       struct error *err);

/* A number that changes when a file below `path` comes, goes, or changes size or time. */
uint64_t folder_signature(const char *path);
/* Bytes of the files below `path`. */
uint64_t folder_bytes(const char *path);

#endif
