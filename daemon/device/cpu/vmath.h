/* exp, log, sigmoid, SiLU, tanh, erf, GELU and their kin on vectors, within a few ulp of the true
 * value.  Polynomials are minimax fits made for this file.  A lane never depends on its neighbours.
 */
#ifndef DEVICE_CPU_VMATH_H
#define DEVICE_CPU_VMATH_H

#include "device/cpu/simd.h"

/* e^r for |r| ≤ ln 2 / 2 */
INLINE vf vexp_core(vf r)
{
    vf q = vset1(1.395171741e-03f);

    q = vfma(q, r, vset1(8.369598538e-03f));
    q = vfma(q, r, vset1(4.166618735e-02f));
    q = vfma(q, r, vset1(1.666651219e-01f));
    q = vfma(q, r, vset1(5.000000000e-01f));
    return vadd(vfma(vmul(r, r), q, r), vset1(1.f));
}
/* x - n ln 2; the high part of ln 2 has 16 bits, so that n times it is exact */
INLINE vf vexp_reduce(vf x, vf n)
{
    return vfnma(n, vset1(1.42860677e-6f), vfnma(n, vset1(0.693145752f), x));
}

/* e^x for -87.3 ≤ x ≤ 88.3, clamped outside: never 0, never infinite.  NaN stays NaN. */
INLINE vf vexp_fast(vf x)
{
    x = vmin(vset1(88.3f), vmax(vset1(-87.3f), x));
    vf n = vround(vmul(x, vset1(1.44269504f)));

    return vscale(vexp_core(vexp_reduce(x, n)), n);
}
/* e^x for parts of a sum that holds a 1: below e^-80 they are 0.  A masked score would make
 * denormal numbers, of which each costs the processor a hundred cycles, here and in what follows.
 */
INLINE vf vexp_part(vf x)
{
    return vselect_lt(x, vset1(-80.f), vzero(), vexp_fast(x));
}

/* The whole range: denormals, 0, infinity, NaN. */
INLINE vf vexp(vf x)
{
    vf c = vmin(vset1(89.f), vmax(vset1(-104.f), x)); /* in this order a NaN passes */
    vf n = vround(vmul(c, vset1(1.44269504f)));
    vf h = vround(vmul(n, vset1(0.5f)));

    return vscale(vscale(vexp_core(vexp_reduce(c, n)), h), vsub(n, h));
}

/* log(1 + f) for 1 + f in [sqrt(1/2), sqrt 2), without its first term f */
INLINE vf vlog1p_tail(vf f)
{
    vf z = vmul(f, f);
    vf p = vset1(6.7466385663e-02f);

    p = vfma(p, f, vset1(-1.1675651371e-01f));
    p = vfma(p, f, vset1(1.1888162792e-01f));
    p = vfma(p, f, vset1(-1.2405589223e-01f));
    p = vfma(p, f, vset1(1.4219552279e-01f));
    p = vfma(p, f, vset1(-1.6667996347e-01f));
    p = vfma(p, f, vset1(2.0002119243e-01f));
    p = vfma(p, f, vset1(-2.5000008941e-01f));
    p = vfma(p, f, vset1(3.3333313465e-01f));
    return vfma(vmul(p, f), z, vmul(z, vset1(-0.5f)));
}
/* Natural logarithm of normal positive x only. */
INLINE vf vlog_normal(vf x)
{
    vi e = vi_sra(vi_sub(vi_from_f(x), vi_set1(0x3F3504F3)), 23); /* x / 2^e in [sqrt½, sqrt 2) */
    vf m = vf_from_i(vi_sub(vi_from_f(x), vi_sll(e, 23)));
    vf f = vsub(m, vset1(1.f)), n = vf_convert(e);
    vf tail = vfma(n, vset1(-2.12194440e-4f), vlog1p_tail(f));

    return vfma(n, vset1(0.693359375f), vadd(f, tail));
}
/* The whole range: denormals, 0 to -infinity, negative to NaN. */
INLINE vf vlog(vf x)
{
    vf tiny = vset1(0x1p-126f), infinite = vset1(__builtin_inff());
    vf scaled = vselect_lt(x, tiny, vmul(x, vset1(0x1p23f)), x);
    vf y = vlog_normal(scaled);

    y = vselect_lt(x, tiny, vsub(y, vset1(15.9423851f)), y);
    y = vselect_lt(x, infinite, y, x); /* infinity and NaN stay */
    y = vselect_lt(vzero(), x, y, vselect_nan(x, x, vset1(__builtin_nanf(""))));
    return vselect_lt(vabs(x), vset1(0x1p-149f), vsub(vzero(), infinite), y);
}
/* log(1 + u) for 0 ≤ u ≤ 1: 1 + u is rounded, the lost part c counts as c / (1 + u). */
INLINE vf vlog1p_unit(vf u)
{
    vf s = vadd(vset1(1.f), u);
    vf lost = vsub(u, vsub(s, vset1(1.f)));

    return vadd(vlog_normal(s), vdiv(lost, s));
}
/* log(1 + e^x) without overflow. */
INLINE vf vsoftplus(vf x)
{
    vf y = vlog1p_unit(vexp_fast(vsub(vzero(), vabs(x))));

    /* far on the negative side the clamp of vexp_fast would show */
    y = vselect_lt(x, vset1(-15.f), vexp(x), vadd(y, vmax(vzero(), x)));
    return vselect_nan(x, x, y);
}

/* Below -87.3, where it would be a denormal number, a sigmoid is 0: what multiplies it then becomes
 * 0 too, however large, but for an infinity, which becomes NaN. */
INLINE vf vsigmoid(vf x)
{
    vf t = vsub(vzero(), x);

    return vselect_lt(vset1(87.3f), t, vzero(), vdiv(vset1(1.f), vadd(vset1(1.f), vexp_fast(t))));
}
INLINE vf vswish(vf x, vf a) /* x sigmoid(a x) */
{
    vf t = vsub(vzero(), vmul(a, x));

    return vselect_lt(vset1(87.3f), t, vmul(x, vzero()), vdiv(x, vadd(vset1(1.f), vexp_fast(t))));
}

INLINE vf vtanh(vf x)
{
    vf a = vabs(x), s = vmul(x, x);
    vf p = vset1(-5.603901111e-03f);

    p = vfma(p, s, vset1(2.055170760e-02f));
    p = vfma(p, s, vset1(-5.371410400e-02f));
    p = vfma(p, s, vset1(1.333115250e-01f));
    p = vfma(p, s, vset1(-3.333327174e-01f));
    p = vfma(vmul(x, s), p, x);
    vf e = vexp_fast(vadd(a, a));
    vf b = vsub(vset1(1.f), vdiv(vset1(2.f), vadd(e, vset1(1.f))));

    return vselect_lt(a, vset1(0.625f), p, vcopysign(b, x));
}

INLINE vf verf(vf x)
{
    vf a = vmin(vset1(3.95f), vabs(x)); /* erf(3.95) rounds to 1; a NaN passes */
    vf s = vmul(a, a);
    vf p = vset1(7.889120025e-05f);

    p = vfma(p, s, vset1(-8.020841633e-04f));
    p = vfma(p, s, vset1(5.189535208e-03f));
    p = vfma(p, s, vset1(-2.685444430e-02f));
    p = vfma(p, s, vset1(1.128360033e-01f));
    p = vfma(p, s, vset1(-3.761262596e-01f));
    p = vfma(p, s, vset1(1.283791661e-01f));
    p = vfma(p, x, x);
    vf q = vset1(1.354188316e-05f);
    q = vfma(q, a, vset1(-3.462021123e-04f));
    q = vfma(q, a, vset1(3.738806816e-03f));
    q = vfma(q, a, vset1(-2.396864444e-02f));
    q = vfma(q, a, vset1(1.064802706e-01f));
    q = vfma(q, a, vset1(6.350017786e-01f));
    q = vfma(q, a, vset1(1.128685951e+00f));
    vf b = vsub(vset1(1.f), vexp_fast(vsub(vzero(), vmul(a, q))));

    return vselect_lt(a, vset1(1.f), p, vcopysign(b, x));
}
/* x / 2 * (1 + erf(x / sqrt 2)).  1 + erf hides what erf loses near 0, so one form of it will do.
 */
INLINE vf vgelu(vf x)
{
    vf h = vmul(x, vset1(0.5f));
    vf a = vmin(vset1(3.95f), vabs(vmul(x, vset1(0.707106781f))));
    vf q = vset1(2.109371416e-05f); /* erf(a) = 1 - e^(-a q) */

    q = vfma(q, a, vset1(-2.200160671e-04f));
    q = vfma(q, a, vset1(7.290107314e-04f));
    q = vfma(q, a, vset1(1.066879719e-03f));
    q = vfma(q, a, vset1(-2.008863911e-02f));
    q = vfma(q, a, vset1(1.031773239e-01f));
    q = vfma(q, a, vset1(6.365338564e-01f));
    q = vfma(q, a, vset1(1.128386021e+00f));
    vf y = vmul(a, q), n = vround(vmul(y, vset1(-1.44269504f)));
    vf e = vscale(vexp_core(vexp_reduce(vsub(vzero(), y), n)), n);

    return vfma(h, vcopysign(vsub(vset1(1.f), e), x), h);
}
INLINE vf vgelu_tanh(vf x) /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) */
{
    vf h = vmul(x, vset1(0.5f));
    vf inner = vfma(vmul(vmul(x, x), vset1(0.044715f)), x, x);

    return vfma(h, vtanh(vmul(inner, vset1(0.797884561f))), h);
}
INLINE vf vmish(vf x) /* x tanh(log(1 + e^x)) = x u / (u + 2), u = e^x (e^x + 2) */
{
    /* 0 where vexp_fast clamps: a large negative x would show it */
    vf e = vselect_lt(x, vset1(-87.3f), vzero(), vexp_fast(vmin(vset1(20.f), x)));
    vf u = vmul(e, vadd(e, vset1(2.f)));

    return vmul(x, vdiv(u, vadd(u, vset1(2.f))));
}
/* e^x - 1 for x ≤ 0: exact near zero. */
INLINE vf vexpm1_negative(vf x)
{
    vf c = vmin(vzero(), vmax(vset1(-87.3f), x));
    vf n = vround(vmul(c, vset1(1.44269504f)));
    vf r = vexp_reduce(c, n);
    vf q = vset1(1.395171741e-03f);

    q = vfma(q, r, vset1(8.369598538e-03f));
    q = vfma(q, r, vset1(4.166618735e-02f));
    q = vfma(q, r, vset1(1.666651219e-01f));
    q = vfma(q, r, vset1(5.000000000e-01f));
    vf m = vfma(vmul(r, r), q, r); /* e^r - 1 */
    vf two_n = vscale(vset1(1.f), n);

    return vselect_nan(x, x, vfma(m, two_n, vsub(two_n, vset1(1.f))));
}

#endif
