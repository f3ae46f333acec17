/* POST …/infer: the first two bytes tell where the JSON ends (0xFFFF: no binary part). */
#include "fuzz_infer.h"

#include "serve/codec/json_infer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t json_size;

    if (size < 2)
        return 0;
    json_size = (size_t)data[0] << 8 | data[1];
    fuzz_decode(data + 2, size - 2, json_size == 0xFFFF ? SIZE_MAX : json_size, json_infer_decode);
    return 0;
}
