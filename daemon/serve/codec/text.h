/* Text of an answer, growing in the memory of its call: small in the arena, large in the host pool.
 */
#ifndef SERVE_CODEC_TEXT_H
#define SERVE_CODEC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

struct text {
    struct call *call;
    char *data;
    size_t size, capacity;
    bool failed; /* no memory: what follows is dropped */
};

void text_init(struct text *text, struct call *call);
void text_string(struct text *text, const char *string);
void text_char(struct text *text, char c);
void text_unsigned(struct text *text, uint64_t value);
void text_signed(struct text *text, int64_t value);
/* The shortest decimal that reads back as the same float or double; NaN, Infinity as JavaScript. */
void text_float(struct text *text, float value);
void text_double(struct text *text, double value);
/* "…" with escapes; bytes that are no UTF-8 become U+FFFD. */
void text_json_string(struct text *text, const char *data, size_t size);

#endif
