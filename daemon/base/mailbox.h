/* Work handed from any thread to one.
 *
 * A lock-free stack that the receiver takes whole and turns round, so messages arrive in the order
 * they were put.  The sender wakes the receiver only when that one said it was about to sleep:
 *
 *     receiver: mailbox_sleep() -> true: nothing came, wait on mailbox_fd() (or mailbox_wait())
 *     sender:   mailbox_put()   -> writes the eventfd only if the receiver sleeps
 *
 * Ownership: a message belongs to the sender until put, to the receiver once taken.
 * Threads:   put from any; take, sleep, wait from the one receiver.
 */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct mail {
    struct mail *next;
};

struct mailbox {
    _Atomic(struct mail *) newest;
    atomic_bool sleeping;
    int event_fd;
};

/* STATUS_IO when no eventfd can be had. */
MUST_CHECK enum status mailbox_init(struct mailbox *box);
/* The box must be empty. */
void mailbox_deinit(struct mailbox *box);

void mailbox_put(struct mailbox *box, struct mail *mail);
/* All messages, oldest first, or NULL.  Marks the receiver as awake. */
struct mail *mailbox_take_all(struct mailbox *box);
/* Says that the receiver will wait on the descriptor; false when something is there already. */
bool mailbox_sleep(struct mailbox *box);
/* The receiver is up and will look: senders need not wake it.  Ends with the next mailbox_sleep().
 */
void mailbox_rise(struct mailbox *box);
/* Readable while a wake is due; the receiver clears it with mailbox_clear(). */
int mailbox_fd(const struct mailbox *box);
void mailbox_clear(struct mailbox *box);
/* Blocks until a message came or `until_us` (clock_now_us time, CLOCK_NEVER for none) passed. */
void mailbox_wait(struct mailbox *box, int64_t until_us);

#endif
