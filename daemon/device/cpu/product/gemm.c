/* Divides matrix products among the threads; the arithmetic is in gemm_kernels.h. */
#include "device/cpu/product/gemm.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "device/cpu/product/gemm_internal.h"
#include "device/cpu/team.h"

extern const struct gemm_ops gemm_ops_base, gemm_ops_avx2, gemm_ops_avx512;

const struct gemm_ops *gemm_ops_for(enum cpu_isa isa)
{
    static const struct gemm_ops *const table[CPU_ISA_COUNT] = {&gemm_ops_base, &gemm_ops_avx2,
                                                                &gemm_ops_avx512};

    return table[isa];
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Nanoseconds that a product takes about: bound by arithmetic or by reading B. */
static double guess_time(enum cpu_isa isa, double m, double k, double n)
{
    static const double flops_per_ns[CPU_ISA_COUNT] = {20, 110, 190};
    double compute = 2 * m * k * n / flops_per_ns[isa], read = 4 * k * n / 60;

    return compute > read ? compute : read;
}

int64_t gemm_columns(enum cpu_isa isa, int64_t n)
{
    const int64_t vector = gemm_ops_for(isa)->vector;

    return ceil_div(n, vector) * vector;
}

size_t gemm_packed_bytes(enum cpu_isa isa, int64_t k, int64_t n)
{
    return (size_t)(k * gemm_columns(isa, n)) * sizeof(float);
}

void gemm_format(enum cpu_isa isa, int64_t k, int64_t n, bool transposed, float scale,
                 char text[GEMM_FORMAT_BYTES])
{
    snprintf(text, GEMM_FORMAT_BYTES, "gemm %s %" PRId64 "x%" PRId64 "%s %a", cpu_isa_name(isa), k,
             n, transposed ? "t" : "", (double)scale);
}

void gemm_pack(enum cpu_isa isa, int64_t k, int64_t n, const struct gemm_matrix *b, float scale,
               float *packed)
{
    gemm_ops_for(isa)->pack(k, n, b, scale, packed);
}

/* Floats for a copied block of a product with m rows. */
static size_t block_floats(const struct gemm_ops *ops, int64_t m)
{
    return (size_t)smaller(m, ops->block_rows) * ops->row_floats;
}

size_t gemm_scratch_bytes(enum cpu_isa isa, int64_t m, const struct gemm_matrix *a,
                          unsigned threads)
{
    const struct gemm_ops *ops = gemm_ops_for(isa);

    return ops->copies(a) ? threads * block_floats(ops, m) * sizeof(float) : 0;
}

/* ---- one product ---- */

struct product_job {
    const struct gemm_ops *ops;
    const struct gemm *gemm;
    float *scratch;
    atomic_int_least64_t next; /* row block to be taken */
    int64_t blocks;
    int64_t panels;
};

static float *scratch_of(const struct product_job *job, unsigned member)
{
    return job->scratch != NULL ? job->scratch + member * block_floats(job->ops, job->gemm->m)
                                : NULL;
}

/* Blocks begin at whole groups of the micro-kernel's rows, so that only the last has smaller ones.
 */
static void run_block(const struct product_job *job, int64_t index, int64_t first, int64_t last,
                      float *scratch)
{
    const int64_t m = job->gemm->m, rows = job->ops->rows, groups = ceil_div(m, rows);
    int64_t from = groups * index / job->blocks * rows;
    int64_t to = smaller(m, groups * (index + 1) / job->blocks * rows);

    if (to > from)
        job->ops->run(job->gemm, from, to - from, first, last, scratch);
}

/* Few rows: the members share the columns, so that each weight is read once, by one of them. */
static void share_columns(void *arg, unsigned member, unsigned members)
{
    struct product_job *job = arg;
    float *scratch = scratch_of(job, member);
    size_t first, last;

    team_share((size_t)job->panels, member, members, &first, &last);
    for (int64_t i = 0; i < job->blocks && first < last; i++)
        run_block(job, i, (int64_t)first, (int64_t)last, scratch);
}

/* Many rows: they take blocks of rows as they get free. */
static void share_rows(void *arg, unsigned member, unsigned members)
{
    struct product_job *job = arg;
    float *scratch = scratch_of(job, member);

    (void)members;
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);

        if (i >= job->blocks)
            return;
        run_block(job, i, 0, job->panels, scratch);
    }
}

static struct product_job make_job(enum cpu_isa isa, const struct gemm *gemm, void *scratch)
{
    struct product_job job = {.ops = gemm_ops_for(isa), .gemm = gemm, .scratch = scratch};

    job.panels = ceil_div(gemm->n, job.ops->panel);
    job.blocks = ceil_div(gemm->m, job.ops->block_rows);
    return job;
}

void gemm_run_single(enum cpu_isa isa, const struct gemm *gemm, void *scratch)
{
    struct product_job job = make_job(isa, gemm, scratch);

    share_columns(&job, 0, 1);
}

void gemm_run(enum cpu_isa isa, const struct gemm *gemm, unsigned threads, void *scratch)
{
    struct product_job job = make_job(isa, gemm, scratch);
    unsigned members =
        team_size(threads, guess_time(isa, (double)gemm->m, (double)gemm->k, (double)gemm->n));

    if (members == 1) {
        share_columns(&job, 0, 1);
    } else if (job.blocks >= 4 * members || job.panels < (int64_t)members) {
        if (job.blocks < 2 * members)
            job.blocks = smaller(2 * members, ceil_div(gemm->m, job.ops->rows));
        team_run(members, share_rows, &job);
    } else {
        team_run(members, share_columns, &job);
    }
}

/* ---- many products ---- */

enum { CHUNK_BYTES = 256 << 10 }; /* of B packed at a time: stays in L2 */

/* Panels of B packed at a time. */
static int64_t chunk_panels(const struct gemm_ops *ops, int64_t k, int64_t n)
{
    int64_t panel_bytes = (k > 0 ? k : 1) * ops->panel * (int64_t)sizeof(float);
    int64_t panels = CHUNK_BYTES / panel_bytes;

    return smaller(panels > 0 ? panels : 1, ceil_div(n, ops->panel));
}

static size_t member_floats(const struct gemm_ops *ops, int64_t m, int64_t k, int64_t n)
{
    int64_t packed = k * chunk_panels(ops, k, n) * ops->panel;

    return block_floats(ops, m) + ((size_t)packed + 15) / 16 * 16;
}

size_t gemm_batch_scratch_bytes(enum cpu_isa isa, int64_t m, int64_t k, int64_t n, unsigned threads)
{
    return threads * member_floats(gemm_ops_for(isa), m, k, n) * sizeof(float);
}

struct batch_job {
    const struct gemm_ops *ops;
    const struct gemm_batch *batch;
    float *scratch;
    size_t member_floats;
    int64_t chunk;  /* columns */
    int64_t chunks; /* of one product */
};

/* Columns [column, column + chunk) of one product. */
static void run_chunk(const struct batch_job *job, int64_t index, int64_t column, float *scratch)
{
    const struct gemm_batch *batch = job->batch;
    float *packed = scratch + block_floats(job->ops, batch->m);
    struct gemm_product product = {0};
    struct gemm gemm = {.m = batch->m,
                        .k = batch->k,
                        .n = smaller(job->chunk, batch->n - column),
                        .packed = packed,
                        .ldr = batch->ldr,
                        .ldc = batch->ldc,
                        .epilogue = batch->epilogue};
    struct product_job rows = {.ops = job->ops, .gemm = &gemm, .scratch = scratch};

    batch->product(batch->arg, index, &product);
    product.b.data += column * product.b.column_stride;
    job->ops->pack(gemm.k, gemm.n, &product.b, batch->scale, packed);
    gemm.a = product.a;
    gemm.c = product.c + column;
    gemm.bias = product.bias != NULL ? product.bias + column : NULL;
    gemm.residual = product.residual != NULL ? product.residual + column : NULL;
    rows.panels = ceil_div(gemm.n, job->ops->panel);
    rows.blocks = ceil_div(gemm.m, job->ops->block_rows);
    share_columns(&rows, 0, 1);
}

static void run_share(void *arg, unsigned member, unsigned members)
{
    const struct batch_job *job = arg;
    float *scratch = job->scratch + member * job->member_floats;
    size_t from, to;

    team_share((size_t)(job->batch->count * job->chunks), member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        run_chunk(job, (int64_t)i / job->chunks, (int64_t)i % job->chunks * job->chunk, scratch);
}

void gemm_batch_run(enum cpu_isa isa, const struct gemm_batch *batch, unsigned threads,
                    void *scratch)
{
    const struct gemm_ops *ops = gemm_ops_for(isa);
    struct batch_job job = {.ops = ops, .batch = batch, .scratch = scratch};
    double time = (double)batch->count *
                  guess_time(isa, (double)batch->m, (double)batch->k, (double)batch->n);
    unsigned members = team_size(threads, time);
    int64_t panels = chunk_panels(ops, batch->k, batch->n);

    if (batch->count < (int64_t)members) /* too few products to share: share their columns */
        panels = smaller(panels, ceil_div(ceil_div(batch->n, ops->panel), members));
    job.member_floats = member_floats(ops, batch->m, batch->k, batch->n);
    job.chunk = panels * ops->panel;
    job.chunks = ceil_div(batch->n, job.chunk);
    team_run(members, run_share, &job);
}
