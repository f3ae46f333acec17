/* Members of JSON documents that need not be there. */
#include "ctl.h"

uint64_t json_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) && json_number_value(value) > 0
               ? (uint64_t)json_number_value(value)
               : 0;
}

const char *json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}
