/* Dimensions of a model's inputs that its file leaves open and its operators do not. */
#ifndef GRAPH_DEMAND_H
#define GRAPH_DEMAND_H

#include "graph/graph.h"

/* `shapes`: one per input of the graph.  Dimensions that are SHAPE_UNKNOWN there get what a weight
 * behind the input asks for: the channels of a convolution, the depth of a product.  What no weight
 * decides stays open; so does all when malloc refuses. */
void graph_fill_demands(const struct graph *graph, struct shape *shapes);

#endif
