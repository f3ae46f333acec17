/* What oneDNN was asked and what it said.
 *
 * Threads: any.
 */
#ifndef DEVICE_CPU_ONEDNN_ANSWERS_H
#define DEVICE_CPU_ONEDNN_ANSWERS_H

#include "device/cpu/onednn/onednn.h"

/* False: not asked yet, or forgotten for another question. */
bool onednn_answers_find(const struct onednn_conv_spec *spec, bool *out_is_possible);
void onednn_answers_keep(const struct onednn_conv_spec *spec, bool is_possible);

#endif
