#include "lifecycle/status_line.h"

#include <stdio.h>
#include <string.h>

#include "govern/marks.h"

struct tally {
    unsigned ready, loading, failed;
};

static void count_model(void *arg, const struct model_info *info, struct model *model)
{
    struct tally *tally = arg;

    (void)model;
    tally->ready += info->state == MODEL_READY;
    tally->loading += info->state == MODEL_LOADING;
    tally->failed += info->state == MODEL_UNAVAILABLE && info->reason[0] != '\0' &&
                     strcmp(info->reason, "unloaded") != 0;
}

void status_line(struct repository *repository, struct warden *warden, bool is_starting, char *text,
                 size_t room)
{
    char reserved[MARKS_SIZE_BYTES], budget[MARKS_SIZE_BYTES];
    struct tally tally = {0};
    struct warden_view view;
    char failed[32] = "";

    repository_for_each(repository, count_model, &tally);
    warden_read(warden, &view);
    if (tally.failed > 0)
        snprintf(failed, sizeof(failed), ", %u failed", tally.failed);
    if (is_starting)
        snprintf(text, room, "Loading models (%u ready%s)", tally.ready, failed);
    else
        snprintf(text, room, "Serving %u models%s | memory %s of %s | level %s", tally.ready,
                 failed, marks_size(view.ledger.reserved_bytes, reserved),
                 marks_size(view.ledger.budget_bytes, budget), govern_level_name(view.level));
}
