/* Names and texts of errors. */
#include "core.h"

#include <stddef.h>

struct error_row {
    cudaError_t code;
    const char *name;
    const char *text;
};

#define ERROR(name, text) {name, #name, text},
static const struct error_row rows[] = {
#include "errors.def"
};
#undef ERROR

static const struct error_row *row_of(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].code == error)
            return &rows[i];
    return NULL;
}

SIM_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const struct error_row *row = row_of(error);

    return row != NULL ? row->name : "unrecognized error code";
}

SIM_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    const struct error_row *row = row_of(error);

    return row != NULL ? row->text : "unrecognized error code";
}
