#include "onnx/names.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 16 };

void names_init(struct names *names, uint64_t seed)
{
    *names = (struct names){.seed = seed};
}

void names_deinit(struct names *names)
{
    free(names->slots);
    names->slots = NULL;
    names->room = 0;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

static uint64_t hash(uint64_t seed, struct bytes name)
{
    uint64_t value = seed ^ name.size;

    for (size_t i = 0; i < name.size; i += 8) {
        uint64_t word = 0;

        memcpy(&word, name.data + i, name.size - i < 8 ? name.size - i : 8);
        value = mix(value ^ word) + seed;
    }
    return mix(value);
}

/* The slot of `name`, or the empty one where it would stand.  There is always an empty one. */
static struct name_slot *probe(const struct names *names, struct bytes name)
{
    size_t i = (size_t)hash(names->seed, name) & (names->room - 1);

    while (names->slots[i].name != NULL) {
        struct name_slot *slot = &names->slots[i];

        if (slot->length == name.size && memcmp(slot->name, name.data, name.size) == 0)
            return slot;
        i = (i + 1) & (names->room - 1);
    }
    return &names->slots[i];
}

void *names_find(const struct names *names, struct bytes name)
{
    const struct name_slot *slot;

    if (names->room == 0)
        return NULL;
    slot = probe(names, name);
    return slot->name == NULL ? NULL : slot->item;
}

static enum status grow(struct names *names)
{
    struct names larger = {.seed = names->seed, .used = names->used};

    larger.room = names->room == 0 ? FIRST_ROOM : names->room * 2;
    larger.slots = calloc(larger.room, sizeof(*larger.slots));
    if (larger.slots == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < names->room; i++) {
        const struct name_slot *slot = &names->slots[i];

        if (slot->name != NULL)
            *probe(&larger, (struct bytes){slot->name, slot->length}) = *slot;
    }
    free(names->slots);
    *names = larger;
    return STATUS_OK;
}

enum status names_add(struct names *names, struct bytes name, void *item)
{
    struct name_slot *slot;

    if (names->used * 4 >= names->room * 3)
        TRY(grow(names));
    slot = probe(names, name);
    if (slot->name != NULL)
        return STATUS_EXISTS;
    *slot = (struct name_slot){name.data, name.size, item};
    names->used++;
    return STATUS_OK;
}
