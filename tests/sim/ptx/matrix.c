#include "matrix.h"

#include "narrow.h"

#include <math.h>
#include <string.h>

void matrix_multiply(const struct matrix *a, const struct matrix *b, const struct matrix *c,
                     struct matrix *d)
{
    d->rows = a->rows;
    d->columns = b->columns;
    for (unsigned row = 0; row < d->rows; row++)
        for (unsigned column = 0; column < d->columns; column++) {
            double sum = c->values[row * d->columns + column];
            bool good = c->good[row * d->columns + column];
            for (unsigned k = 0; k < a->columns; k++) {
                sum += a->values[row * a->columns + k] * b->values[k * b->columns + column];
                good = good && a->good[row * a->columns + k] && b->good[k * b->columns + column];
            }
            d->values[row * d->columns + column] = sum;
            d->good[row * d->columns + column] = good;
        }
}

bool whole_warp(struct warp *warp, const struct op *op, uint32_t mask)
{
    if (mask == UINT32_MAX)
        return true;
    fault(warp, op, ~mask, PTX_FAILED,
          "an instruction of the whole warp is run by some of its lanes only (0x%08x)", mask);
    return false;
}

unsigned element_bits(enum type type)
{
    return type_bytes(type) * 8;
}

double element_value(const struct warp *warp, struct operand operand, enum type type, int lane,
                     unsigned element)
{
    unsigned bits = element_bits(type);
    uint64_t value = 0;

    if (bits == 64) {
        memcpy(&value, (char *)reg(warp, operand) + (size_t)lane * 8, 8);
        return (double)bits_value(type, value);
    }
    value = ((const uint32_t *)reg(warp, operand))[lane] >> (element * bits);
    if (bits < 32)
        value &= ((uint64_t)1 << bits) - 1;
    if (type == TYPE_TF32)
        value &= 0xFFFFE000; /* the rest of the register is ignored */
    if (type_is_float(type))
        return (double)bits_value(type, value);
    unsigned unused = 64 - bits;
    return type_is_signed(type) ? (double)((int64_t)(value << unused) >> unused) : (double)value;
}

void element_set(const struct warp *warp, struct operand operand, enum type type, int lane,
                 unsigned element, double value)
{
    unsigned bits = element_bits(type);
    uint64_t narrow;

    if (type_is_float(type))
        narrow = value_bits(type, round_format(value, format_of(type), ROUND_NEAREST, false));
    else
        narrow = (uint64_t)(int64_t)value;
    if (bits == 64) {
        memcpy((char *)reg(warp, operand) + (size_t)lane * 8, &narrow, 8);
        return;
    }
    uint32_t *at = &((uint32_t *)reg(warp, operand))[lane];
    uint32_t field = bits == 32 ? UINT32_MAX : ((1u << bits) - 1) << (element * bits);
    *at = (*at & ~field) | ((uint32_t)narrow << (element * bits) & field);
}
