/* Small polynomials in x and e, linear in e: what an activation spelled out in products and sums
 * amounts to, whatever the order in which an exporter wrote them down. */
#ifndef GRAPH_POLYNOMIAL_H
#define GRAPH_POLYNOMIAL_H

#include <stdbool.h>

enum { POLY_X = 5 };

struct poly {
    double c[POLY_X][2]; /* c[i][j]: of x^i e^j */
};

struct poly poly_number(double number);
struct poly poly_x(void);
struct poly poly_e(void);
struct poly poly_sum(const struct poly *a, const struct poly *b, double factor); /* a + factor b */
/* False when the degree becomes too high. */
bool poly_product(const struct poly *a, const struct poly *b, struct poly *out);
bool poly_is_number(const struct poly *poly, double *out_number);
/* Coefficient by coefficient; `tolerance` relative to the larger coefficients of `want`. */
bool poly_is_near(const struct poly *poly, const struct poly *want, double tolerance);

#endif
