/* Does a row of a batch depend on the rows beside it?
 *
 * Some nodes give it away: a sum, a maximum, a scale over dimension 0.  Running rows together and
 * apart may not show it, since it can take other contents than those that were tried.
 *
 * Two rows run together and apart (models/proof.h) give away whatever mixes neighbours.  What they
 * cannot give away is what begins with a third row: arithmetic on the number of rows, a branch,
 * rows moved along dimension 0.  This looks for those in a model's graph, and errs on the side of
 * doubt.
 */
#ifndef GRAPH_ROWS_H
#define GRAPH_ROWS_H

#include "graph/graph.h"

/* True in doubt, also when malloc refuses.  Dimension 0 of every input counts rows. */
bool graph_may_mix_rows(const struct graph *graph);

/* The first node that the outputs need and that makes one row out of several; NULL: none that is
 * certain to.  Dimension 0 of every input counts rows.  (row_places.c) */
const struct node *graph_find_row_mixer(const struct graph *graph);
/* A Slice, Pad or Gather that may leave other rows in dimension 0 of in[0], or in another order. */
bool node_moves_rows(const struct node *node);

#endif
