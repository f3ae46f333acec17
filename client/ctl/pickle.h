/* JSON documents as Python pickles, for tools that read nothing else (torch.cuda._memory_viz,
 * pytorch.org/memory_viz).
 *
 * Protocol 2 with plain values only: dict, list, str, int, float, bool, None.  No memo and no
 * classes, so that the reader of the browser's memory_viz knows every opcode.
 */
#ifndef CTL_PICKLE_H
#define CTL_PICKLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* An array of two under the name `tuple_key` (may be NULL) becomes a tuple.  False: the stream has
 * failed, or a text is longer than a pickle of this protocol takes. */
bool pickle_write(const json_t *document, const char *tuple_key, FILE *to);

#endif
