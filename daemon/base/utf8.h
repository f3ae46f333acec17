/* UTF-8, strictly (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the character at `data`, 0 when it is none. */
size_t utf8_length(const char *data, size_t size);
/* Characters from end to end, no NUL among them: what protobuf's `string` and JSON can carry. */
bool utf8_is_text(const char *data, size_t size);

#endif
