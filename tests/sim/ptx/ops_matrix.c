#include "arms.h"

const struct decoder decode_matrix[] = {{NULL, NULL}};
