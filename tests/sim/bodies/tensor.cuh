/* kernels/tensor.cuh for the host's compiler: what tensor cores do, by the fragments written there.
 * Every thread of the block must come to each, as to a barrier. */
#ifndef TESTS_SIM_BODIES_TENSOR_CUH
#define TESTS_SIM_BODIES_TENSOR_CUH

#include <cstring>

#include "bodies.cuh"

struct bodies_fragments {
    uint32_t a[4], b[2];
};

template <class T> static inline float bodies_half_of(uint32_t two, int which)
{
    const uint16_t bits = (uint16_t)(two >> 16 * which);
    T value;

    memcpy(static_cast<void *>(&value), &bits, sizeof(value));
    return (float)value;
}

/* Element (row, k) of a, (k, column) of b, by the lanes that hold them. */
template <class T> static inline float bodies_a(const bodies_fragments *warp, int row, int k)
{
    return bodies_half_of<T>(warp[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
}
template <class T> static inline float bodies_b(const bodies_fragments *warp, int k, int column)
{
    return bodies_half_of<T>(warp[column * 4 + k % 8 / 2].b[k / 8], k % 2);
}

template <class T>
static inline void tensor_multiply(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    static bodies_fragments given[1024];
    const unsigned thread = threadIdx.x, lane = thread % 32;
    const bodies_fragments *warp = given + (thread - lane);

    memcpy(given[thread].a, a, sizeof(a));
    memcpy(given[thread].b, b, sizeof(b));
    bodies_barrier();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++)
            sums[i] += bodies_a<T>(warp, (int)lane / 4 + i / 2 * 8, k) *
                       bodies_b<T>(warp, k, (int)lane % 4 * 2 + i % 2);
    bodies_barrier();
}

/* Each lane says where the rows are before any reads them. */
static inline const uint16_t *const *bodies_rows(const void *row)
{
    static const uint16_t *given[1024];
    const unsigned thread = threadIdx.x;

    given[thread] = static_cast<const uint16_t *>(row);
    bodies_barrier();
    return given + (thread - thread % 32);
}

static inline void tensor_load(uint32_t (&registers)[4], const void *row)
{
    const uint16_t *const *rows = bodies_rows(row);
    const unsigned lane = threadIdx.x % 32;

    for (unsigned m = 0; m < 4; m++)
        memcpy(&registers[m], rows[m * 8 + lane / 4] + lane % 4 * 2, sizeof(uint32_t));
    bodies_barrier();
}

static inline void tensor_load_turned(uint32_t (&registers)[4], const void *row)
{
    const uint16_t *const *rows = bodies_rows(row);
    const unsigned lane = threadIdx.x % 32;

    for (unsigned m = 0; m < 4; m++)
        registers[m] = rows[m * 8 + lane % 4 * 2][lane / 4] |
                       (uint32_t)rows[m * 8 + lane % 4 * 2 + 1][lane / 4] << 16;
    bodies_barrier();
}

static inline void copy_begin(void *shared, const void *global, bool is_there)
{
    if (is_there)
        memcpy(shared, global, 16);
    else
        memset(shared, 0, 16);
}
static inline void copies_wait()
{
}

#endif
