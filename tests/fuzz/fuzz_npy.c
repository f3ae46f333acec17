/* .npy files, as sluicectl reads them. */
#include <stdlib.h>

#include "ctl.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct npy npy;
    char why[256];

    if (npy_parse(data, bytes, &npy, why))
        free(npy.bytes);
    return 0;
}
