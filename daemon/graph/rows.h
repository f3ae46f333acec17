/* May a row of a batch depend on the rows beside it in a way that two rows do not show?
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

#endif
