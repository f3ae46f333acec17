#include "base/utf8.h"

size_t utf8_length(const char *data, size_t size)
{
    const unsigned char *c = (const unsigned char *)data;
    unsigned char low = 0x80, high = 0xBF;
    size_t length;

    if (size == 0)
        return 0;
    if (c[0] < 0x80)
        return 1;
    if (c[0] >= 0xC2 && c[0] <= 0xDF)
        length = 2;
    else if (c[0] >= 0xE0 && c[0] <= 0xEF)
        length = 3;
    else if (c[0] >= 0xF0 && c[0] <= 0xF4)
        length = 4;
    else
        return 0;
    if (length > size)
        return 0;
    if (c[0] == 0xE0)
        low = 0xA0; /* no overlong forms, no surrogates, nothing above U+10FFFF */
    else if (c[0] == 0xED)
        high = 0x9F;
    else if (c[0] == 0xF0)
        low = 0x90;
    else if (c[0] == 0xF4)
        high = 0x8F;
    if (c[1] < low || c[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

bool utf8_is_text(const char *data, size_t size)
{
    size_t length;

    for (size_t i = 0; i < size; i += length) {
        length = utf8_length(data + i, size - i);
        if (length == 0 || data[i] == '\0')
            return false;
    }
    return true;
}
