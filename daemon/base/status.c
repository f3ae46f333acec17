#include "base/status.h"

#include <assert.h>

static const struct row {
    const char *name;
    const char *words;
    int grpc_code;
    int http_code;
} rows[STATUS_COUNT] = {
#define STATUS(name, grpc, http, words) [STATUS_##name] = {#name, words, grpc, http},
#include "base/status.def"
#undef STATUS
};

static const struct row *row_of(enum status status)
{
    assert((unsigned)status < STATUS_COUNT);
    return &rows[status];
}

const char *status_name(enum status status)
{
    return row_of(status)->name;
}

const char *status_words(enum status status)
{
    return row_of(status)->words;
}

int status_grpc_code(enum status status)
{
    return row_of(status)->grpc_code;
}

int status_http_code(enum status status)
{
    return row_of(status)->http_code;
}
