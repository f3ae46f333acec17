#include "serve/shared.h"

#include <string.h>

#include "serve/internal.h"

struct held_region { /* in the call's arena */
    struct held_region *next;
    struct region *region;
};

bool shared_is_parameter(struct slice key)
{
    return slice_is(key, "shared_memory_region") || slice_is(key, "shared_memory_offset") ||
           slice_is(key, "shared_memory_byte_size");
}

static enum status wrong_kind(const struct shared_parameter *parameter, const char *expected,
                              struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "invalid value of the '%.*s' parameter of %s '%.*s', expected %s",
                     (int)parameter->key.size, parameter->key.data, parameter->what,
                     (int)(parameter->name.size < 100 ? parameter->name.size : 100),
                     parameter->name.data, expected);
}

enum status shared_put(struct shared_wish *wish, const struct shared_parameter *parameter,
                       struct error *err)
{
    wish->is_given = true;
    if (slice_is(parameter->key, "shared_memory_region")) {
        if (!parameter->is_text)
            return wrong_kind(parameter, "a string (string_param)", err);
        wish->region = parameter->text;
        wish->has_region = true;
        return STATUS_OK;
    }
    if (!parameter->is_number || parameter->number < 0)
        return wrong_kind(parameter, "a number of bytes (int64_param)", err);
    if (slice_is(parameter->key, "shared_memory_offset")) {
        wish->offset = (uint64_t)parameter->number;
        return STATUS_OK;
    }
    wish->bytes = (uint64_t)parameter->number;
    wish->has_bytes = true;
    return STATUS_OK;
}

enum status shared_settle(const struct shared_wish *wish, const char *what, struct slice name,
                          struct error *err)
{
    if (!wish->is_given || (wish->has_region && wish->has_bytes))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "%s '%.*s' in shared memory needs both 'shared_memory_region' and "
                     "'shared_memory_byte_size'",
                     what, (int)(name.size < 100 ? name.size : 100), name.data);
}

enum status shared_take(struct call *call, const struct shared_wish *wish, bool writes,
                        struct region_span *out_span, struct error *err)
{
    struct held_region *held = call_take(call, sizeof(*held));
    struct region_name name = {wish->region.data, wish->region.size};

    if (held == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    TRY(region_take(call->server->regions, name, wish->offset, wish->bytes, writes, out_span, err));
    held->region = out_span->region;
    held->next = call->regions;
    call->regions = held;
    return STATUS_OK;
}

enum status shared_check(const struct call *call, struct error *err)
{
    for (const struct held_region *held = call->regions; held != NULL; held = held->next)
        TRY(region_check(held->region, err));
    return STATUS_OK;
}

void shared_give(struct call *call)
{
    struct held_region *next;

    for (struct held_region *held = call->regions; held != NULL; held = next) {
        next = held->next;
        region_give(held->region);
    }
    call->regions = NULL;
}
