/* model_warmup: requests that the configuration wants to be run before the model is ready. */
#ifndef MODELS_WARMUP_H
#define MODELS_WARMUP_H

#include "models/model_config.h"
#include "models/probe.h"

/* Runs every entry.  `folder` is the model's; data files lie in its folder warmup/. */
MUST_CHECK enum status warmup_run(struct probe *probe, const Inference__ModelConfig *config,
                                  const char *folder, struct error *err);

#endif
