/* The configuration of a model: read, derived from the file, checked against it.
 *
 *   config.pbtxt or JSON override ──> ModelConfig ──┐
 *   network (what the file declares) ───────────────┴─> checked, completed ModelConfig + rules
 *
 * Names, types and dims are compared with the file; what the configuration leaves out is filled in
 * from it.  Fields that sluice does not honour are named: warned about or refused (fields.def).
 */
#ifndef MODELS_MODEL_CONFIG_H
#define MODELS_MODEL_CONFIG_H

#include "batch/batcher.h"
#include "engine/engine.h"
#include "proto/model_config.pb-c.h"

/* Rows for a model whose file allows batches and whose configuration gives no max_batch_size. */
enum { DERIVED_MAX_BATCH_SIZE = 32 };
/* The largest max_batch_size that a configuration may ask for. */
enum { MAX_BATCH_SIZE = 1 << 20 };

/* Reads FOLDER/config.pbtxt, or `json` when it is not NULL.  Neither: an empty configuration.
 * *out_batch_given: it sets max_batch_size, be it to 0.  Checks it by itself: fields, policies,
 * names.  The caller destroys it. */
MUST_CHECK enum status model_config_read(const char *folder, const char *model, const char *json,
                                         Inference__ModelConfig **out_config, bool *out_batch_given,
                                         struct error *err);
void model_config_destroy(Inference__ModelConfig *config); /* NULL is fine */
Inference__ModelConfig *model_config_copy(const Inference__ModelConfig *config);

/* Completes the configuration from the network and checks the two against each other.
 * Without `batch_given` max_batch_size and dynamic_batching are derived. */
MUST_CHECK enum status model_config_complete(Inference__ModelConfig *config, bool batch_given,
                                             const char *model, const struct network *network,
                                             struct error *err);
/* Why a completed configuration has no batch dimension. */
void model_config_explain_no_batch(const Inference__ModelConfig *config, bool batch_given,
                                   const struct network *network, char *text, size_t room);
/* Takes batching out of a derived configuration that did not prove it: dims get their first one
 * back.  What dynamic_batching says of queues stays. */
MUST_CHECK enum status model_config_drop_batch(Inference__ModelConfig *config,
                                               const struct network *network, struct error *err);

/* Fields that are set but not honoured. */
enum field_action { FIELD_HONOURED, FIELD_PARTLY, FIELD_WARNED, FIELD_REFUSED };
/* The row for a path like "input.format"; false: there is none. */
bool model_config_field(const char *path, enum field_action *out_action, const char **out_reason);
/* Refuses by name, or warns in the log. */
MUST_CHECK enum status model_config_check_fields(const Inference__ModelConfig *config,
                                                 const char *model, struct error *err);

/* The queue's rules out of the configuration.  Lists come from `arena`. */
MUST_CHECK enum status model_config_queue(const Inference__ModelConfig *config, struct arena *arena,
                                          struct queue_config *out_queue, struct error *err);
/* Whether the configuration asks for requests to be run together. */
bool model_config_asks_for_batching(const Inference__ModelConfig *config);

enum dtype dtype_from_config(Inference__DataType type);

#endif
