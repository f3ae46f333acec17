/* Every family of instructions against plain arithmetic of the host: one kernel of PTX text an
 * instruction, random and awkward operands, 256 threads of them. */
#include "references.h"
#include "sim.h"
#include "support.h"

#include <cuda_runtime_api.h>
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N 256

typedef uint64_t reference_fn(uint64_t a, uint64_t b, uint64_t c);

/* The instruction with %d, %a, %b, %c; the sizes of their registers (0: not used) and of the
 * result; the reference; how far the result may be off (ulps of a float, 0: bit for bit). */
struct row {
    const char *text;
    unsigned d;
    unsigned a;
    unsigned b;
    unsigned c;
    reference_fn *reference;
    char kind; /* operands: 'i' integers, 'f' f32, 'd' f64, 'h' f16 ('e' with a
                * result in f32), 'b' bf16, 'm' bf16 without NaN, 'n' f32 of moderate size, 's'
                * small shifts */
    unsigned ulps;
};

static const struct row rows[] = {
    {"add.s32 %d, %a, %b;", 4, 4, 4, 0, r_add32, 'i', 0},
    {"sub.u64 %d, %a, %b;", 8, 8, 8, 0, r_sub64, 'i', 0},
    {"add.s16 %d, %a, %b;", 2, 2, 2, 0, r_add16, 'i', 0},
    {"mul.lo.u32 %d, %a, %b;", 4, 4, 4, 0, r_mul32, 'i', 0},
    {"mul.hi.s32 %d, %a, %b;", 4, 4, 4, 0, r_mulhi_s32, 'i', 0},
    {"mul.hi.u64 %d, %a, %b;", 8, 8, 8, 0, r_mulhi_u64, 'i', 0},
    {"mul.hi.s64 %d, %a, %b;", 8, 8, 8, 0, r_mulhi_s64, 'i', 0},
    {"mul.wide.s32 %d, %a, %b;", 8, 4, 4, 0, r_wide_s32, 'i', 0},
    {"mul.wide.u16 %d, %a, %b;", 4, 2, 2, 0, r_wide_u16, 'i', 0},
    {"mad.lo.s32 %d, %a, %b, %c;", 4, 4, 4, 4, r_mad, 'i', 0},
    {"mad.wide.u32 %d, %a, %b, %c;", 8, 4, 4, 8, r_mad_wide, 'i', 0},
    {"mad.hi.u32 %d, %a, %b, %c;", 4, 4, 4, 4, r_mad_hi, 'i', 0},
    {"div.s32 %d, %a, %b;", 4, 4, 4, 0, r_div_s32, 'i', 0},
    {"rem.u64 %d, %a, %b;", 8, 8, 8, 0, r_rem_u64, 'i', 0},
    {"min.s32 %d, %a, %b;", 4, 4, 4, 0, r_min_s32, 'i', 0},
    {"max.u64 %d, %a, %b;", 8, 8, 8, 0, r_max_u64, 'i', 0},
    {"abs.s32 %d, %a;", 4, 4, 0, 0, r_abs_s32, 'i', 0},
    {"neg.s64 %d, %a;", 8, 8, 0, 0, r_neg_s64, 'i', 0},
    {"sad.u32 %d, %a, %b, %c;", 4, 4, 4, 4, r_sad, 'i', 0},
    {"add.sat.s32 %d, %a, %b;", 4, 4, 4, 0, r_addsat, 'i', 0},
    {"and.b32 %d, %a, %b;", 4, 4, 4, 0, r_and, 'i', 0},
    {"xor.b64 %d, %a, %b;", 8, 8, 8, 0, r_xor64, 'i', 0},
    {"not.b16 %d, %a;", 2, 2, 0, 0, r_not16, 'i', 0},
    {"shl.b32 %d, %a, %b;", 4, 4, 4, 0, r_shl32, 's', 0},
    {"shr.s32 %d, %a, %b;", 4, 4, 4, 0, r_shr_s32, 's', 0},
    {"shr.u64 %d, %a, %b;", 8, 8, 4, 0, r_shr_u64, 's', 0},
    {"popc.b64 %d, %a;", 4, 8, 0, 0, r_popc64, 'i', 0},
    {"clz.b32 %d, %a;", 4, 4, 0, 0, r_clz, 'i', 0},
    {"bfind.u32 %d, %a;", 4, 4, 0, 0, r_bfind, 'i', 0},
    {"brev.b32 %d, %a;", 4, 4, 0, 0, r_brev, 'i', 0},
    {"bfe.s32 %d, %a, %b, %c;", 4, 4, 4, 4, r_bfe_s32, 's', 0},
    {"bfi.b32 %d, %a, %b, 5, %c;", 4, 4, 4, 4, r_bfi, 's', 0},
    {"prmt.b32 %d, %a, %b, %c;", 4, 4, 4, 4, r_prmt, 'i', 0},
    {"shf.l.wrap.b32 %d, %a, %b, %c;", 4, 4, 4, 4, r_shf_l, 's', 0},
    {"shf.r.clamp.b32 %d, %a, %b, %c;", 4, 4, 4, 4, r_shf_r, 's', 0},
    {"lop3.b32 %d, %a, %b, %c, 0xCA;", 4, 4, 4, 4, r_lop3, 'i', 0},
    {"dp4a.s32.s32 %d, %a, %b, %c;", 4, 4, 4, 4, r_dp4a, 'i', 0},
    {"dp4a.u32.s32 %d, %a, %b, %c;", 4, 4, 4, 4, r_dp4a_us, 'i', 0},
    {"{ .reg .b64 t; add.cc.u64 %d, %a, %b; addc.u64 t, 0, 0; xor.b64 %d, %d, t; }", 8, 8, 8, 0,
     r_carry, 'i', 0},
    {"add.rn.f32 %d, %a, %b;", 4, 4, 4, 0, r_fadd, 'f', 0},
    {"mul.f32 %d, %a, %b;", 4, 4, 4, 0, r_fmul, 'f', 0},
    {"fma.rn.f32 %d, %a, %b, %c;", 4, 4, 4, 4, r_ffma, 'f', 0},
    {"div.rn.f32 %d, %a, %b;", 4, 4, 4, 0, r_fdiv, 'f', 0},
    {"sqrt.rn.f32 %d, %a;", 4, 4, 0, 0, r_fsqrt, 'f', 0},
    {"rcp.rn.f32 %d, %a;", 4, 4, 0, 0, r_frcp, 'f', 0},
    {"min.f32 %d, %a, %b;", 4, 4, 4, 0, r_fmin, 'f', 0},
    {"max.f32 %d, %a, %b;", 4, 4, 4, 0, r_fmax, 'f', 0},
    {"abs.f32 %d, %a;", 4, 4, 0, 0, r_fabs, 'f', 0},
    {"copysign.f32 %d, %a, %b;", 4, 4, 4, 0, r_copysign, 'f', 0},
    {"add.sat.f32 %d, %a, %b;", 4, 4, 4, 0, r_sat, 'f', 0},
    {"mul.rn.ftz.f32 %d, %a, %b;", 4, 4, 4, 0, r_fmul_ftz, 'f', 0},
    {"add.rz.f32 %d, %a, %b;", 4, 4, 4, 0, r_fadd_rz, 'n', 0},
    {"mul.rm.f32 %d, %a, %b;", 4, 4, 4, 0, r_fmul_rm, 'n', 0},
    {"mul.rp.f32 %d, %a, %b;", 4, 4, 4, 0, r_fmul_rp, 'n', 0},
    {"ex2.approx.f32 %d, %a;", 4, 4, 0, 0, r_ex2, 'n', 2},
    {"lg2.approx.f32 %d, %a;", 4, 4, 0, 0, r_lg2, 'f', 2},
    {"sin.approx.f32 %d, %a;", 4, 4, 0, 0, r_sin, 'n', 2},
    {"cos.approx.f32 %d, %a;", 4, 4, 0, 0, r_cos, 'n', 2},
    {"tanh.approx.f32 %d, %a;", 4, 4, 0, 0, r_tanh, 'n', 2},
    {"rsqrt.approx.f32 %d, %a;", 4, 4, 0, 0, r_rsqrt, 'f', 1},
    {"add.f64 %d, %a, %b;", 8, 8, 8, 0, r_dadd, 'd', 0},
    {"fma.rn.f64 %d, %a, %b, %c;", 8, 8, 8, 8, r_dfma, 'd', 0},
    {"div.rn.f64 %d, %a, %b;", 8, 8, 8, 0, r_ddiv, 'd', 0},
    {"sqrt.rn.f64 %d, %a;", 8, 8, 0, 0, r_dsqrt, 'd', 0},
    {"add.f16 %d, %a, %b;", 2, 2, 2, 0, r_hadd, 'h', 0},
    {"mul.rn.f16 %d, %a, %b;", 2, 2, 2, 0, r_hmul, 'h', 0},
    {"fma.rn.f16 %d, %a, %b, %c;", 2, 2, 2, 2, r_hfma, 'h', 0},
    {"add.rn.f16x2 %d, %a, %b;", 4, 4, 4, 0, r_hadd2, 'h', 0},
    {"add.rn.bf16 %d, %a, %b;", 2, 2, 2, 0, r_badd, 'b', 0},
    {"mul.bf16 %d, %a, %b;", 2, 2, 2, 0, r_bmul, 'b', 0},
    {"max.bf16x2 %d, %a, %b;", 4, 4, 4, 0, r_bmax2, 'm', 0},
    {"cvt.s64.s8 %d, %a;", 8, 2, 0, 0, r_s64_s8, 'i', 0},
    {"cvt.u32.s16 %d, %a;", 4, 2, 0, 0, r_u32_s16, 'i', 0},
    {"cvt.rn.f32.s64 %d, %a;", 4, 8, 0, 0, r_f32_s64, 'i', 0},
    {"cvt.rz.f32.u32 %d, %a;", 4, 4, 0, 0, r_f32_u32_rz, 'i', 0},
    {"cvt.rn.f64.u64 %d, %a;", 8, 8, 0, 0, r_f64_u64, 'i', 0},
    {"cvt.rn.f16.f32 %d, %a;", 2, 4, 0, 0, r_f16_f32, 'f', 0},
    {"cvt.f32.f16 %d, %a;", 4, 2, 0, 0, r_f32_f16, 'e', 0},
    {"cvt.rn.bf16.f32 %d, %a;", 2, 4, 0, 0, r_bf16_f32, 'f', 0},
    {"cvt.rn.f32.f64 %d, %a;", 4, 8, 0, 0, r_f32_f64, 'd', 0},
    {"cvt.rn.f16x2.f32 %d, %a, %b;", 4, 4, 4, 0, r_f16x2, 'f', 0},
    {"cvt.rni.f32.f32 %d, %a;", 4, 4, 0, 0, r_rni_f32, 'f', 0},
    {"cvt.rmi.f32.f32 %d, %a;", 4, 4, 0, 0, r_rmi_f32, 'f', 0},
    {"cvt.rzi.s32.f32 %d, %a;", 4, 4, 0, 0, r_rzi_s32, 'f', 0},
    {"cvt.rzi.u8.f32 %d, %a;", 2, 4, 0, 0, r_rzi_u8, 'f', 0},
    {"cvt.rni.s64.f64 %d, %a;", 8, 8, 0, 0, r_rni_s64_f64, 'd', 0},
    {"cvt.sat.u8.s32 %d, %a;", 2, 4, 0, 0, r_sat_u8_s32, 'i', 0},
    {"setp.lt.s32 p, %a, %b; selp.b32 %d, 7, 9, p;", 4, 4, 4, 0, r_lt_s32, 'i', 0},
    {"setp.hi.u32 p, %a, %b; selp.b32 %d, 7, 9, p;", 4, 4, 4, 0, r_hi_u32, 'i', 0},
    {"setp.geu.f32 p, %a, %b; selp.b32 %d, 7, 9, p;", 4, 4, 4, 0, r_geu_f32, 'f', 0},
    {"setp.ne.f32 p, %a, %b; selp.b32 %d, 7, 9, p;", 4, 4, 4, 0, r_ne_f32, 'f', 0},
    {"setp.num.f32 p, %a, %b; selp.b32 %d, 7, 9, p;", 4, 4, 4, 0, r_num_f32, 'f', 0},
    {"setp.gt.f16 p, %a, %b; selp.b32 %d, 7, 9, p;", 4, 2, 2, 0, r_gt_f16, 'h', 0},
    {"set.eq.f16.f16 %d, %a, %b;", 2, 2, 2, 0, r_set, 'h', 0},
    {"mov.b32 %d, {%a, %b};", 4, 2, 2, 0, r_pack, 'i', 0},
    {"cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", 2, 4, 4, 0, r_e4m3x2, 'f', 0},
    {"cvt.rn.f16x2.e4m3x2 %d, %a;", 4, 2, 0, 0, r_f16x2_e4m3x2, 'i', 0},
    {"cvt.rna.tf32.f32 %d, %a;", 4, 4, 0, 0, r_tf32, 'n', 0},
    {"cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", 4, 4, 4, 4, r_pack_u8, 'i', 0},
    {"dp2a.lo.s32.s32 %d, %a, %b, %c;", 4, 4, 4, 4, r_dp2a, 'i', 0},
    {"{ .reg .b64 t; sub.cc.u64 %d, %a, %b; subc.u64 t, 0, 0; xor.b64 %d, %d, t; }", 8, 8, 8, 0,
     r_borrow, 'i', 0},
    {"{ .reg .b32 t; mad.lo.cc.u32 t, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0; }", 4, 4, 4, 4, r_madc,
     'i', 0},
    {"bmsk.wrap.b32 %d, %a, %b;", 4, 4, 4, 0, r_bmsk, 's', 0},
    {"testp.finite.f32 p, %a; selp.b32 %d, 7, 9, p;", 4, 4, 0, 0, r_finite, 'f', 0},
    {"mul24.lo.u32 %d, %a, %b;", 4, 4, 4, 0, r_mul24, 'i', 0},
    {"fma.rn.bf16 %d, %a, %b, %c;", 2, 2, 2, 2, r_bfma, 'b', 0},
    {"slct.b32.s32 %d, %a, %b, %c;", 4, 4, 4, 4, r_slct, 'i', 0},
};

static uint64_t seed;
static unsigned wrong; /* rows that do not agree */

static uint64_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 32 ^ seed << 17;
}

static const uint64_t corners[] = {0,
                                   1,
                                   0x7FFFFFFF,
                                   0x80000000,
                                   0xFFFFFFFF,
                                   0x7FFFFFFFFFFFFFFF,
                                   0x8000000000000000,
                                   0xFFFFFFFFFFFFFFFF};
static const float float_corners[] = {0,       -0.0f,    1,      -1,    INFINITY, -INFINITY, NAN,
                                      1e-40f,  -1e-45f,  0.5f,   2.5f,  65504,    65519.99f, 3e38f,
                                      0x1p31f, -0x1p31f, 255.5f, 1e-8f, 5.9e-8f};

/* An operand of its kind; the low bits hold it. */
static uint64_t operand(char kind, unsigned i)
{
    uint64_t bits = draw();
    double spread = ldexp((double)(int64_t)draw() / 0x1p63, (int)(draw() % 40) - 20);

    switch (kind) {
    case 's':
        return i % 3 == 0 ? draw() : draw() % 48;
    case 'f':
        return i % 4 == 0 ? b32(float_corners[draw() % 19]) : b32((float)spread);
    case 'n': /* of moderate size */
        return b32((float)(spread / 4096));
    case 'd':
        return i % 8 == 0 ? b64(float_corners[draw() % 19]) : b64(spread * 1e10);
    case 'e':
    case 'h':
        return i % 2 == 0 ? bits & 0xFFFFFFFF : b16(spread) | b16(spread * 3) << 16;
    case 'b':
        return bb16(spread) | bb16(spread / 7) << 16;
    case 'm':
        return bb16(spread) | bb16(-spread) << 16;
    default:
        return i % 4 == 0 ? corners[draw() % 8] : bits;
    }
}

static void substituted(char *out, size_t bytes, const char *text)
{
    size_t n = 0;

    for (; *text != '\0' && n + 8 < bytes; text++) {
        if (*text == '%' && strchr("dabc", text[1]) != NULL) {
            n += (size_t)snprintf(out + n, bytes - n, "%%r%c", text[1]);
            text++;
        } else {
            out[n++] = *text;
        }
    }
    out[n] = '\0';
}

/* Reads a, b, c of the thread, 8 bytes each, runs the instruction, writes d. */
static void kernel_text(const struct row *row, char *text, size_t bytes)
{
    char body[512];
    const unsigned sizes[] = {row->d, row->a, row->b, row->c};
    size_t n;

    substituted(body, sizeof(body), row->text);
    n = (size_t)snprintf(text, bytes,
                         ".version 8.0\n.target sm_80\n.address_size 64\n"
                         ".visible .entry run(.param .u64 out, .param .u64 in)\n{\n"
                         ".reg .b64 o, i, t;\n.reg .b32 x;\n.reg .pred p;\n");
    for (int k = 0; k < 4; k++)
        if (sizes[k] != 0)
            n += (size_t)snprintf(text + n, bytes - n, ".reg .b%u %%r%c;\n", sizes[k] * 8,
                                  "dabc"[k]);
    n += (size_t)snprintf(text + n, bytes - n,
                          "ld.param.u64 o, [out];\nld.param.u64 i, [in];\n"
                          "mov.u32 x, %%tid.x;\nmul.wide.u32 t, x, 8;\nadd.s64 o, o, t;\n"
                          "mul.wide.u32 t, x, 24;\nadd.s64 i, i, t;\n");
    for (int k = 1; k < 4; k++)
        if (sizes[k] != 0)
            n += (size_t)snprintf(text + n, bytes - n, "ld.global.u%u %%r%c, [i+%d];\n",
                                  sizes[k] * 8, "dabc"[k], (k - 1) * 8);
    snprintf(text + n, bytes - n, "%s\nst.global.u%u [o], %%rd;\nret;\n}\n", body, row->d * 8);
}

static uint64_t cut(uint64_t value, unsigned bytes)
{
    return bytes == 8 ? value : value & (((uint64_t)1 << (8 * bytes)) - 1);
}

static bool is_nan(const struct row *row, uint64_t bits)
{
    switch (row->kind) {
    case 'e':
    case 'f':
    case 'n':
        return row->d == 4 && isnan(f32(bits));
    case 'd':
        return row->d == 8 && isnan(f64(bits));
    case 'h':
        return row->d == 2 && isnan(f16(bits));
    default:
        return false;
    }
}

static bool agrees(const struct row *row, uint64_t got, uint64_t want)
{
    if (got == want || (is_nan(row, got) && is_nan(row, want)))
        return true;
    if (row->kind == 'h' && row->d == 4) /* pairs: NaN by half */
        return (cut(got, 2) == cut(want, 2) ||
                (isnan(f16(cut(got, 2))) && isnan(f16(cut(want, 2))))) &&
               (got >> 16 == want >> 16 || (isnan(f16(got >> 16)) && isnan(f16(want >> 16))));
    if (row->ulps == 0)
        return false;
    return llabs((int64_t)(int32_t)got - (int32_t)want) <= (int64_t)row->ulps;
}

static void row_checked(const struct row *row)
{
    static uint64_t in[N][3];
    static uint64_t out[N];
    char text[2048];
    cudaLibrary_t library;
    cudaKernel_t kernel;
    void *device_in;
    void *device_out;

    seed = 42;
    for (unsigned i = 0; i < N; i++)
        for (int k = 0; k < 3; k++)
            in[i][k] = operand(row->kind, draw() % 64);
    kernel_text(row, text, sizeof(text));
    must(cudaLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    if (cudaLibraryGetKernel(&kernel, library, "run") != cudaSuccess)
        fail_msg("%s: %s", row->text, sim_last_finding());
    must(cudaMalloc(&device_in, sizeof(in)));
    must(cudaMalloc(&device_out, sizeof(out)));
    must(cudaMemset(device_out, 0, sizeof(out)));
    must(cudaMemcpy(device_in, in, sizeof(in), cudaMemcpyHostToDevice));
    void *arguments[] = {&device_out, &device_in};
    must(cudaLaunchKernel((const void *)kernel, (dim3){1, 1, 1}, (dim3){N, 1, 1}, arguments, 0,
                          NULL));
    must(cudaMemcpy(out, device_out, sizeof(out), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        uint64_t a = cut(in[i][0], row->a == 0 ? 8 : row->a);
        uint64_t b = cut(in[i][1], row->b == 0 ? 8 : row->b);
        uint64_t c = cut(in[i][2], row->c == 0 ? 8 : row->c);
        uint64_t want = cut(row->reference(a, b, c), row->d);
        uint64_t got = cut(out[i], row->d);
        if (!agrees(row, got, want)) {
            wrong++;
            print_error("%s of 0x%" PRIx64 ", 0x%" PRIx64 ", 0x%" PRIx64 " is 0x%" PRIx64
                        ", not 0x%" PRIx64 "\n",
                        row->text, a, b, c, want, got);
            break;
        }
    }
    must(cudaFree(device_in));
    must(cudaFree(device_out));
    must(cudaLibraryUnload(library));
}

static void every_instruction_computes_what_it_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        row_checked(&rows[i]);
    assert_int_equal(wrong, 0);
    assert_int_equal(sim_open(NULL), 0);
}

static void refused(const char *body, const char *words)
{
    char text[1024];
    cudaLibrary_t library;
    cudaKernel_t kernel;

    sim_reset();
    snprintf(text, sizeof(text),
             ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry run()\n{\n"
             ".reg .b64 d, a;\n.reg .b32 x, y, z;\n%s\nret;\n}\n",
             body);
    must(cudaLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    assert_int_equal(cudaLibraryGetKernel(&kernel, library, "run"), cudaErrorSymbolNotFound);
    assert_contains(sim_last_finding(), words);
    must(cudaLibraryUnload(library));
}

static void what_is_not_known_is_refused_in_words(void **state)
{
    (void)state;
    refused("tex.2d.v4.f32.s32 {x, y, z, x}, [a, {x, y}];", "tex");
    refused("add.frob.s32 x, y, z;", "modifier .frob");
    refused("add.s32 x, y, d;", "has 8 bytes, 4 are read");
    refused("add.s32 x, y, w;", "kind that no value has");
    refused("mov.u32 x, %nonsense;", "register %nonsense");
    refused("cp.async.cg.shared.global [x], [a], 8;", "cp.async of this form");
    refused("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned is not known");
    refused("bra nowhere;", "label 'nowhere' is nowhere");
    sim_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_computes_what_it_says),
        cmocka_unit_test(what_is_not_known_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
