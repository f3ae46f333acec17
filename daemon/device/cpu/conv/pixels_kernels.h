/* Convolutions in plain layout; included by pixels_base.c, pixels_avx2.c and pixels_avx512.c.
 *
 * The micro-kernel holds R output channels by V vectors of neighbouring places in registers and
 * goes through channels and taps: a tap's cells are loaded as they lie in the packed tile, its
 * weight is spread over a vector.  An element is its bias and the products of channels and taps in
 * order, whatever tile it falls into; what lies beyond the end of a row is computed and dropped.
 */
#include "device/cpu/conv/pixels.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/simd.h"
#include "device/cpu/team.h"

extern const struct pixels_ops SIMD_NAME(pixels_ops);
extern const struct epilogue_ops SIMD_NAME(epilogue_ops);

#if defined(__AVX512F__)
enum { ROWS = 8, VECTORS = 8 };
static const int64_t most_vectors[ROWS + 1] = {0, 8, 8, 6, 6, 4, 4, 3, 3};
#else
enum { ROWS = 4, VECTORS = 6 };
static const int64_t most_vectors[ROWS + 1] = {0, 6, 4, 3, 3};
#endif

/* ---- R channels by V vectors ---- */

struct strip {
    const float *x; /* the first place's first cell, of channel 0 */
    int64_t channels, block;
    const int64_t *offsets;
    int64_t taps;
    const float *u; /* [channel][tap][R] */
    const float *bias;
    float *to; /* [R][V vectors] */
};

#define EACH(R, V) UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)

INLINE void micro(const int R, const int V, const struct strip *strip)
{
    const float *u = strip->u, *x = strip->x;
    vf s[ROWS][VECTORS];

    EACH(R, V) s[r][v] = vset1(strip->bias[r]);
    for (int64_t c = 0; c < strip->channels; c++, x += strip->block)
        for (int64_t tap = 0; tap < strip->taps; tap++, u += R) {
            const float *cells = x + strip->offsets[tap];
            vf b[VECTORS];

            UNROLL for (int v = 0; v < V; v++) b[v] = vload(cells + v * VW);
            UNROLL for (int r = 0; r < R; r++)
            {
                vf w = vset1(u[r]);

                UNROLL for (int v = 0; v < V; v++) vmac(s[r][v], b[v], w);
            }
        }
    EACH(R, V) vstore(strip->to + (r * V + v) * VW, s[r][v]);
}

typedef void (*micro_fn)(const struct strip *strip);

#define MICRO(R, V)                                                                                \
    static void micro_##R##_##V(const struct strip *strip)                                         \
    {                                                                                              \
        micro(R, V, strip);                                                                        \
    }
#define MICRO_ENTRY(R, V) [R][V] = micro_##R##_##V,
#define UP_TO_3(DO, R)    DO(R, 1) DO(R, 2) DO(R, 3)
#define UP_TO_4(DO, R)    UP_TO_3(DO, R) DO(R, 4)
#define UP_TO_6(DO, R)    UP_TO_4(DO, R) DO(R, 5) DO(R, 6)
#define UP_TO_8(DO, R)    UP_TO_6(DO, R) DO(R, 7) DO(R, 8)
#if defined(__AVX512F__)
#define EACH_MICRO(DO)                                                                             \
    UP_TO_8(DO, 1)                                                                                 \
    UP_TO_8(DO, 2)                                                                                 \
    UP_TO_6(DO, 3)                                                                                 \
    UP_TO_6(DO, 4) UP_TO_4(DO, 5) UP_TO_4(DO, 6) UP_TO_3(DO, 7) UP_TO_3(DO, 8)
#else
#define EACH_MICRO(DO) UP_TO_6(DO, 1) UP_TO_4(DO, 2) UP_TO_3(DO, 3) UP_TO_3(DO, 4)
#endif
EACH_MICRO(MICRO)

static const micro_fn micros[ROWS + 1][VECTORS + 1] = {EACH_MICRO(MICRO_ENTRY)};

/* ---- the input of a tile ---- */

struct tile {
    int64_t image, group;
    int64_t first[2], count[2]; /* places of the largest phase */
};

INLINE void copy_cells(const float *from, const int64_t step, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i * step];
}

/* Every step'th cell from `first` on, `count` of them, with zeros where there are none. */
static void pack_lane(const struct phases_axis *across, const float *row, int64_t first,
                      int64_t count, float *to)
{
    const int64_t step = across->step;
    int64_t from = first >= 0 ? 0 : (-first + step - 1) / step;
    int64_t end = across->in > first ? (across->in - first + step - 1) / step : 0;

    from = from < count ? from : count;
    end = end > count ? count : end < from ? from : end;
    memset(to, 0, (size_t)from * sizeof(float));
    memset(to + end, 0, (size_t)(count - end) * sizeof(float));
    row += first + from * step;
    if (step == 1)
        memcpy(to + from, row, (size_t)(end - from) * sizeof(float));
    else if (step == 2) /* known to the compiler: shuffles */
        copy_cells(row, 2, end - from, to + from);
    else
        copy_cells(row, step, end - from, to + from);
}

static void pack(const struct conv_run *run, const struct tile *tile, float *to)
{
    const struct pixels *p = run->plan;
    const struct phases_axis *down = &p->axis[0], *across = &p->axis[1];
    const int64_t cells = down->in * across->in;
    const int64_t top = tile->first[0] * down->step + down->base;
    const int64_t left = tile->first[1] * across->step + across->base;
    const int64_t rows = (tile->count[0] - 1) * down->step + down->reach + 1;
    const float *x = run->x + (tile->image * p->groups + tile->group) * p->in_channels * cells;

    for (int64_t c = 0; c < p->in_channels; c++, x += cells, to += p->block)
        for (int64_t i = 0; i < rows; i++) {
            const int64_t y = top + i;

            if (y < 0 || y >= down->in) {
                memset(to + i * p->row, 0, (size_t)p->row * sizeof(float));
                continue;
            }
            for (int64_t lane = 0; lane < across->step; lane++)
                pack_lane(across, x + y * across->in, left + lane, p->lane,
                          to + i * p->row + lane * p->lane);
        }
}

/* ---- the result ---- */

struct piece {                 /* neighbouring places of one row of the result, of some channels */
    int64_t channel, channels; /* the first one is counted through all groups */
    int64_t row, column;       /* of the first one, in the result */
    int64_t places, pitch;     /* `pitch`: floats of a channel in the buffer */
};

static void store_piece(const struct conv_run *run, const struct tile *tile,
                        const struct piece *piece, float *buffer)
{
    const struct pixels *p = run->plan;
    const int64_t apart = p->axis[1].phases, cells = p->axis[0].out * p->axis[1].out;
    const int64_t channel = tile->image * p->groups * p->out_channels + piece->channel;
    int64_t at = channel * cells + piece->row * p->axis[1].out + piece->column;
    float gathered[VECTORS * VW];

    for (int64_t r = 0; r < piece->channels; r++, at += cells, buffer += piece->pitch) {
        const float *residual = run->residual != NULL ? run->residual + at : NULL;

        if (residual != NULL && apart > 1) {
            copy_cells(residual, apart, piece->places, gathered);
            residual = gathered;
        }
        if (residual != NULL || p->epilogue.act != ACT_NONE)
            SIMD_NAME(epilogue_ops).apply(&p->epilogue, buffer, residual, (size_t)piece->places);
        if (apart == 1)
            memcpy(run->y + at, buffer, (size_t)piece->places * sizeof(float));
        else
            for (int64_t i = 0; i < piece->places; i++)
                run->y[at + i * apart] = buffer[i];
    }
}

/* One row of places of a phase, for channels [channel, channel + channels) of the group. */
static void run_row(const struct conv_run *run, const struct tile *tile,
                    const struct pixels_phase *phase, int64_t channel, int64_t channels,
                    int64_t row, const float *packed)
{
    const struct pixels *p = run->plan;
    const int64_t places = phases_places(&p->axis[1], phase->place[1]) - tile->first[1];
    const int64_t count = places < tile->count[1] ? places : tile->count[1];
    const int64_t vectors = (count + VW - 1) / VW, most = most_vectors[channels];
    const int64_t strips = (vectors + most - 1) / most;
    const int64_t all = p->in_channels * phase->taps;
    const int64_t first = tile->group * p->out_channels + channel;
    _Alignas(64) float buffer[ROWS * VECTORS * VW];
    struct strip strip = {.channels = p->in_channels,
                          .block = p->block,
                          .offsets = phase->offsets,
                          .taps = phase->taps,
                          .u = run->weights + phase->weights + channel * all,
                          .bias = run->bias + first,
                          .to = buffer};
    struct piece piece = {.channel = first,
                          .channels = channels,
                          .row = (tile->first[0] + row) * p->axis[0].phases + phase->place[0]};

    for (int64_t i = 0, done = 0, width; i < strips; i++, done += width) {
        width = (vectors - done) / (strips - i);
        strip.x = packed + row * p->axis[0].step * p->row + done * VW;
        micros[channels][width](&strip);
        piece.column = (tile->first[1] + done * VW) * p->axis[1].phases + phase->place[1];
        piece.places = count - done * VW < width * VW ? count - done * VW : width * VW;
        piece.pitch = width * VW;
        store_piece(run, tile, &piece, buffer);
    }
}

static void run_phase(const struct conv_run *run, const struct tile *tile,
                      const struct pixels_phase *phase, const float *packed)
{
    const struct pixels *p = run->plan;
    const int64_t parts = (p->out_channels + ROWS - 1) / ROWS;
    const int64_t places = phases_places(&p->axis[0], phase->place[0]) - tile->first[0];
    const int64_t rows = places < tile->count[0] ? places : tile->count[0];

    for (int64_t part = 0; part < parts; part++) {
        const int64_t channel = pixels_part(p->out_channels, ROWS, part);
        const int64_t channels = pixels_part(p->out_channels, ROWS, part + 1) - channel;

        for (int64_t row = 0; row < rows; row++)
            run_row(run, tile, phase, channel, channels, row, packed);
    }
}

static struct tile tile_at(const struct pixels *p, int64_t index)
{
    const int64_t across = index % p->tiles[1], down = index / p->tiles[1] % p->tiles[0];
    const int64_t image_group = index / p->tiles[1] / p->tiles[0];
    struct tile tile = {.image = image_group / p->groups,
                        .group = image_group % p->groups,
                        .first = {down * p->tile[0], across * p->tile[1]}};

    for (size_t i = 0; i < 2; i++) {
        const int64_t left = phases_places(&p->axis[i], 0) - tile.first[i];

        tile.count[i] = left < p->tile[i] ? left : p->tile[i];
    }
    return tile;
}

static void run_tiles(const struct conv_run *all, unsigned member, unsigned members)
{
    const struct pixels *p = all->plan;
    float *packed = all->scratch + (int64_t)member * p->in_channels * p->block;
    size_t from, to;

    team_share((size_t)(p->images * p->groups * p->tiles[0] * p->tiles[1]), member, members, &from,
               &to);
    for (int64_t i = (int64_t)from; i < (int64_t)to; i++) {
        const struct tile tile = tile_at(p, i);
        struct conv_run run = *all;

        run.weights += tile.group * p->group_weights;
        pack(&run, &tile, packed);
        for (int64_t k = 0; k < p->phase_count; k++)
            run_phase(&run, &tile, &p->phases[k], packed);
    }
}

const struct pixels_ops SIMD_NAME(pixels_ops) = {.vector = VW, .rows = ROWS, .run = run_tiles};
