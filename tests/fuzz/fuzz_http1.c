/* HTTP/1.1 heads and chunk sizes: whatever is taken must lie inside the bytes given. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "serve/http1.h"

static void must_lie_inside(struct slice slice, const char *start, size_t size)
{
    if (slice.data < start || slice.data + slice.size > start + size)
        abort();
}

/* Bytes of the head at the start with its blank line; 0: not whole. */
static size_t head_size(const char *bytes, size_t size)
{
    const char *end = memmem(bytes, size, "\r\n\r\n", 4);

    return end == NULL ? 0 : (size_t)(end - bytes) + 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1); /* exactly as large as told: reading further is found */
    struct http1_head head;
    const char *why = NULL;
    uint64_t chunk;
    size_t whole;

    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    whole = head_size(copy, size);
    if (whole > 0 && http1_parse_head(copy, whole, &head, &why) == 0) {
        must_lie_inside(head.path, copy, whole);
        must_lie_inside(head.query, copy, whole);
    } else if (whole > 0 && why == NULL) {
        abort();
    }
    (void)http1_parse_chunk_size(copy, size, &chunk);
    free(copy);
    return 0;
}
