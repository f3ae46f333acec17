#include "graph/polynomial.h"

#include <math.h>

struct poly poly_number(double number)
{
    return (struct poly){.c[0][0] = number};
}

struct poly poly_x(void)
{
    return (struct poly){.c[1][0] = 1};
}

struct poly poly_e(void)
{
    return (struct poly){.c[0][1] = 1};
}

struct poly poly_sum(const struct poly *a, const struct poly *b, double factor)
{
    struct poly sum = *a;

    for (int i = 0; i < POLY_X; i++)
        for (int j = 0; j < 2; j++)
            sum.c[i][j] += factor * b->c[i][j];
    return sum;
}

bool poly_product(const struct poly *a, const struct poly *b, struct poly *out)
{
    struct poly product = {0};

    for (int i = 0; i < POLY_X * 2; i++) {
        for (int k = 0; k < POLY_X * 2; k++) {
            double term = a->c[i / 2][i % 2] * b->c[k / 2][k % 2];
            int x = i / 2 + k / 2, e = i % 2 + k % 2;

            if (term == 0)
                continue;
            if (x >= POLY_X || e > 1)
                return false;
            product.c[x][e] += term;
        }
    }
    *out = product;
    return true;
}

bool poly_is_number(const struct poly *poly, double *out_number)
{
    for (int i = 0; i < POLY_X; i++)
        for (int j = 0; j < 2; j++)
            if (i + j > 0 && poly->c[i][j] != 0)
                return false;
    *out_number = poly->c[0][0];
    return true;
}

bool poly_is_near(const struct poly *poly, const struct poly *want, double tolerance)
{
    for (int i = 0; i < POLY_X; i++)
        for (int j = 0; j < 2; j++)
            if (!(fabs(poly->c[i][j] - want->c[i][j]) <= tolerance * fabs(want->c[i][j])))
                return false;
    return true;
}
