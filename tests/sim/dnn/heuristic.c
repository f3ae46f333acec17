/* Engines of the simulated cuDNN.  They carry the notes that the real ones do, and like the real
 * heuristic this one looks at the number of images: their order of adding differs. */
#include "part.h"

#include <string.h>

enum { MANY_IMAGES = 4, BYTES_AN_IMAGE = 256 };

/* conv [+ z] + bias [relu], in this order: all else is compiled, for images channels last. */
static bool is_precompiled(const struct network *network)
{
    const struct operation *operation = network->operation;
    size_t count = network->operations, adds = 0;

    if (operation[0].kind == CONVOLVE_BACK)
        return count == 1;
    for (size_t i = 1; i < count; i++) {
        const struct tensor *other = &network->tensor[operation[i].w];

        if (operation[i].kind == ADD) {
            bool is_row = other->sizes[0] == 1 && tensor_count(other) == other->sizes[1];
            bool is_last = i + 1 == count || operation[i + 1].kind == RELU;

            adds++;
            if (is_last != is_row && tensor_count(other) > 1)
                return false;
        } else if (operation[i].kind != RELU || i + 1 != count) {
            return false;
        }
    }
    return count == 1 || adds > 0;
}

static struct engine make(int64_t index, uint32_t chunk, int64_t workspace)
{
    return (struct engine){.index = index, .chunk = chunk, .workspace_bytes = workspace};
}

static void note(struct engine *engine, int32_t number)
{
    engine->notes[engine->note_count++] = number;
}

static size_t engines_of_pools(const struct network *network, cudnnBackendHeurMode_t mode,
                               struct engine *engines)
{
    if (mode != CUDNN_HEUR_MODE_FALLBACK || network->operations != 1 ||
        !tensor_is_plain(&network->tensor[network->operation[0].x]))
        return 0;
    engines[0] = make(1, 1, 0);
    return 1;
}

/* All of them compiled; which is first depends on the number of sequences. */
static size_t engines_of_attention(const struct network *network, cudnnBackendHeurMode_t mode,
                                   struct engine *engines)
{
    const struct tensor *q = &network->tensor[network->operation[0].x];
    bool many = q->sizes[0] > MANY_IMAGES;

    if (mode != CUDNN_HEUR_MODE_A || network->operations != 1 || q->sizes[3] % 8 != 0 ||
        q->sizes[3] > 128)
        return 0;
    engines[0] = make(many ? 8 : 9, many ? 4 : 16, 0);
    engines[1] = make(many ? 9 : 8, many ? 16 : 4, q->sizes[0] * BYTES_AN_IMAGE);
    for (size_t i = 0; i < 2; i++) {
        engines[i].compiles = true;
        note(&engines[i], CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    }
    return 2;
}

size_t engines_for(const struct network *network, cudnnBackendHeurMode_t mode,
                   struct engine engines[8])
{
    const struct tensor *x = &network->tensor[network->operation[0].x];
    bool many = x->sizes[0] > MANY_IMAGES;
    int64_t workspace = x->sizes[0] * BYTES_AN_IMAGE;
    size_t count = 0;

    memset(engines, 0, 8 * sizeof(*engines));
    if (network->operation[0].kind == ATTEND)
        return engines_of_attention(network, mode, engines);
    if (network->operation[0].kind >= POOL_MAX)
        return engines_of_pools(network, mode, engines);
    if (mode != CUDNN_HEUR_MODE_A)
        return 0;
    if (!is_precompiled(network) &&
        (x->element == ELEMENT_FLOAT || x->strides[1] != 1 || x->sizes[1] == 1))
        return count;
    engines[count] = make(90, 8, 0);
    engines[count].compiles = true;
    note(&engines[count++], CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    if (!is_precompiled(network))
        return count;
    engines[count] = make(70, 64, 0);
    note(&engines[count++], CUDNN_NUMERICAL_NOTE_WINOGRAD);
    engines[count] = make(60, 64, 0);
    note(&engines[count++], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    engines[count] = make(50, 16, 0);
    note(&engines[count], CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    if (x->element == ELEMENT_FLOAT)
        note(&engines[count], CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    count++;
    engines[count++] = many ? make(44, 4, workspace) : make(11, 32, 0);
    engines[count++] = many ? make(11, 32, 0) : make(44, 4, workspace);
    return count;
}

bool engine_find(const struct network *network, int64_t index, struct engine *out_engine)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    struct engine engines[8];

    for (size_t m = 0; m < 2; m++) {
        size_t count = engines_for(network, modes[m], engines);

        for (size_t i = 0; i < count; i++)
            if (engines[i].index == index) {
                *out_engine = engines[i];
                return true;
            }
    }
    return false;
}
