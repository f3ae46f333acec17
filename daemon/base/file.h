/* Files read and written whole.  Threads: any; nothing is kept between calls. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

struct file_piece {
    const void *bytes;
    size_t count;
};

/* Exactly `bytes` bytes from the descriptor; false: it ended before, or errno says. */
bool file_read_all(int file, void *to, size_t bytes);
/* Makes FOLDER/NAME of the pieces, in order.  Written beside it first (FOLDER/<begun>XXXXXX) and
 * renamed: nobody sees half a file, and of two writers one wins.  False, errno says why: what was
 * there before is there still, and nothing is left beside it. */
bool file_write_whole(const char *folder, const char *name, const char *begun,
                      const struct file_piece *pieces, size_t count);

#endif
