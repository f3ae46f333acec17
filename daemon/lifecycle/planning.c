#include "lifecycle/planning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "": nowhere. */
static void find_folder(const char *wanted, const char *name, char folder[PLANNING_FOLDER_BYTES])
{
    const char *cache = secure_getenv("CACHE_DIRECTORY");
    int length;

    if (strcmp(wanted, "none") == 0)
        length = 0;
    else if (strcmp(wanted, "auto") != 0)
        length = snprintf(folder, PLANNING_FOLDER_BYTES, "%s", wanted);
    else if (cache == NULL || cache[0] == '\0')
        length = 0;
    else
        length = snprintf(folder, PLANNING_FOLDER_BYTES, "%.*s/%s", (int)strcspn(cache, ":"), cache,
                          name);
    if (length <= 0 || length >= PLANNING_FOLDER_BYTES)
        folder[0] = '\0';
}

struct network_planning planning_read(const struct config *config,
                                      char folder[PLANNING_FOLDER_BYTES])
{
    const char *mode = config->models.planner;
    struct network_planning planning = {.mode = strcmp(mode, "quick") == 0      ? PLANNING_QUICK
                                                : strcmp(mode, "thorough") == 0 ? PLANNING_THOROUGH
                                                                                : PLANNING_AUTO,
                                        .budget_us = config->models.planner_budget};

    find_folder(config->models.plan_cache_dir, "plans", folder);
    planning.folder = folder[0] != '\0' ? folder : NULL;
    return planning;
}

const char *planning_kernel_folder(const struct config *config, char folder[PLANNING_FOLDER_BYTES])
{
    find_folder(config->device.kernel_cache_dir, "kernels", folder);
    return folder[0] != '\0' ? folder : NULL;
}

enum status planning_open_device(const struct config *config, struct device **out_device,
                                 struct error *err)
{
    char folder[PLANNING_FOLDER_BYTES];
    const struct device_config wanted = {
        .name = config->device.device,
        .lanes = config->device.lanes,
        .threads = config->device.threads,
        .precision = config->device.precision,
        .cache_folder = planning_kernel_folder(config, folder),
    };

    return device_open(&wanted, out_device, err);
}
