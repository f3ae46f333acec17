/* Every range is known with what is mapped in it, so that a release takes the right number out of
 * the sum whoever forgot what.  Delays and the hog's file are looked at without the lock. */
#include "device/faulty_source.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/list.h"

struct range {
    struct list link;
    char *base;
    size_t bytes;
    uint64_t mapped;
};

struct faults { /* 0: not asked for */
    uint64_t map_n, map_every, map_above;
    int64_t slow_us;
    uint64_t size;
    uint64_t hog;
    int64_t hog_period_us;
    char hog_path[256]; /* "": none */
};

struct faulty_source {
    struct mem_source source;
    struct mem_source_ops ops;
    struct mem_source *behind;
    pthread_mutex_t lock;
    /* under lock */
    struct faults faults;
    struct list ranges;
    struct faulty_source_counts counts;
};

static struct faulty_source *of(struct mem_source *source)
{
    return CONTAINER_OF(source, struct faulty_source, source);
}

/* ---- words ---- */

struct unit {
    const char *name;
    uint64_t factor;
};
static const struct unit sizes[] = {{"", 1},        {"K", 1 << 10},           {"M", 1 << 20},
                                    {"G", 1 << 30}, {"T", (uint64_t)1 << 40}, {NULL, 0}};
static const struct unit times[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}, {NULL, 0}};
static const struct unit counts[] = {{"", 1}, {NULL, 0}};

/* A whole number above 0 with one of the units, up to `end` ('\0': the end of the text). */
static bool read_amount(const char *text, char end, const struct unit *units, uint64_t *out_amount)
{
    char *rest;
    unsigned long long number;
    size_t length;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    number = strtoull(text, &rest, 10);
    length = end == '\0' ? strlen(rest) : strcspn(rest, (char[]){end, '\0'});
    for (; units->name != NULL; units++) {
        if (strlen(units->name) != length || strncmp(units->name, rest, length) != 0)
            continue;
        if (errno != 0 || number == 0 || number > UINT64_MAX / 2 / units->factor)
            return false;
        *out_amount = number * units->factor;
        return true;
    }
    return false;
}

static bool read_hog(struct faults *faults, const char *text)
{
    const char *slash = strchr(text, '/');
    uint64_t period;

    if (text[0] == '/') {
        if (strlen(text) >= sizeof(faults->hog_path))
            return false;
        strcpy(faults->hog_path, text);
        return true;
    }
    if (slash == NULL)
        return read_amount(text, '\0', sizes, &faults->hog);
    if (!read_amount(text, '/', sizes, &faults->hog) ||
        !read_amount(slash + 1, '\0', times, &period))
        return false;
    faults->hog_period_us = (int64_t)period;
    return true;
}

static bool read_word(struct faults *faults, const char *word)
{
    const struct {
        const char *key;
        const struct unit *units;
        uint64_t *amount;
    } keys[] = {
        {"map:n=", counts, &faults->map_n},
        {"map:every=", counts, &faults->map_every},
        {"map:above=", sizes, &faults->map_above},
        {"size=", sizes, &faults->size},
    };
    uint64_t slow;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strncmp(word, keys[i].key, strlen(keys[i].key)) == 0)
            return read_amount(word + strlen(keys[i].key), '\0', keys[i].units, keys[i].amount);
    if (strncmp(word, "hog=", 4) == 0)
        return read_hog(faults, word + 4);
    if (strncmp(word, "map:slow=", 9) != 0 || !read_amount(word + 9, '\0', times, &slow))
        return false;
    faults->slow_us = (int64_t)slow;
    return true;
}

static enum status read_words(struct faults *faults, const char *words, struct error *err)
{
    char copy[1024], *next = NULL;

    if (strlen(words) >= sizeof(copy))
        return error_set(err, STATUS_INVALID, FAULT_VARIABLE " has more than %zu characters",
                         sizeof(copy) - 1);
    strcpy(copy, words);
    for (char *word = strtok_r(copy, " ,", &next); word != NULL; word = strtok_r(NULL, " ,", &next))
        if (!read_word(faults, word))
            return error_set(err, STATUS_INVALID,
                             FAULT_VARIABLE
                             " has '%.100s'; allowed are map:n=N, map:every=N, map:above=SIZE, "
                             "map:slow=TIME, size=SIZE, hog=SIZE, hog=SIZE/TIME and hog=/PATH",
                             word);
    return STATUS_OK;
}

/* ---- the hog ---- */

static uint64_t read_hog_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char text[64] = "";
    uint64_t bytes = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%63s", text) != 1 || !read_amount(text, '\0', sizes, &bytes))
        bytes = 0;
    (void)fclose(file);
    return bytes;
}

static uint64_t hog_bytes(struct faulty_source *faulty)
{
    struct faults faults;

    pthread_mutex_lock(&faulty->lock);
    faults = faulty->faults;
    pthread_mutex_unlock(&faulty->lock);
    if (faults.hog_path[0] != '\0')
        return read_hog_file(faults.hog_path);
    if (faults.hog_period_us > 0 && clock_now_us() / faults.hog_period_us % 2 == 1)
        return 0;
    return faults.hog;
}

/* ---- ranges ---- */

static struct range *find_range(struct faulty_source *faulty, const void *base)
{
    struct range *range;

    LIST_FOR_EACH (range, &faulty->ranges, struct range, link)
        if ((const char *)base >= range->base && (const char *)base < range->base + range->bytes)
            return range;
    return NULL;
}

static enum status reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    struct faulty_source *faulty = of(source);
    struct range *range = calloc(1, sizeof(*range));
    enum status status;
    void *base;

    if (range == NULL)
        return STATUS_NO_MEMORY;
    status = faulty->behind->ops->reserve(faulty->behind, bytes, &base);
    if (status != STATUS_OK) {
        free(range);
        return status;
    }
    range->base = base;
    range->bytes = bytes;
    pthread_mutex_lock(&faulty->lock);
    list_append(&faulty->ranges, &range->link);
    pthread_mutex_unlock(&faulty->lock);
    *out_base = base;
    return STATUS_OK;
}

static void release(struct mem_source *source, void *base, size_t bytes)
{
    struct faulty_source *faulty = of(source);
    struct range *range;

    faulty->behind->ops->release(faulty->behind, base, bytes);
    pthread_mutex_lock(&faulty->lock);
    range = find_range(faulty, base);
    assert(range != NULL);
    faulty->counts.mapped_bytes -= range->mapped;
    list_remove(&range->link);
    pthread_mutex_unlock(&faulty->lock);
    free(range);
}

/* ---- maps ---- */

static void delay(struct faulty_source *faulty)
{
    const struct timespec time = {.tv_sec = faulty->faults.slow_us / 1000000,
                                  .tv_nsec = faulty->faults.slow_us % 1000000 * 1000};

    if (faulty->faults.slow_us > 0)
        (void)nanosleep(&time, NULL);
}

/* Lock held. */
static bool is_refused(const struct faulty_source *faulty, size_t bytes, uint64_t hog)
{
    const struct faults *faults = &faulty->faults;
    uint64_t number = faulty->counts.maps;

    if (number == faults->map_n)
        return true;
    if (faults->map_every > 0 && number % faults->map_every == 0)
        return true;
    if (faults->map_above > 0 && bytes > faults->map_above)
        return true;
    return faults->size > 0 && faulty->counts.mapped_bytes + bytes + hog > faults->size;
}

/* Books the map or refuses it; what is booked is really mapped next. */
static bool begin_map(struct faulty_source *faulty, void *base, size_t bytes)
{
    uint64_t hog = hog_bytes(faulty);
    bool refused;

    pthread_mutex_lock(&faulty->lock);
    faulty->counts.maps++;
    refused = is_refused(faulty, bytes, hog);
    if (refused) {
        faulty->counts.refused++;
    } else {
        find_range(faulty, base)->mapped += bytes;
        faulty->counts.mapped_bytes += bytes;
    }
    pthread_mutex_unlock(&faulty->lock);
    return !refused;
}

static void end_map(struct faulty_source *faulty, void *base, size_t bytes)
{
    pthread_mutex_lock(&faulty->lock);
    find_range(faulty, base)->mapped -= bytes;
    faulty->counts.mapped_bytes -= bytes;
    pthread_mutex_unlock(&faulty->lock);
}

static enum status commit(struct mem_source *source, void *base, size_t bytes)
{
    struct faulty_source *faulty = of(source);
    enum status status;

    delay(faulty);
    if (!begin_map(faulty, base, bytes))
        return STATUS_NO_MEMORY;
    status = faulty->behind->ops->commit(faulty->behind, base, bytes);
    if (status != STATUS_OK)
        end_map(faulty, base, bytes);
    return status;
}

static void populate_through(struct mem_source *source, void *base, size_t bytes)
{
    struct mem_source *behind = of(source)->behind;

    behind->ops->populate(behind, base, bytes);
}

static void decommit(struct mem_source *source, void *base, size_t bytes)
{
    struct faulty_source *faulty = of(source);

    delay(faulty);
    faulty->behind->ops->decommit(faulty->behind, base, bytes);
    end_map(faulty, base, bytes);
}

static enum status query(struct mem_source *source, uint64_t *out_free, uint64_t *out_total)
{
    struct faulty_source *faulty = of(source);
    uint64_t hog = hog_bytes(faulty), free_bytes, total, held;

    if (faulty->faults.size == 0) {
        TRY(faulty->behind->ops->query(faulty->behind, &free_bytes, &total));
        *out_free = free_bytes > hog ? free_bytes - hog : 0;
        *out_total = total;
        return STATUS_OK;
    }
    pthread_mutex_lock(&faulty->lock);
    held = faulty->counts.mapped_bytes + hog;
    pthread_mutex_unlock(&faulty->lock);
    *out_total = faulty->faults.size;
    *out_free = faulty->faults.size > held ? faulty->faults.size - held : 0;
    return STATUS_OK;
}

static enum status write_through(struct mem_source *source, void *to, const void *from,
                                 size_t bytes)
{
    struct mem_source *behind = of(source)->behind;

    return behind->ops->write(behind, to, from, bytes);
}

static enum status read_through(struct mem_source *source, void *to, const void *from, size_t bytes)
{
    struct mem_source *behind = of(source)->behind;

    return behind->ops->read(behind, to, from, bytes);
}

static uint64_t trim(struct mem_source *source, uint64_t keep_bytes)
{
    struct mem_source *behind = of(source)->behind;

    return behind->ops->trim(behind, keep_bytes);
}

/* What the source behind leaves out stays left out. */
static struct mem_source_ops make_ops(const struct mem_source *behind)
{
    return (struct mem_source_ops){.reserve = reserve,
                                   .release = release,
                                   .commit = commit,
                                   .populate =
                                       behind->ops->populate == NULL ? NULL : populate_through,
                                   .decommit = decommit,
                                   .query = query,
                                   .write = behind->ops->write == NULL ? NULL : write_through,
                                   .read = behind->ops->read == NULL ? NULL : read_through,
                                   .trim = behind->ops->trim == NULL ? NULL : trim};
}

/* ---- life ---- */

enum status faulty_source_create(struct mem_source *behind, const char *words,
                                 struct mem_source **out_source, struct error *err)
{
    struct faulty_source *faulty = calloc(1, sizeof(*faulty));
    enum status status;

    if (faulty == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a faulty device");
    status = read_words(&faulty->faults, words, err);
    if (status != STATUS_OK) {
        free(faulty);
        return status;
    }
    faulty->ops = make_ops(behind);
    faulty->source = (struct mem_source){
        .ops = &faulty->ops, .page_bytes = behind->page_bytes, .moves = behind->moves};
    faulty->behind = behind;
    pthread_mutex_init(&faulty->lock, NULL);
    list_init(&faulty->ranges);
    *out_source = &faulty->source;
    return STATUS_OK;
}

void faulty_source_destroy(struct mem_source *source)
{
    struct faulty_source *faulty;

    if (source == NULL)
        return;
    faulty = of(source);
    assert(list_is_empty(&faulty->ranges));
    pthread_mutex_destroy(&faulty->lock);
    free(faulty);
}

void faulty_source_set_hog(struct mem_source *source, uint64_t bytes)
{
    struct faulty_source *faulty = of(source);

    pthread_mutex_lock(&faulty->lock);
    faulty->faults.hog = bytes;
    faulty->faults.hog_period_us = 0;
    faulty->faults.hog_path[0] = '\0';
    pthread_mutex_unlock(&faulty->lock);
}

void faulty_source_read(struct mem_source *source, struct faulty_source_counts *out_counts)
{
    struct faulty_source *faulty = of(source);

    pthread_mutex_lock(&faulty->lock);
    *out_counts = faulty->counts;
    pthread_mutex_unlock(&faulty->lock);
}
