/* Descriptors of the simulated cuDNN: bags of attributes that a table allows, checked when they are
 * finalized.  A part that names another holds a reference to it. */
#ifndef SLUICE_TESTS_SIM_DNN_PART_H
#define SLUICE_TESTS_SIM_DNN_PART_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "element.h"
#include "sim.h"

enum { DNN_RANK = 5, DNN_TENSORS = 12, DNN_OPERATIONS = 4, DNN_ATTRIBUTES = 12 };

struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    void *values; /* owned */
};

struct part {
    uint32_t magic;
    cudnnBackendDescriptorType_t type;
    bool finalized;
    unsigned references;
    size_t held; /* of the device, by a plan */
    size_t count;
    struct attribute attributes[DNN_ATTRIBUTES];
};

/* The part behind a descriptor; NULL, and a finding, when it is none. */
struct part *part_of(cudnnBackendDescriptor_t descriptor, const char *call);
const struct attribute *part_find(const struct part *part, cudnnBackendAttributeName_t name);
/* Its first value; `absent` when it was not set. */
int64_t part_number(const struct part *part, cudnnBackendAttributeName_t name, int64_t absent);
const struct part *part_child(const struct part *part, cudnnBackendAttributeName_t name,
                              int64_t index);
int64_t part_count(const struct part *part, cudnnBackendAttributeName_t name);
/* Replaces an attribute by a copy; no checks. */
cudnnStatus_t part_put(struct part *part, cudnnBackendAttributeName_t name, int64_t count,
                       const void *values, size_t bytes, bool are_parts);
cudnnStatus_t dnn_wrong(const char *call, const char *what);

/* ---- check.c ---- */

/* NULL, or what is wrong with a part that is about to be final. */
const char *part_check(const struct part *part);

/* ---- graph.c: a finalized operation graph, read ---- */

struct tensor {
    int64_t id;
    enum element element;
    size_t rank;
    int64_t sizes[DNN_RANK], strides[DNN_RANK];
    int64_t alignment;
    bool inner;
    bool by_value; /* a float that the host has when it is called */
    float value;
    void *at; /* of the others that are not inner, when it runs */
};

enum operation_kind {
    CONVOLVE,
    CONVOLVE_BACK,
    ADD,
    RELU, /* activations, of one operand … */
    SIGMOID,
    TANH,
    SWISH,
    GELU,
    GELU_TANH, /* … to here */
    POOL_MAX,
    POOL_AVERAGE,
    POOL_AVERAGE_PADDED,
    ATTEND
};

struct operation {
    enum operation_kind kind;
    unsigned x, w, y;  /* indices of tensors; w: weights, or the second operand */
    unsigned v, scale; /* of ATTEND, whose x and w are q and k */
    int64_t pad_begin[DNN_RANK], pad_end[DNN_RANK];
    int64_t stride[DNN_RANK], dilation[DNN_RANK], window[DNN_RANK];
};

struct network {
    size_t tensors, operations;
    struct tensor tensor[DNN_TENSORS];
    struct operation operation[DNN_OPERATIONS];
};

/* The activation of a pointwise mode; ADD: it is none. */
enum operation_kind activation_of(int64_t mode);
/* NULL, and the network, or what is wrong. */
const char *network_read(const struct part *graph, struct network *out_network);
int64_t tensor_count(const struct tensor *tensor);
bool tensor_is_plain(const struct tensor *tensor);

/* ---- heuristic.c: engines ---- */

struct engine {
    int64_t index;
    int32_t notes[4];
    int64_t note_count;
    bool compiles;  /* at run time */
    uint32_t chunk; /* products that are added up before they are added to the sum */
    int64_t workspace_bytes;
};

/* Engines for a network, best first; returns their number. */
size_t engines_for(const struct network *network, cudnnBackendHeurMode_t mode,
                   struct engine engines[8]);
bool engine_find(const struct network *network, int64_t index, struct engine *out_engine);

/* ---- saved.c ---- */

/* A plan as text of plan_text_bytes() characters.  plan_read() is false for what plan_write() did
 * not write. */
size_t plan_text_bytes(void);
void plan_write(const struct network *network, int64_t engine, char *text);
bool plan_read(const char *text, size_t count, struct network *network, struct engine *engine);

/* ---- dnn.c ---- */

/* Whether code for it is compiled when it is made: counted as calls of "cudnnCompile". */
bool plan_compiles(const struct part *plan);

/* ---- execute.c ---- */

struct job {
    struct network network;
    struct engine engine;
    bool tf32;
    void *workspace;
};
void job_run(void *job);

#endif
