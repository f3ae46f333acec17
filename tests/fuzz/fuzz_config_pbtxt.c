/* config.pbtxt: whatever it holds, it is read or refused with a sentence that names a place, and
 * what was read survives the way through JSON. */
#include <assert.h>
#include <string.h>

#include "fuzz.h"
#include "models/json_format.h"
#include "models/message.h"
#include "models/text_format.h"
#include "proto/model_config.pb-c.h"

static void check_json(const ProtobufCMessage *message)
{
    json_t *json = json_format_write(message), *again;
    ProtobufCMessage *back = NULL;
    struct error err = {0};

    if (json == NULL)
        return; /* a string that is no UTF-8 */
    assert(json_format_read(message->descriptor, json, &back, &err) == STATUS_OK);
    again = json_format_write(back);
    assert(again != NULL);
    json_decref(again);
    message_destroy(back);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ProtobufCMessage *message = NULL;
    struct error err = {0};

    if (text_format_read(&inference__model_config__descriptor, (const char *)data, bytes, "fuzz",
                         &message, &err) == STATUS_OK)
        check_json(message);
    else
        assert(message == NULL && strncmp(err.text, "fuzz:", 5) == 0);
    message_destroy(message);
    return 0;
}
