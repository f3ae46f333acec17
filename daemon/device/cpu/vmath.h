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

/* The same of 2^t for t up to 127, to 1e-7 of itself; 0 below 2^-115. */
INLINE vf vexp2_part(vf t)
{
    vf n = vround(t), r = vsub(t, n);
    vf p = vset1(1.3264727e-03f);

    p = vfma(p, r, vset1(9.6715126e-03f));
    p = vfma(p, r, vset1(5.5507337e-02f));
    p = vfma(p, r, vset1(2.4022242e-01f));
    p = vfma(p, r, vset1(6.9314698e-01f));
    p = vfma(p, r, vset1(1.f));
    return vselect_lt(t, vset1(-115.f), vzero(), vscale(p, n));
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
INLINE vf vtimes_sigmoid(vf x, vf t) /* x sigmoid(-t) */
{
    return vselect_lt(vset1(87.3f), t, vmul(x, vzero()), vdiv(x, vadd(vset1(1.f), vexp_fast(t))));
}
INLINE vf vswish(vf x, vf a) /* x sigmoid(a x) */
{
    return vtimes_sigmoid(x, vsub(vzero(), vmul(a, x)));
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
/* x / 2 * (1 + erf(x / sqrt 2)).
 *
 * 1 - erf falls like e^(-x^2 / 2), too fast for a short polynomial.  f(u) = u (3 - u^2) / 2 goes
 * from -1 to 1 and is flat at both: the u with f(f(u)) = erf falls like e^(-x^2 / 8), and one of
 * degree 11 is enough.  Both steps shrink its error.  Here u is scaled so that each f is a
 * multiply-add and a product; at the bound the result is 1 to the bit, with and without FMA, so
 * that beyond it GELU is 0 or x (and NaN of -infinity).
 */
INLINE vf vgelu(vf x)
{
    const float bound = 5.49f;
    vf c = vmin(vset1(bound), vmax(vset1(-bound), x)); /* in this order a NaN passes */
    vf s = vfma(c, c, vset1(bound * bound * -0.5f));
    vf u = vset1(1.2723239901e-10f), h = vmul(x, vset1(0.5f));

    u = vfma(u, s, vset1(1.6519814121e-08f));
    u = vfma(u, s, vset1(-1.6244116011e-06f));
    u = vfma(u, s, vset1(9.1008876624e-05f));
    u = vfma(u, s, vset1(-3.8880835773e-03f));
    u = vfma(u, s, vset1(1.7502016439e-01f));
    u = vmul(u, c);
    u = vmul(u, vfnma(u, u, vset1(1.62008961f)));
    u = vmul(u, vfnma(u, u, vset1(1.88988157f)));
    return vfma(h, u, h);
}
/* x / 2 * (1 + tanh t) = x sigmoid(2 t), t = sqrt(2 / pi) * (x + 0.044715 x^3) */
INLINE vf vgelu_tanh(vf x)
{
    vf factor = vfma(vmul(x, x), vset1(-7.13548163e-2f), vset1(-1.59576912f));

    return vtimes_sigmoid(x, vmul(x, factor));
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
