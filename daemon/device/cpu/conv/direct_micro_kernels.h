/* The micro-kernel of direct convolution.  Part of direct_kernels.h.
 *
 * A *step* is one tap of a few input channels: neighbours, or scattered, with an offset each (a
 * group that begins anywhere, a shuffle).  The micro-kernel holds R neighbouring pixels by up to
 * two vectors of output channels in registers and goes through steps: it reaches a step's R pixels
 * by offsets from a table, so that it need not know what a tap is. */

enum {
#if defined(__AVX512F__)
    ROWS = 14,
#else
    ROWS = 6,
#endif
    FEW_STEPS = 4 /* too short for lines of the result to be fetched meanwhile */
};

/* ---- R pixels by B vectors ---- */

struct strip {
    const float *v; /* of the first pixel */
    const int64_t *offsets;
    int64_t steps;
    const float *u;        /* [step][channel][B vectors] */
    const float *bias;     /* NULL: y holds the sum of the steps before */
    const float *residual; /* with a bias: added to it, unless it is NULL */
    float *y;
    int64_t y_block; /* floats to the next output block */
    int64_t
        y_pitch; /* … to the next pixel, of a transposed convolution; else they are neighbours */
    float low, high;
    const float *next; /* weights to be fetched into L2, `fetch` lines a step */
    int64_t fetch;
    int64_t ahead; /* floats from the pixels to those that come next; 0: they are near already */
    int64_t times; /* so many groups of R pixels, one behind the other */
};

/* Half of the lines of the pixels that come next: the other half is for the step's neighbour. */
INLINE void fetch_ahead(const int R, const int pitch, const float *v, int64_t step)
{
    v += pitch == 16 ? (step & 1) * pitch : 0;
    UNROLL for (int r = 0; r < R; r += 2) __builtin_prefetch(v + r * pitch, 0, 3);
}

#define EACH(R, B) UNROLL for (int b = 0; b < B; b++) UNROLL for (int r = 0; r < R; r++)

/* `pitch`: floats from a pixel to the next; `channels`: of a step, each with an offset when they
 * are `scattered`; `y_pitch` as in the strip. */
INLINE void micro(const int R, const int B, const int pitch, const int channels,
                  const bool scattered, const int64_t y_pitch, const struct strip *strip)
{
    const int64_t fetch = strip->fetch, steps = strip->steps, y_block = strip->y_block;
    const int64_t ahead = strip->ahead;
    const vf low = vset1(strip->low), high = vset1(strip->high);
    const float *next = strip->next, *from = strip->v, *residual = strip->residual;
    float *y = strip->y;

    for (int64_t i = 0; i < strip->times; i++, from += R * pitch, y += R * y_pitch) {
        const float *u = strip->u;
        vf s[ROWS][DIRECT_PANEL_BLOCKS];

        if (strip->bias == NULL) {
            EACH(R, B) s[r][b] = vload(y + b * y_block + r * y_pitch);
        } else {
            if (steps > FEW_STEPS)
                EACH(R, B)
            __builtin_prefetch(y + b * y_block + r * y_pitch, 1, 3);
            EACH(R, B) s[r][b] = vload(strip->bias + b * VW);
        }
        if (residual != NULL) {
            EACH(R, B) s[r][b] = vadd(s[r][b], vload(residual + b * y_block + r * y_pitch));
            residual += R * y_pitch;
        }
        for (int64_t step = 0; step < steps; step++, next += 16 * fetch) {
            const int64_t *offsets = strip->offsets + (scattered ? step * channels : step);
            const float *v = from + offsets[0];

            if (ahead != 0)
                fetch_ahead(R, pitch, v + ahead, step);
            UNROLL for (int k = 0; k < channels; k++, u += B * VW)
            {
                vf w[DIRECT_PANEL_BLOCKS];

                if (k < fetch)
                    __builtin_prefetch(next + k * 16, 0, 2);
                if (scattered && k > 0)
                    v = from + offsets[k];
                UNROLL for (int b = 0; b < B; b++) w[b] = vload(u + b * VW);
                UNROLL for (int r = 0; r < R; r++)
                {
                    vf x = vset1(v[r * pitch + (scattered ? 0 : k)]);

                    UNROLL for (int b = 0; b < B; b++) vmac(s[r][b], x, w[b]);
                }
            }
        }
        EACH(R, B) vstore(y + b * y_block + r * y_pitch, vmin(high, vmax(low, s[r][b])));
    }
}

typedef void (*micro_fn)(const struct strip *strip);

#define MICRO(R)                                                                                   \
    static void micro_##R##_1(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 1, VW, DIRECT_CHANNELS, false, VW, strip);                                        \
    }                                                                                              \
    static void micro_##R##_2(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 2, VW, DIRECT_CHANNELS, false, VW, strip);                                        \
    }                                                                                              \
    static void apart_##R##_1(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 1, VW, DIRECT_CHANNELS, false, strip->y_pitch, strip);                            \
    }                                                                                              \
    static void apart_##R##_2(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 2, VW, DIRECT_CHANNELS, false, strip->y_pitch, strip);                            \
    }                                                                                              \
    static void thin_##R##_1(const struct strip *strip)                                            \
    {                                                                                              \
        micro(R, 1, 1, 1, false, VW, strip);                                                       \
    }                                                                                              \
    static void thin_##R##_2(const struct strip *strip)                                            \
    {                                                                                              \
        micro(R, 2, 1, 1, false, VW, strip);                                                       \
    }                                                                                              \
    static void scattered_##R##_1(const struct strip *strip)                                       \
    {                                                                                              \
        micro(R, 1, VW, DIRECT_SCATTERED, true, VW, strip);                                        \
    }                                                                                              \
    static void scattered_##R##_2(const struct strip *strip)                                       \
    {                                                                                              \
        micro(R, 2, VW, DIRECT_SCATTERED, true, VW, strip);                                        \
    }
#if defined(__AVX512F__)
#define EACH_ROWS(do)                                                                              \
    do                                                                                             \
    (1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14)
#else
#define EACH_ROWS(do)                                                                              \
    do                                                                                             \
    (1) do(2) do(3) do(4) do(5) do(6)
#endif
EACH_ROWS(MICRO)

enum way { NEIGHBOURS, THIN, APART, SCATTERED, WAYS };
#define MICRO_ROW(R)                                                                               \
    [R] = {{micro_##R##_1, micro_##R##_2},                                                         \
           {thin_##R##_1, thin_##R##_2},                                                           \
           {apart_##R##_1, apart_##R##_2},                                                         \
           {scattered_##R##_1, scattered_##R##_2}},
static const micro_fn micros[ROWS + 1][WAYS][DIRECT_PANEL_BLOCKS] = {EACH_ROWS(MICRO_ROW)};

/* ---- a panel over neighbouring pixels ---- */

struct part { /* of the weights: a chunk of steps of a panel */
    const struct direct_phase *phase;
    int64_t panel;
    int64_t step, steps; /* from which one, how many */
    bool begins, ends;   /* a sum */
};

static struct part part_at(const struct direct_phase *phase, int64_t panel, int64_t chunk)
{
    const struct direct_panel *all = &phase->panels[panel];
    const int64_t step = chunk * phase->chunk;
    const bool ends = chunk + 1 == all->chunks;

    return (struct part){.phase = phase,
                         .panel = panel,
                         .step = step,
                         .steps = ends ? all->steps - step : phase->chunk,
                         .begins = chunk == 0,
                         .ends = ends};
}

static struct strip make_strip(const struct conv_run *run, struct part part, bool finishes)
{
    const struct direct *p = run->plan;
    const struct direct_phase *phase = part.phase;
    const struct direct_panel *panel = &phase->panels[part.panel];
    const int64_t width = panel->blocks * VW * p->channels;
    struct strip strip = {
        .offsets = phase->offsets + (panel->from + part.step) * (p->scattered ? p->channels : 1),
        .steps = part.steps,
        .u = run->weights + panel->weights + part.step * width,
        .bias = part.begins ? run->bias + panel->first * VW : NULL,
        .y_block = p->y_block,
        .y_pitch = p->apart[1] * VW,
        .low = part.ends ? finish_low(&p->epilogue, finishes) : -__builtin_inff(),
        .high = part.ends ? finish_high(&p->epilogue, finishes) : __builtin_inff()};

    strip.next = strip.u + strip.steps * width;
    strip.fetch = (width / 16 + p->strips - 1) / p->strips;
    return strip;
}

/* What two clamps cannot do, on the rows that the micro-kernel left in L1. */
static void finish_strip(const struct epilogue *epilogue, const struct strip *strip,
                         const float *residual, int64_t blocks, int64_t rows)
{
    const bool apart = strip->y_pitch != VW;
    const int64_t pieces = apart ? rows : 1, length = apart ? VW : rows * VW;

    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < pieces; i++) {
            const int64_t at = b * strip->y_block + i * strip->y_pitch;

            finish_row(epilogue, strip->y + at, residual != NULL ? residual + at : NULL, length);
        }
}

static void run_segment(const struct conv_run *run, struct part part,
                        const struct direct_segment *segment)
{
    const struct direct *p = run->plan;
    const struct direct_panel *panel = &part.phase->panels[part.panel];
    const int64_t groups = (segment->pixels + ROWS - 1) / ROWS, pitch = p->thin ? 1 : VW;
    const bool finishes = finish_is_needed(&p->epilogue, run->residual);
    const bool finishes_now = finishes && part.ends;
    const float *residuals = run->residual != NULL
                                 ? run->residual + segment->image * (p->residual_image - p->y_image)
                                 : NULL;
    const bool after = p->epilogue.residual_after;
    const enum way way = p->thin           ? THIN
                         : p->scattered    ? SCATTERED
                         : p->apart[1] > 1 ? APART
                                           : NEIGHBOURS;
    struct strip strip = make_strip(run, part, finishes);
    /* What is pooled has a place for one panel only. */
    const int64_t first = segment->at + (p->pools ? 0 : panel->first * strip.y_block);
    int64_t group = 0, done = 0;

    while (group < groups) {
        const int64_t at = first + done * strip.y_pitch;
        const float *residual = residuals != NULL ? residuals + at : NULL;
        const int64_t left_groups = groups - group, rows = (segment->pixels - done) / left_groups;

        /* The larger ones come last. */
        strip.times = finishes_now ? 1 : left_groups - (segment->pixels - done) % left_groups;
        strip.v = segment->v + done * pitch;
        strip.ahead = !p->packs && part.panel == 0 ? rows * VW : 0;
        strip.y = run->y + at;
        strip.residual = after || !part.begins ? NULL : residual;
        micros[rows][way][panel->blocks - 1](&strip);
        strip.next += strip.times * strip.steps * strip.fetch * 16;
        if (finishes_now)
            finish_strip(&p->epilogue, &strip, after ? residual : NULL, panel->blocks, rows);
        group += strip.times;
        done += strip.times * rows;
    }
}
