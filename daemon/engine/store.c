/* Packings that took long to find, in files: FOLDER/<hash>.packing.
 *
 *   magic, version   the planner's: another version's files are not looked at
 *   count, hash      what was packed: sizes and lifetimes, in order
 *   peak, searched   the result, and how long it was searched for
 *   check            a sum over header and offsets
 *   offsets          one per buffer
 *
 * What a packing is good for is told by its buffers alone, so they are the key: two models with the
 * same lifetimes share a file, and a model whose file changed but whose lifetimes did not keeps its
 * own.  A file is a proposal: it is checked as if a stranger had written it (no overlap, the peak
 * as stated), so a damaged, foreign or colliding one costs a line in the log and nothing else.
 * Files appear whole or not at all: written beside, then renamed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/internal.h"
#include "graph/planner.h"

#define LOG_COMPONENT "engine"
#include "observe/log.h"

enum { STORE_VERSION = 2, PATH_BYTES = 4096, NAME_BYTES = 48 };

struct header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order; /* 0x01020304 as this machine writes it */
    uint64_t count;
    uint64_t hash[2];
    uint64_t peak_bytes;
    int64_t searched_us;
    uint64_t check;
};

static const struct header EMPTY = {
    .magic = "SLPACK\r\n", .version = STORE_VERSION, .byte_order = 0x01020304};

/* ---- names ---- */

static uint64_t mix(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0x9fb21c651e98df25);
    return sum ^ sum >> 29;
}

static void hash_buffers(const struct plan_buffer *buffers, size_t count, uint64_t hash[2])
{
    hash[0] = mix(STORE_VERSION, count);
    hash[1] = ~hash[0];
    for (size_t i = 0; i < count; i++) {
        uint64_t life = (uint64_t)buffers[i].first << 32 | buffers[i].last;

        hash[0] = mix(mix(hash[0], buffers[i].bytes), life);
        hash[1] = mix(mix(hash[1], life), buffers[i].bytes);
    }
}

static uint64_t check_sum(const struct header *header, const uint64_t *offsets)
{
    uint64_t sum = mix(mix(header->peak_bytes, (uint64_t)header->searched_us), header->count);

    for (uint64_t i = 0; i < header->count; i++)
        sum = mix(sum, offsets[i]);
    return sum;
}

static void name_file(const uint64_t hash[2], char name[NAME_BYTES])
{
    (void)snprintf(name, NAME_BYTES, "%016" PRIx64 "%016" PRIx64 ".packing", hash[0], hash[1]);
}

/* ---- reading ---- */

/* Header and offsets; the file has exactly their size. */
static bool read_packing(int file, const struct header *wanted, struct header *header,
                         uint64_t *offsets)
{
    struct stat facts;

    return fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) &&
           (uint64_t)facts.st_size == sizeof(*header) + wanted->count * sizeof(*offsets) &&
           file_read_all(file, header, sizeof(*header)) &&
           memcmp(header->magic, wanted->magic, sizeof(header->magic)) == 0 &&
           header->version == wanted->version && header->byte_order == wanted->byte_order &&
           header->count == wanted->count &&
           memcmp(header->hash, wanted->hash, sizeof(header->hash)) == 0 &&
           file_read_all(file, offsets, wanted->count * sizeof(*offsets)) &&
           check_sum(header, offsets) == header->check;
}

/* Sets the offsets if they are a packing of the stated peak. */
static enum status take_packing(int file, const struct header *wanted, struct plan_buffer *buffers,
                                struct kept_packing *out_kept, struct error *err)
{
    uint64_t *offsets = calloc(wanted->count, sizeof(*offsets));
    enum status status = STATUS_INVALID;
    struct header header;

    if (offsets == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to read it");
    if (!read_packing(file, wanted, &header, offsets)) {
        free(offsets);
        return error_set(err, STATUS_INVALID, "it is not what was written there");
    }
    for (size_t i = 0; i < wanted->count; i++)
        buffers[i].offset = offsets[i];
    free(offsets);
    status = planner_check(buffers, wanted->count, header.peak_bytes, err);
    if (status == STATUS_OK)
        *out_kept = (struct kept_packing){.peak_bytes = header.peak_bytes,
                                          .searched_us = header.searched_us};
    return status;
}

enum status store_find(const char *folder, struct plan_buffer *buffers, size_t count,
                       struct kept_packing *out_kept)
{
    struct header wanted = EMPTY;
    struct error err = {0};
    char name[NAME_BYTES], path[PATH_BYTES];
    enum status status;
    int file, length;

    wanted.count = count;
    hash_buffers(buffers, count, wanted.hash);
    name_file(wanted.hash, name);
    length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (length <= 0 || length >= PATH_BYTES)
        return STATUS_NOT_FOUND;
    file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return STATUS_NOT_FOUND;
    status = take_packing(file, &wanted, buffers, out_kept, &err);
    close(file);
    if (status == STATUS_OK)
        return STATUS_OK;
    log_warn("packing '%s': %s, ignoring", path, err.text);
    return STATUS_NOT_FOUND;
}

/* ---- writing ---- */

static bool write_file(const char *folder, const struct header *header, const uint64_t *offsets)
{
    const struct file_piece pieces[] = {{header, sizeof(*header)},
                                        {offsets, header->count * sizeof(*offsets)}};
    char name[NAME_BYTES];

    name_file(header->hash, name);
    return file_write_whole(folder, name, ".packing.", pieces, 2);
}

void store_keep(const char *folder, const struct plan_buffer *buffers, size_t count,
                const struct kept_packing *kept)
{
    struct header header = EMPTY;
    uint64_t *offsets = calloc(count, sizeof(*offsets));

    if (offsets == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        offsets[i] = buffers[i].offset;
    header.count = count;
    header.peak_bytes = kept->peak_bytes;
    header.searched_us = kept->searched_us;
    header.check = check_sum(&header, offsets);
    hash_buffers(buffers, count, header.hash);
    (void)mkdir(folder, 0750);
    if (!write_file(folder, &header, offsets))
        log_warn("packings cannot be kept in '%s': %s, ignoring", folder, strerror(errno));
    free(offsets);
}
