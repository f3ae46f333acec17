/* Statistics of memory as tables that people know from torch.cuda. */
#ifndef CTL_SUMMARY_H
#define CTL_SUMMARY_H

#include <jansson.h>
#include <stdio.h>

/* As torch.cuda.memory_summary() prints it.  `answer`: the document of MemoryStats. */
void summary_print(const json_t *answer, FILE *to);
/* "allocated_bytes.all.current  1234" …: the flat keys of torch.cuda.memory_stats(), for the
 * device, then for each model with its name before them. */
void stats_print(const json_t *answer, FILE *to);

#endif
