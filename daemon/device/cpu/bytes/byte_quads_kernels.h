/* Included by byte_quads_vnni.c and byte_quads_avxvnni.c: the widths that they have. */
#include <immintrin.h>
#include <string.h>

#include "device/cpu/bytes/byte_quads.h"
#include "device/cpu/simd.h"

#if defined(__AVX512VNNI__)
#define TABLE byte_quads_ops_vnni
enum { WIDEST = 64 };
#define DOT M(dpbusd_epi32)
#else
#define TABLE byte_quads_ops_avxvnni
enum { WIDEST = 32 };
#define DOT   M(dpbusd_avx_epi32)
#endif

extern const struct byte_quads_ops TABLE;

#define JOINED(a, b)  JOINED_(a, b)
#define JOINED_(a, b) a##b
#define M(name)       JOINED(PREFIX, _##name)
#define S(name)       JOINED(PREFIX, JOINED(JOINED(_##name, _si), BITS))

#if defined(__AVX512VNNI__)
#define WIDTH   64
#define BITS    512
#define PREFIX  _mm512
#define INTS    __m512i
#define FLOATS  __m512
#define CAST(p) ((void *)(uintptr_t)(p))
#include "device/cpu/bytes/byte_quads_width.h"
#endif

#define WIDTH   32
#define BITS    256
#define PREFIX  _mm256
#define INTS    __m256i
#define FLOATS  __m256
#define CAST(p) ((__m256i *)(uintptr_t)(p))
#include "device/cpu/bytes/byte_quads_width.h"

#define WIDTH   16
#define BITS    128
#define PREFIX  _mm
#define INTS    __m128i
#define FLOATS  __m128
#define CAST(p) ((__m128i *)(uintptr_t)(p))
#include "device/cpu/bytes/byte_quads_width.h"

static void run(const struct byte_quads *line)
{
    int64_t group;

    for (int64_t c = 0; c < line->channels; c += group) {
        group = byte_quads_group(WIDEST, line->channels, c);
#if defined(__AVX512VNNI__)
        if (group == 64)
            group_64(line, c);
#endif
        if (group == 32)
            group_32(line, c);
        else if (group == 16)
            group_16(line, c);
    }
}

const struct byte_quads_ops TABLE = {.widest = WIDEST, .run = run};
