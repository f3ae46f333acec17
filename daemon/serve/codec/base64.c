#include "serve/codec/base64.h"

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t size, uint8_t *bytes, size_t room, size_t *out_size)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t count = 0;

    if (size % 4 != 0)
        return false;
    for (unsigned pad = 0; pad < 2 && size > 0 && text[size - 1] == '='; pad++)
        size--;
    for (size_t i = 0; i < size; i++) {
        int digit = digit_of(text[i]);

        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8)
            continue;
        held -= 8;
        if (count == room)
            return false;
        bytes[count++] = (uint8_t)(bits >> held);
        bits &= (1U << held) - 1;
    }
    *out_size = count;
    return bits == 0; /* of a last digit, nothing may be left over */
}
