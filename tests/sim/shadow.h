/* One bit for each byte of memory: whether it was ever written.
 *
 * Blocks of a kernel run on several threads, and two of them may write bytes whose marks share a
 * byte: such a byte is changed atomically, whole ones are stored.
 */
#ifndef SLUICE_TESTS_SIM_SHADOW_H
#define SLUICE_TESTS_SIM_SHADOW_H

#include "space.h"

void shadow_set(const struct span *span, uint64_t address, size_t bytes);
void shadow_clear(const struct span *span, uint64_t address, size_t bytes);
/* False, and the first address that was not written. */
bool shadow_all_set(const struct span *span, uint64_t address, size_t bytes, uint64_t *out_first);
/* What is marked at `from` is marked at `to`; a span without a shadow is all written. */
void shadow_copy(const struct span *to_span, uint64_t to, const struct span *from_span,
                 uint64_t from, size_t bytes);

#endif
