/* The quick way into a history: names as numbers, found once and then kept by whoever records.
 *
 * An event of a batch is one cache line then, and costs a clock at most.
 */
#ifndef MEMORY_HISTORY_NAMES_H
#define MEMORY_HISTORY_NAMES_H

#include "memory/history.h"

struct history_entry {
    enum mem_event_kind kind;
    uint64_t address, bytes, requested, other;
    uint16_t owner, model, note; /* history_name(); 0: none */
};

/* The number of a name, taken in if it is new; 0 for "" and NULL, and for new ones when the table
 * is full.  It looks through all of them. */
uint16_t history_name(struct history *history, const char *name);
void history_add_entry(struct history *history, const struct history_entry *entry, int64_t now_us);
int64_t history_last_us(const struct history *history); /* the time of the last event */

#endif
