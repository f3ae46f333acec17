/* What the files upgrade_*.c share: making constants, attributes and nodes for a rewritten form. */
#ifndef ONNX_UPGRADE_H
#define ONNX_UPGRADE_H

#include "onnx/internal.h"

typedef enum status (*upgrade_fn)(struct form *form, struct error *err);

/* An operator whose forms below opset `before` are rewritten by fn.  UPGRADE_ALWAYS: every form,
 * because something in it must be checked or put in order whatever the opset. */
enum { UPGRADE_ALWAYS = 1 << 20 };
struct upgrade {
    const char *op; /* of ai.onnx */
    int before;
    upgrade_fn fn;
};
extern const struct upgrade upgrade_table[]; /* ends with op NULL; rows of one op oldest first */

/* Constants of the graph; NULL when malloc refuses. */
struct value *upgrade_ints(struct form *form, size_t count, const int64_t *values);
struct value *upgrade_scalar_int(struct form *form, int64_t value);
struct value *upgrade_floats(struct form *form, size_t count, const float *values);
/* A scalar of the type of `like` (float when that is not known). */
MUST_CHECK enum status upgrade_scalar_like(struct form *form, float number,
                                           const struct value *like, struct value **out_value,
                                           struct error *err);

struct raw_attr upgrade_attr_int(const char *name, int64_t value);
struct raw_attr upgrade_attr_text(const char *name, const char *text);
/* Adds one to the form, in the place of one of that name. */
void upgrade_set(struct form *form, struct raw_attr attr);
/* Takes an integer away from the form; `absent` when it was not given. */
int64_t upgrade_take_int(struct form *form, const char *name, int64_t absent);

/* Builds one node of the newest form in front of the form. */
enum { UPGRADE_INPUTS = 16, UPGRADE_ATTRS = 3 };
struct upgrade_node {
    const char *op;
    size_t inputs;
    struct value *in[UPGRADE_INPUTS];
    size_t attrs;
    struct raw_attr attr[UPGRADE_ATTRS];
    struct value *out; /* NULL: a new one */
};
MUST_CHECK enum status upgrade_add(struct form *form, const struct upgrade_node *node,
                                   struct value **out_value, struct error *err);
/* Makes room so that in[inputs - 1] exists; new ones are left out. */
void upgrade_grow(struct form *form, size_t inputs);

/* upgrade_inputs.c: attributes that became inputs */
enum status upgrade_clip(struct form *form, struct error *err);
enum status upgrade_pad(struct form *form, struct error *err);
enum status upgrade_slice(struct form *form, struct error *err);
enum status upgrade_split_attr(struct form *form, struct error *err);
enum status upgrade_split_count(struct form *form, struct error *err);
enum status upgrade_axes(struct form *form, struct error *err);
enum status upgrade_top_k(struct form *form, struct error *err);
enum status upgrade_dft(struct form *form, struct error *err);
enum status upgrade_upsample(struct form *form, struct error *err);
enum status upgrade_resize_10(struct form *form, struct error *err);
enum status upgrade_resize(struct form *form, struct error *err);

/* upgrade_quantized.c: quantised operators of com.microsoft that are lowered; others stay. */
enum status upgrade_quantized(struct form *form, struct error *err);

/* zip_map.c: the scores in the place of the maps; see zip_map_check(). */
enum status upgrade_zip_map(struct form *form, struct error *err);

/* upgrade_meaning.c: forms that meant something else */
enum status upgrade_softmax(struct form *form, struct error *err);
enum status upgrade_broadcast(struct form *form, struct error *err);
enum status upgrade_prelu(struct form *form, struct error *err);
enum status upgrade_batch_normalization(struct form *form, struct error *err);
enum status upgrade_dropout(struct form *form, struct error *err);
enum status upgrade_group_normalization(struct form *form, struct error *err);
enum status upgrade_grid_sample(struct form *form, struct error *err);
enum status upgrade_roi_align(struct form *form, struct error *err);
enum status upgrade_gemm(struct form *form, struct error *err);
enum status upgrade_recurrent(struct form *form, struct error *err);
enum status upgrade_scatter(struct form *form, struct error *err);
enum status upgrade_scan(struct form *form, struct error *err);

#endif
