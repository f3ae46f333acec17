/* What a fuzz target defines: see libFuzzer's documentation. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Never fails; a fault shows as a crash or a sanitizer's report. */
__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t *data,
                                                                  size_t bytes);

#endif
