/* Runs a fuzz target over every file of a folder, and over every beginning of each small one:
 * what is cut off anywhere must be refused as cleanly as what is whole. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { FILE_BYTES = 4 << 20, CUT_BYTES = 4096 };

/* A copy of its own size, so that a read behind its end is seen. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes == 0 ? 1 : bytes);

    if (copy == NULL)
        abort();
    if (bytes > 0)
        memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static int replay(const char *path)
{
    static uint8_t data[FILE_BYTES];
    FILE *from = fopen(path, "rb");
    size_t bytes;

    if (from == NULL) {
        perror(path);
        return 1;
    }
    bytes = fread(data, 1, sizeof(data), from);
    fclose(from);
    printf("%s: %zu bytes\n", path, bytes);
    fflush(stdout);
    run(data, bytes);
    for (size_t cut = 0; bytes <= CUT_BYTES && cut < bytes; cut++)
        run(data, cut);
    return 0;
}

int main(int argc, char **argv)
{
    const char *folder = argc == 2 ? argv[1] : ".";
    DIR *list = opendir(folder);
    struct dirent *entry;
    unsigned files = 0;
    int failed = 0;
    char path[4096];

    if (list == NULL) {
        perror(folder);
        return 1;
    }
    while ((entry = readdir(list)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        failed |= replay(path);
        files++;
    }
    closedir(list);
    printf("%u files\n", files);
    return files == 0 || failed;
}
