/* HTTP/1.1 message heads, strictly: bytes in, verdict out.  No I/O, no allocation.
 *
 * Refused: bare LF, obs-fold, spaces before a colon, control characters and NUL in values, two
 * Hosts or none, two Content-Lengths or one that is not only digits, Transfer-Encoding other than
 * exactly `chunked` or beside Content-Length or in HTTP/1.0, expectations other than 100-continue.
 * Slices point into the bytes given.
 */
#ifndef SERVE_HTTP1_H
#define SERVE_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { HTTP1_HEAD_MAX = 16 << 10, HTTP1_FIELDS_MAX = 100, HTTP1_LINE_MAX = 1024 };

struct slice {
    const char *data; /* not terminated, and may hold NUL */
    size_t size;
};

static inline bool slice_is(struct slice slice, const char *text)
{
    return slice.size == strlen(text) && memcmp(slice.data, text, slice.size) == 0;
}

enum http1_method { HTTP1_GET, HTTP1_POST, HTTP1_HEAD_ONLY, HTTP1_OTHER };
enum coding { CODING_IDENTITY, CODING_GZIP, CODING_DEFLATE, CODING_UNKNOWN };

struct http1_head {
    enum http1_method method;
    struct slice path;  /* of the target, up to '?' */
    struct slice query; /* behind '?'; empty without */
    bool keep_alive;
    bool chunked;
    bool expects_continue;
    bool has_json_length;
    uint64_t content_length; /* 0 without one */
    uint64_t json_length;    /* Inference-Header-Content-Length */
    enum coding coding;      /* Content-Encoding */
    bool accepts_gzip;
    bool accepts_deflate;
};

/* `size` bytes up to the first blank line, that one included.  Returns 0, or the HTTP status to
 * refuse with and, in *out_why, what is wrong (borrowed, for ever). */
int http1_parse_head(const char *bytes, size_t size, struct http1_head *out_head,
                     const char **out_why);
/* The same of a head that is not whole yet, `size` > 0 bytes of it: NULL, or why no byte more can
 * make it one.  What would else be waited for: a TLS hello, a head whose lines end in LF alone. */
const char *http1_find_hopeless(const char *bytes, size_t size);
/* A chunk-size line without its CRLF: 1 to 8 hex digits, an extension is skipped. */
bool http1_parse_chunk_size(const char *line, size_t size, uint64_t *out_size);

#endif
