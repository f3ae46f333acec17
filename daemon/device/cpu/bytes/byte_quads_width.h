/* Included by byte_quads_kernels.h: a line of a group of WIDTH channels, which fill one vector of
 * bytes and four of sums. */
#define NAME(stem) JOINED(stem##_, WIDTH)

struct NAME(column) {
    INTS v[4]; /* of four channels each sixteen, the rows of a channel side by side */
};

INLINE struct NAME(column) NAME(read_column)(const uint8_t *x, const int64_t *rows)
{
    const INTS a = S(loadu)(CAST(x + rows[0])), b = S(loadu)(CAST(x + rows[1]));
    const INTS c = S(loadu)(CAST(x + rows[2])), none = S(setzero)();
    const INTS low = M(unpacklo_epi8)(a, b), high = M(unpackhi_epi8)(a, b);
    const INTS low_c = M(unpacklo_epi8)(c, none), high_c = M(unpackhi_epi8)(c, none);

    return (struct NAME(column)){{M(unpacklo_epi16)(low, low_c), M(unpackhi_epi16)(low, low_c),
                                  M(unpacklo_epi16)(high, high_c),
                                  M(unpackhi_epi16)(high, high_c)}};
}

INLINE INTS NAME(to_whole)(const struct byte_range *range, INTS sum, const float *scale)
{
    const FLOATS low = M(set1_ps)(range->low - range->zero);
    const FLOATS high = M(set1_ps)(range->high - range->zero);
    const FLOATS x = M(mul_ps)(M(cvtepi32_ps)(sum), M(loadu_ps)(scale));

    /* bounds are whole numbers: cutting off before rounding is the same */
    return M(add_epi32)(M(cvtps_epi32)(M(min_ps)(high, M(max_ps)(low, x))),
                        M(set1_epi32)((int32_t)range->zero));
}

INLINE void NAME(store)(uint8_t *to, const INTS x[4], int64_t count)
{
    const INTS mask = M(set1_epi16)(0xff);
    INTS low, high, bytes;

    low = S(and)(M(packs_epi32)(x[0], x[1]), mask);
    high = S(and)(M(packs_epi32)(x[2], x[3]), mask);
    bytes = M(packus_epi16)(low, high);
    if (count >= WIDTH)
        S(storeu)(CAST(to), bytes);
    else
        memcpy(to, &bytes, (size_t)count);
}

/* `fresh`: columns that a place does not share with the one before. */
INLINE void NAME(along)(const struct byte_quads *line, int64_t channel, const int fresh)
{
    const int8_t *packed = line->weights + channel * 12;
    const int64_t columns[3][3] = {{line->offsets[0], line->offsets[3], line->offsets[6]},
                                   {line->offsets[1], line->offsets[4], line->offsets[7]},
                                   {line->offsets[2], line->offsets[5], line->offsets[8]}};
    const struct byte_range range = line->range;
    const int64_t places = line->places, stride = line->stride, all = line->channels;
    const int32_t *starts = line->starts + channel;
    const float *scales = line->scales + channel;
    const uint8_t *x = line->x + channel;
    uint8_t *y = line->y + channel;
    struct NAME(column) c[3];
    INTS w[3][4];

    UNROLL for (int j = 0; j < 3; j++)
    {
        UNROLL for (int v = 0; v < 4; v++) w[j][v] = S(loadu)(CAST(packed + (j * 4 + v) * (WIDTH)));
    }
    UNROLL for (int j = fresh; j < 3; j++) c[j] = NAME(read_column)(x, columns[j - fresh]);
    for (int64_t i = 0; i < places; i++, x += stride, y += all) {
        INTS sums[4];

        UNROLL for (int j = 0; j < 3; j++) c[j] =
            j < 3 - fresh ? c[j + fresh] : NAME(read_column)(x, columns[j]);
        UNROLL for (int v = 0; v < 4; v++)
        {
            INTS sum = S(loadu)(CAST(starts + v * (WIDTH / 4)));

            UNROLL for (int j = 0; j < 3; j++) sum = DOT(sum, c[j].v[v], w[j][v]);
            sums[v] = NAME(to_whole)(&range, sum, scales + v * (WIDTH / 4));
        }
        NAME(store)(y, sums, all - channel);
    }
}

static void NAME(group)(const struct byte_quads *line, int64_t channel)
{
    const int64_t cell = line->offsets[1] - line->offsets[0];

    if (line->stride == cell)
        NAME(along)(line, channel, 1);
    else if (line->stride == 2 * cell)
        NAME(along)(line, channel, 2);
    else
        NAME(along)(line, channel, 3);
}

#undef NAME
#undef WIDTH
#undef BITS
#undef PREFIX
#undef INTS
#undef FLOATS
#undef CAST
