/* A mem_source for tests: real pages of this process, counted, and a switch that makes it refuse.
 *
 * Memory without a commit behind it cannot be touched (SIGSEGV), so a test that stays alive has
 * used committed bytes only.  Threads: any, but for the switches, set before the threads start.
 */
#ifndef TESTS_SUPPORT_FAKE_SOURCE_H
#define TESTS_SUPPORT_FAKE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "memory/mem_source.h"

struct fake_source {
    struct mem_source source; /* first: give &fake.source away */
    uint64_t total_bytes;     /* commits beyond it are refused; what query() answers */
    atomic_int refuse_after;  /* so many commits succeed, later ones are refused; -1: none */
    bool refuse_reserve;
    _Atomic uint64_t reserved_bytes;
    _Atomic uint64_t committed_bytes;
    _Atomic uint64_t commits, decommits;
};

void fake_source_init(struct fake_source *fake, uint64_t total_bytes);
/* Fails the test when ranges or pages were not given back. */
void fake_source_deinit(struct fake_source *fake);

#endif
