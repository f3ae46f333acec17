/* What the files of sluicectl share.
 *
 *   main.c      options and the table of verbs
 *   verbs.c     verbs that ask one question and print the answer
 *   residency.c sleep, wake, make-room
 *   memory.c    the verb memory and its tables
 *   summary.c   memory --summary, --stats
 *   snapshot.c  memory --snapshot; pickle.c writes pickles
 *   watch.c     memory --watch; chart.c draws
 *   tune.c      tune; advise.c decides
 *   infer.c     infer
 *   bench.c     bench
 *   message.c   calls and their answers
 *   json.c      members of answers
 *   print.c     bytes, times and tables for people
 *   npy.c       .npy files
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sluice/sluice.h"

/* Exit statuses, documented in docs/sluicectl.md. */
enum exit_status {
    EXIT_DONE = 0,
    EXIT_REFUSED = 1,     /* the server answered with an error */
    EXIT_USAGE = 2,       /* the command line */
    EXIT_UNREACHABLE = 3, /* no server there, or it is stopping */
    EXIT_TIMEOUT = 4,
    EXIT_NOT_READY = 5, /* health: alive but not ready */
    EXIT_CONFIG = 78    /* config check: the configuration is bad */
};

struct ctl {
    const char *server;
    bool as_json;
    struct sluice_client *client;
    int argc; /* of the verb: argv[0] is the verb itself */
    char **argv;
};

/* Prints "sluicectl: …" and returns the exit status that fits the error. */
int ctl_fail(const struct sluice_error *error);
int ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum { MOST_SECONDS = 1000000000, MOST_COUNT = 1000000000 };
/* A plain number from 0 to `most` and nothing behind it. */
bool ctl_number(const char *text, double most, double *out_value);

/* ---- message.c ---- */

/* Calls `method` ("sluice.v1.Admin/Memory") and unpacks the reply; 0, or the exit status after
 * having said why.  The reply is freed with protobuf_c_message_free_unpacked(…, NULL). */
int ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **out_reply);
/* The JSON document that the admin service answers to `verb`; 0, or the exit status after having
 * said why.  Freed with json_decref(). */
typedef struct Sluice__V1__AdminRequest Sluice__V1__AdminRequest;
int ctl_admin(struct ctl *ctl, const char *verb, const Sluice__V1__AdminRequest *request,
              json_t **out_answer);
/* Prints the document when JSON was asked for; true then: there is nothing more to print. */
bool ctl_printed_json(const struct ctl *ctl, const json_t *answer);
/* Asks `verb` and shows the answer: as JSON, or by `show`. */
int ctl_ask(struct ctl *ctl, const char *verb, const Sluice__V1__AdminRequest *request,
            void (*show)(const json_t *answer));
uint64_t json_number(const json_t *object, const char *key);  /* 0 when absent or negative */
const char *json_text(const json_t *object, const char *key); /* "" when absent; borrowed */

/* ---- print.c ---- */

enum { TEXT_ROOM = 32 };
const char *text_of_bytes(uint64_t bytes, char text[TEXT_ROOM]); /* "97.5 MiB" */
const char *text_of_us(uint64_t us, char text[TEXT_ROOM]);       /* "12.3 ms" */

struct table; /* collected row by row, printed with columns as wide as they need */
struct table *table_create(size_t columns, const char *const *titles, const char *right_aligned);
void table_add(struct table *table, const char *const *cells); /* copies */
void table_print(struct table *table, FILE *to);               /* and frees it */

/* ---- npy.c ---- */

/* An array with its bytes, dense and in C order.  Freed with free(bytes). */
struct npy {
    const char *datatype; /* the protocol's: "FP32" */
    size_t rank;
    int64_t shape[SLUICE_MAX_RANK];
    void *bytes;
    size_t byte_count;
};
/* Source of the form: numpy.lib.format, versions 1 to 3.  False with one sentence in `why`. */
bool npy_parse(const unsigned char *file, size_t file_bytes, struct npy *out_npy, char why[256]);
bool npy_read(const char *path, struct npy *out_npy, char why[256]);
bool npy_write(const char *path, const struct sluice_tensor *tensor, char why[256]);
size_t datatype_bytes(const char *datatype); /* of one element; 0: unknown or BYTES */

/* ---- verbs ---- */

/* An input as the command line gives it: NAME=@file.npy, =random:1x3x224x224, =zeros:…, =text:….
 * `bytes` to be freed.  False after having said why. */
struct port_info { /* what the server declares of an input */
    const char *name;
    const char *datatype;
    size_t rank;
    int64_t shape[SLUICE_MAX_RANK]; /* -1: open */
};
/* The port that the argument names; NULL after having said why. */
const struct port_info *input_port(const char *argument, const struct port_info *ports,
                                   size_t count);
bool input_parse(const char *argument, const struct port_info *ports, size_t count,
                 struct sluice_tensor *out_tensor, void **out_bytes);
/* The model's inputs by ModelMetadata; 0 or the exit status.  To be freed with free(). */
int fetch_inputs(struct ctl *ctl, const char *model, const char *version,
                 struct port_info **out_ports, size_t *out_count);

int verb_status(struct ctl *ctl);
int verb_health(struct ctl *ctl);
int verb_models(struct ctl *ctl);
int verb_load(struct ctl *ctl);
int verb_unload(struct ctl *ctl);
int verb_memory(struct ctl *ctl);
int verb_empty_cache(struct ctl *ctl);
int verb_plan(struct ctl *ctl);
int verb_tune(struct ctl *ctl);
int verb_stats(struct ctl *ctl);
int verb_config(struct ctl *ctl);
int verb_reload(struct ctl *ctl);
int verb_drain(struct ctl *ctl);
int verb_sleep(struct ctl *ctl);
int verb_wake(struct ctl *ctl);
int verb_make_room(struct ctl *ctl);
int verb_infer(struct ctl *ctl);
int verb_bench(struct ctl *ctl);

#endif
