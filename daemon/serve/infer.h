/* Inference in a protocol-neutral form: what codecs read, what the endpoint runs, what codecs
 * write. */
#ifndef SERVE_INFER_H
#define SERVE_INFER_H

#include "models/repository.h"
#include "regions/regions.h"
#include "serve/call.h"

/* Where in shared memory a tensor lies: its "shared_memory_…" parameters. */
struct shared_wish {
    bool is_given; /* some of them were */
    bool has_region, has_bytes;
    struct slice region;
    uint64_t offset, bytes;
};

struct infer_input {
    struct slice name;
    enum dtype dtype;
    struct shape shape;
    const uint8_t
        *data; /* dense, little-endian, of any alignment; STRING: length-prefixed elements */
    size_t bytes;
    bool has_data;
    bool is_ready; /* data is aligned and, for STRING, an array of struct bytes already */
    struct shared_wish shared;
    struct region_span span; /* of the region, once it is bound */
    bool is_binary;          /* REST: `bytes` of the binary part */
};

struct infer_output {
    struct slice name;
    int64_t classes; /* > 0: the best so many classes as text */
    bool is_binary;  /* REST: by reference behind the JSON */
    bool has_binary; /* REST: is_binary was said */
    struct shared_wish shared;
    struct region_span span; /* of the region, once it is bound */
};

struct infer_message {
    const char *model_name; /* terminated */
    const char *model_version;
    struct slice id;
    size_t inputs;
    struct infer_input *in;
    size_t outputs; /* 0: all */
    struct infer_output *out;
    uint64_t priority;
    int64_t timeout_us;
    bool has_keep_alive;
    int64_t keep_alive_us;        /* CLOCK_NEVER: for ever */
    bool is_raw;                  /* REST: the body is the one input, of no told type and shape */
    bool binary_data_output;      /* REST: for outputs that do not say */
    struct infer_output *by_port; /* what to do with each of the model's outputs */
};

/* The request is back from the batcher: answers it. */
void infer_finish(struct call *call);

/* A failed message of ModelStreamInfer: turns the failure into a message (error_message and the
 * id), so that the stream goes on.  False: the stream must end. */
bool infer_fail_in_band(struct call *message);

#endif
