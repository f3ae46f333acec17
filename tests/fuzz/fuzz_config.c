/* The configuration file: whatever it holds, it is read or refused with a sentence, and what was
 * read dumps to a text that reads back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "fuzz.h"

static void check_dump(const struct config_set *set)
{
    struct config_set *back = NULL;
    struct error err;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    assert(to != NULL);
    config_dump(set, to);
    fclose(to);
    if (bytes < 100000 && config_read_text("dump", text, bytes, &back, &err) != STATUS_OK)
        assert(strstr(err.text, "a line of") != NULL); /* a list grown over many lines */
    config_destroy(back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct config_set *set = NULL;
    struct error err = {0};

    if (config_read_text("fuzz", (const char *)data, bytes, &set, &err) == STATUS_OK)
        check_dump(set);
    else
        assert(set == NULL && err.text[0] != '\0');
    config_destroy(set);
    return 0;
}
