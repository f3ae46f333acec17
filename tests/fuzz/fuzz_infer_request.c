/* ModelInferRequest in protobuf's wire form. */
#include "fuzz_infer.h"

#include "serve/codec/infer_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (infer_request_raw_offset(data, size) > size)
        abort();
    fuzz_decode(data, size, SIZE_MAX, infer_request_decode);
    return 0;
}
