/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef SERVE_CODEC_UTF8_H
#define SERVE_CODEC_UTF8_H

#include <stddef.h>

/* Length of the character at `data`, 0 when it is none. */
size_t utf8_length(const char *data, size_t size);

#endif
