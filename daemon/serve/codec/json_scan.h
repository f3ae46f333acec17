/* A strict JSON scanner over bytes in place: no document is built, nothing is allocated.
 *
 * Strings are unescaped where they stand, so the bytes are changed.  Arrays of numbers, nested or
 * flat, go straight into dense memory.  NaN, Infinity and -Infinity are taken where numbers are.
 * After a failure `why` is set and every call fails.
 */
#ifndef SERVE_CODEC_JSON_SCAN_H
#define SERVE_CODEC_JSON_SCAN_H

#include "serve/http1.h"
#include "tensor/dtype.h"

enum { JSON_DEPTH_MAX = 100 };

struct json_scan {
    char *start, *at, *end;
    unsigned depth;
    bool is_fresh;    /* a container was just entered: no comma is due */
    bool is_skipping; /* strings stay as they are */
    const char *why;  /* borrowed, for ever; NULL: all is well */
};

struct json_scan scan_over(void *text, size_t size);
bool scan_fail(struct json_scan *scan, const char *why); /* always false; the first reason stands */

/* Walks members and elements:  scan_enter(scan, '{');  while (scan_next_member(scan, &name)) {…} */
bool scan_enter(struct json_scan *scan, char open);
bool scan_next_member(struct json_scan *scan, struct slice *out_name);
bool scan_next_element(struct json_scan *scan);

/* The next character that is no space; 0 at the end. */
char scan_peek(struct json_scan *scan);
bool scan_string(struct json_scan *scan, struct slice *out_text);
bool scan_integer(struct json_scan *scan, int64_t *out_value);
bool scan_double(struct json_scan *scan, double *out_value);
bool scan_bool(struct json_scan *scan, bool *out_value);
/* Any value; its bytes stay as they are, so that it can be read later. */
bool scan_skip(struct json_scan *scan);
/* Nothing but spaces may follow. */
bool scan_finish(struct json_scan *scan);

/* Elements of a nested array, in order, into `to`, which has room for `room`; *out_count may be
 * more: then nothing was written behind the room.  STRING elements are struct bytes. */
bool scan_tensor(struct json_scan *scan, enum dtype dtype, void *to, size_t room,
                 size_t *out_count);

#endif
