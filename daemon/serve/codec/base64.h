/* Bytes as text (RFC 4648, the plain alphabet). */
#ifndef SERVE_CODEC_BASE64_H
#define SERVE_CODEC_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes into at most `room` bytes; false: the text is none, or of more. */
bool base64_decode(const char *text, size_t size, uint8_t *bytes, size_t room, size_t *out_size);

#endif
