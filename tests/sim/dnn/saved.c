/* Plans as text and back: version, engine and the network's bytes in hexadecimal digits, and a sum
 * over them.  The real library reads wherever a damaged text leads it; this one finds it. */
#include "part.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 64 };

static unsigned sum_of(const unsigned char *bytes, size_t count)
{
    unsigned sum = 1;

    for (size_t i = 0; i < count; i++)
        sum = sum * 31 + bytes[i];
    return sum;
}

size_t plan_text_bytes(void)
{
    return HEAD_BYTES + 2 * sizeof(struct network);
}

static void write_head(char head[HEAD_BYTES], int64_t engine, const struct network *network)
{
    memset(head, ' ', HEAD_BYTES);
    (void)snprintf(head, HEAD_BYTES, "{\"simulated\":%zu,\"engine\":%lld,\"sum\":%u,",
                   cudnnGetVersion(), (long long)engine,
                   sum_of((const unsigned char *)network, sizeof(*network)));
}

void plan_write(const struct network *network, int64_t engine, char *text)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = (const unsigned char *)network;

    write_head(text, engine, network);
    for (size_t i = 0; i < sizeof(*network); i++) {
        text[HEAD_BYTES + 2 * i] = digits[bytes[i] >> 4];
        text[HEAD_BYTES + 2 * i + 1] = digits[bytes[i] & 15];
    }
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool plan_read(const char *text, size_t count, struct network *network, struct engine *engine)
{
    unsigned char *bytes = (unsigned char *)network;
    char head[HEAD_BYTES];
    long long index;

    if (count != plan_text_bytes() ||
        sscanf(text, "{\"simulated\":%*u,\"engine\":%lld,", &index) != 1)
        return false;
    for (size_t i = 0; i < sizeof(*network); i++) {
        int high = digit(text[HEAD_BYTES + 2 * i]), low = digit(text[HEAD_BYTES + 2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    write_head(head, index, network);
    return memcmp(head, text, HEAD_BYTES) == 0 && engine_find(network, index, engine);
}
