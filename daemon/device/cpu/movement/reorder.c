/* Changes of layout: plain rows of a channel, blocks of channels, channels last.
 *
 * All three are [N][outer][cells][inner] with different splits of the channels, so one loop serves
 * every pair: an element of channel c and cell s lies at c / b * (cells * b) + s * b + c % b, with
 * b = 1 for plain, b = channel_block for blocked, b = C for channels last. */
#include <immintrin.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/team.h"

struct job {
    const void *from;
    void *to;
    size_t images, cells, channels;
    size_t from_block, to_block;
    size_t from_image, to_image; /* elements from one to the next */
    size_t element_bytes;
};

static size_t block_of(enum layout layout, unsigned channel_block, size_t channels)
{
    switch (layout) {
    case LAYOUT_BLOCKED:
        return channel_block;
    case LAYOUT_NHWC:
        return channels;
    case LAYOUT_PLAIN:
    case LAYOUT_COUNT:
        break;
    }
    return 1;
}

/* One image's channels [first, first + count), which lie in one block on both sides, all cells. */
#define DEFINE_MOVE(type)                                                                          \
    static void move_##type(const struct job *job, size_t image, size_t first, size_t count)       \
    {                                                                                              \
        const size_t fb = job->from_block, tb = job->to_block, cells = job->cells;                 \
        const type *restrict from = (const type *)job->from + image * job->from_image +            \
                                    first / fb * fb * cells + first % fb;                          \
        type *restrict to =                                                                        \
            (type *)job->to + image * job->to_image + first / tb * tb * cells + first % tb;        \
        const size_t fc = fb == 1 ? cells : 1, tc = tb == 1 ? cells : 1;                           \
                                                                                                   \
        for (size_t s0 = 0; s0 < cells; s0 += 32) {                                                \
            size_t s1 = s0 + 32 < cells ? s0 + 32 : cells;                                         \
                                                                                                   \
            for (size_t c = 0; c < count; c++)                                                     \
                for (size_t s = s0; s < s1; s++)                                                   \
                    to[c * tc + s * tb] = from[c * fc + s * fb];                                   \
        }                                                                                          \
    }
DEFINE_MOVE(uint8_t)
DEFINE_MOVE(uint16_t)
DEFINE_MOVE(uint32_t)
DEFINE_MOVE(uint64_t)

static void turn_4x4(const float *from, size_t from_step, float *to, size_t to_step)
{
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_step);
    __m128 c = _mm_loadu_ps(from + 2 * from_step), d = _mm_loadu_ps(from + 3 * from_step);

    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_step, b);
    _mm_storeu_ps(to + 2 * to_step, c);
    _mm_storeu_ps(to + 3 * to_step, d);
}

/* Rows of the source are columns of the result, in tiles of whole lines on both sides. */
static void turn(const float *from, size_t from_step, float *to, size_t to_step, size_t rows,
                 size_t columns)
{
    enum { TILE = 16 };
    const size_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;

    for (size_t r = 0; r < whole_rows; r += TILE)
        for (size_t c = 0; c < whole_columns; c += TILE) {
            size_t r_end = whole_rows - r < TILE ? whole_rows : r + TILE;
            size_t c_end = whole_columns - c < TILE ? whole_columns : c + TILE;

            for (size_t i = r; i < r_end; i += 4)
                for (size_t j = c; j < c_end; j += 4)
                    turn_4x4(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
        }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            to[c * to_step + r] = from[r * from_step + c];
}

/* Floats from or to plain: the channels lie apart on one side, the cells on the other. */
static void turn_words(const struct job *job, size_t image, size_t first, size_t count)
{
    const size_t fb = job->from_block, tb = job->to_block, cells = job->cells;
    const float *from =
        (const float *)job->from + image * job->from_image + first / fb * fb * cells + first % fb;
    float *to = (float *)job->to + image * job->to_image + first / tb * tb * cells + first % tb;

    if (fb == 1)
        turn(from, cells, to, tb, count, cells);
    else
        turn(from, fb, to, cells, cells, count);
}

/* Three planes of bytes to cells of three: a picture. */
__attribute__((target("ssse3"))) static void interleave_3(const uint8_t *from, size_t cells,
                                                          uint8_t *to)
{
    const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    size_t i = 0;

    /* each store ends 4 bytes behind what it brings, within the cells that follow */
    for (; i + 16 + 2 <= cells; i += 16) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + cells + i));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * cells + i));
        const __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
        const __m128i low_c = _mm_unpacklo_epi8(c, c), high_c = _mm_unpackhi_epi8(c, c);
        const __m128i fours[] = {_mm_unpacklo_epi16(low, low_c), _mm_unpackhi_epi16(low, low_c),
                                 _mm_unpacklo_epi16(high, high_c),
                                 _mm_unpackhi_epi16(high, high_c)};

        for (size_t k = 0; k < 4; k++)
            _mm_storeu_si128((__m128i *)(void *)(to + 3 * i + 12 * k),
                             _mm_shuffle_epi8(fours[k], order));
    }
    for (; i < cells; i++)
        for (size_t c = 0; c < 3; c++)
            to[3 * i + c] = from[c * cells + i];
}

static bool is_picture(const struct job *job, size_t count)
{
    return job->element_bytes == 1 && count == 3 && job->from_block == 1 && job->to_block == 3 &&
           __builtin_cpu_supports("ssse3");
}

static void move(const struct job *job, size_t image, size_t first, size_t count)
{
    if (job->element_bytes == sizeof(float) && (job->from_block == 1) != (job->to_block == 1)) {
        turn_words(job, image, first, count);
        return;
    }
    if (is_picture(job, count)) {
        interleave_3((const uint8_t *)job->from + image * job->from_image, job->cells,
                     (uint8_t *)job->to + image * job->to_image);
        return;
    }
    switch (job->element_bytes) {
    case 1:
        move_uint8_t(job, image, first, count);
        break;
    case 2:
        move_uint16_t(job, image, first, count);
        break;
    case 4:
        move_uint32_t(job, image, first, count);
        break;
    default:
        move_uint64_t(job, image, first, count);
        break;
    }
}

static void clear_padding(const struct job *job, size_t image)
{
    const size_t used = job->channels % job->to_block, block = job->to_block;
    const size_t before = image * job->to_image + job->channels / block * block * job->cells;
    char *last = (char *)job->to + before * job->element_bytes;

    for (size_t s = 0; s < job->cells; s++)
        memset(last + (s * block + used) * job->element_bytes, 0,
               (block - used) * job->element_bytes);
}

static size_t group_size(const struct job *job)
{
    size_t large = job->from_block > job->to_block ? job->from_block : job->to_block;
    size_t small = job->from_block < job->to_block ? job->from_block : job->to_block;

    return small > 1 ? small : large < 16 ? large : 16;
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const size_t group = group_size(job);
    const size_t groups = (job->channels + group - 1) / group;
    size_t from, to;

    team_share(job->images * groups, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        size_t first = i % groups * group;
        size_t count = job->channels - first < group ? job->channels - first : group;

        move(job, i / groups, first, count);
        if (first + count == job->channels && job->channels % job->to_block != 0)
            clear_padding(job, i / groups);
    }
}

static const char *refuses(const struct kernel_call *call)
{
    const struct operand *in = call->in[0];

    if (in->dtype == DTYPE_STRING)
        return "strings have no layouts";
    if (in->shape.rank < 3)
        return "fewer than 3 dimensions have no layouts";
    if (in->layout == call->out[0]->layout && (in->outer_stride | call->out[0]->outer_stride) != 0)
        return "images that lie apart, in the same layout";
    return NULL;
}

/* From an image to the next. */
static size_t image_elements(const struct operand *operand, size_t channels, size_t cells,
                             size_t block)
{
    const size_t padded = (channels + block - 1) / block * block;

    return (size_t)operand_stride(operand, (int64_t)(padded * cells));
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct operand *in = call->in[0], *out = call->out[0];
    const unsigned block = call->device->channel_block;
    struct job job = {.from = run->in[0], .to = run->out[0]};
    size_t bytes = layout_bytes(out->layout, block, in->dtype, &in->shape);

    (void)state;
    if (bytes == 0)
        return STATUS_OK;
    if (in->layout == out->layout) {
        memcpy(run->out[0], run->in[0], bytes);
        return STATUS_OK;
    }
    job.images = (size_t)in->shape.dims[0];
    job.channels = (size_t)in->shape.dims[1];
    job.cells = (size_t)shape_product(&in->shape, 2, in->shape.rank);
    job.element_bytes = dtype_bytes(in->dtype);
    job.from_block = block_of(in->layout, block, job.channels);
    job.to_block = block_of(out->layout, block, job.channels);
    job.from_image = image_elements(in, job.channels, job.cells, job.from_block);
    job.to_image = image_elements(out, job.channels, job.cells, job.to_block);
    team_run(team_size(run->lane->threads, (double)bytes / 4), run_job, &job);
    return STATUS_OK;
}

const struct kernel kernel_reorder_move = {
    .name = "cpu:move",
    .flags = KERNEL_LAYOUT_CHANGE | KERNEL_STRIDED,
    .layouts = 1u << LAYOUT_PLAIN | 1u << LAYOUT_BLOCKED | 1u << LAYOUT_NHWC,
    .refuses = refuses,
    .enqueue = enqueue,
};
