/* ZipMap: class labels beside the columns of a classifier's scores, as a sequence of maps.
 *
 * No protocol of inference carries maps, and exporters that can leave it out give the scores
 * themselves under the name that the maps would have (skl2onnx: zipmap=False).  So a model that
 * ends in it gives its scores, column by column in the order of the labels.  Anywhere else the maps
 * would be something that is computed with, and the model is refused. */
#include <string.h>

#include "onnx/upgrade.h"

struct zip_map {
    struct zip_map *next;
    const struct value *scores;
    size_t labels;
    const char *node;
};

/* How many labels there are; 0: not one list of them. */
static size_t count_labels(const struct form *form)
{
    const struct raw_attr *ints = attrs_find(&form->attrs, "classlabels_int64s");
    const struct raw_attr *strings = attrs_find(&form->attrs, "classlabels_strings");

    if ((ints == NULL) == (strings == NULL))
        return 0;
    return ints != NULL ? ints->ints.count : strings->strings.count;
}

enum status upgrade_zip_map(struct form *form, struct error *err)
{
    struct reader *reader = form->scope->reader;
    const size_t labels = count_labels(form);
    struct zip_map *zip_map;

    if (form->scope->parent != NULL)
        return error_set(err, STATUS_UNSUPPORTED, "it is supported in the main graph only");
    if (form->inputs != 1 || form->in[0] == NULL || form->outputs != 1 || form->out[0] == NULL)
        return error_set(err, STATUS_INVALID, "it must have one input and one output");
    if (labels == 0)
        return error_set(err, STATUS_INVALID, "it needs one list of class labels");
    zip_map = arena_take(&reader->arena, sizeof(*zip_map));
    if (zip_map == NULL)
        return reader_no_memory(err);
    *zip_map = (struct zip_map){reader->zip_maps, form->out[0], labels, form->name};
    reader->zip_maps = zip_map;
    form->op = "Identity";
    form->domain = "";
    form->opset = OPSET_NEWEST;
    form->attrs.count = 0;
    return STATUS_OK;
}

bool zip_map_declare(const struct reader *reader, const struct value *value, struct value *facts)
{
    for (const struct zip_map *i = reader->zip_maps; i != NULL; i = i->next)
        if (i->scores == value) {
            facts->dtype = DTYPE_FLOAT;
            facts->shape = shape_make(2, (const int64_t[]){SHAPE_UNKNOWN, (int64_t)i->labels});
            facts->shape_known = true;
            return true;
        }
    return false;
}

enum status zip_map_check(const struct reader *reader, struct error *err)
{
    for (const struct zip_map *i = reader->zip_maps; i != NULL; i = i->next)
        if (i->scores->users > (i->scores->is_output ? 1U : 0U))
            return error_set(err, STATUS_UNSUPPORTED,
                             "node '%.100s' (ZipMap): its sequence of maps is supported as an "
                             "output of the model, which gives the scores, not as the input of "
                             "another node; export the model without it (skl2onnx: zipmap=False)",
                             i->node);
    return STATUS_OK;
}
