#include "device/cpu/flat.h"

#include <string.h>

#include "device/cpu/team.h"

enum { PIECE_ELEMENTS = 4096 };

size_t operand_elements(const struct operand *operand, const struct device *device)
{
    size_t bytes =
        layout_bytes(operand->layout, device->channel_block, operand->dtype, &operand->shape);

    return bytes / dtype_bytes(operand->dtype);
}

struct flat flat_make(const struct operand *in, const struct operand *out,
                      const struct device *device)
{
    size_t elements = operand_elements(in, device);
    size_t rows = in->shape.rank > 0 ? (size_t)in->shape.dims[0] : 1;
    struct flat flat = {.rows = 1, .row_elements = elements};
    size_t row = rows > 0 ? elements / rows : 0;

    flat.in_stride = in->outer_stride > 0 ? (size_t)in->outer_stride : row;
    flat.out_stride = out->outer_stride > 0 ? (size_t)out->outer_stride : row;
    if (flat.in_stride != row || flat.out_stride != row) {
        flat.rows = rows;
        flat.row_elements = row;
    }
    return flat;
}

struct walk {
    const struct flat *flat;
    const char *in;
    char *out;
    size_t in_bytes, out_bytes; /* an element */
    size_t pieces_per_row;
    flat_fn fn;
    void *arg;
};

static void walk_member(void *arg, unsigned member, unsigned members)
{
    const struct walk *walk = arg;
    const struct flat *flat = walk->flat;
    size_t from, to;

    team_share(flat->rows * walk->pieces_per_row, member, members, &from, &to);
    for (size_t i = from; i < to;) {
        size_t row = i / walk->pieces_per_row, piece = i % walk->pieces_per_row;
        size_t pieces = walk->pieces_per_row - piece; /* all in this row at once */
        size_t start = piece * PIECE_ELEMENTS, end;

        pieces = pieces < to - i ? pieces : to - i;
        end = start + pieces * PIECE_ELEMENTS;
        end = end < flat->row_elements ? end : flat->row_elements;
        walk->fn(walk->arg, walk->in + (row * flat->in_stride + start) * walk->in_bytes,
                 walk->out + (row * flat->out_stride + start) * walk->out_bytes, end - start);
        i += pieces;
    }
}

void flat_run(const struct flat *flat, const void *in, size_t in_bytes, void *out, size_t out_bytes,
              unsigned threads, double ns_each, flat_fn fn, void *arg)
{
    struct walk walk = {.flat = flat,
                        .in = in,
                        .out = out,
                        .in_bytes = in_bytes,
                        .out_bytes = out_bytes,
                        .pieces_per_row =
                            (flat->row_elements + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS,
                        .fn = fn,
                        .arg = arg};

    team_run(team_size(threads, (double)(flat->rows * flat->row_elements) * ns_each), walk_member,
             &walk);
}

void operand_zero_padding(const struct operand *operand, const struct device *device, void *data)
{
    size_t block = device->channel_block, size = dtype_bytes(operand->dtype);
    size_t channels, used, places, row, stride;

    if (operand->layout != LAYOUT_BLOCKED || shape_count(&operand->shape) == 0)
        return;
    channels = (size_t)operand->shape.dims[1];
    used = channels % block;
    if (used == 0)
        return;
    places = (size_t)shape_product(&operand->shape, 2, operand->shape.rank);
    row = (channels / block + 1) * places * block;
    stride = operand->outer_stride > 0 ? (size_t)operand->outer_stride : row;
    for (size_t n = 0; n < (size_t)operand->shape.dims[0]; n++)
        for (size_t s = 0; s < places; s++) {
            size_t at = n * stride + channels / block * places * block + s * block + used;

            memset((char *)data + at * size, 0, (block - used) * size);
        }
}
