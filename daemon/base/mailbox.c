#include "base/mailbox.h"

#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum status mailbox_init(struct mailbox *box)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    if (fd < 0)
        return STATUS_IO;
    atomic_init(&box->newest, NULL);
    atomic_init(&box->sleeping, false);
    box->event_fd = fd;
    return STATUS_OK;
}

void mailbox_deinit(struct mailbox *box)
{
    (void)close(box->event_fd);
    box->event_fd = -1;
}

void mailbox_put(struct mailbox *box, struct mail *mail)
{
    struct mail *newest = atomic_load_explicit(&box->newest, memory_order_relaxed);

    do
        mail->next = newest;
    while (!atomic_compare_exchange_weak(&box->newest, &newest, mail));
    /* After the put, so that a receiver that goes to sleep now sees either the message or our wake.
     */
    if (atomic_exchange(&box->sleeping, false)) {
        uint64_t one = 1;

        (void)!write(box->event_fd, &one, sizeof(one));
    }
}

struct mail *mailbox_take_all(struct mailbox *box)
{
    struct mail *mail, *oldest = NULL;

    atomic_store(&box->sleeping, false);
    mail = atomic_exchange(&box->newest, NULL);
    while (mail != NULL) {
        struct mail *next = mail->next;

        mail->next = oldest;
        oldest = mail;
        mail = next;
    }
    return oldest;
}

bool mailbox_sleep(struct mailbox *box)
{
    atomic_store(&box->sleeping, true);
    if (atomic_load(&box->newest) == NULL)
        return true;
    atomic_store(&box->sleeping, false);
    return false;
}

void mailbox_rise(struct mailbox *box)
{
    if (atomic_load_explicit(&box->sleeping, memory_order_relaxed))
        atomic_store(&box->sleeping, false);
}

int mailbox_fd(const struct mailbox *box)
{
    return box->event_fd;
}

void mailbox_clear(struct mailbox *box)
{
    uint64_t count;

    (void)!read(box->event_fd, &count, sizeof(count));
}

void mailbox_wait(struct mailbox *box, int64_t until_us)
{
    struct pollfd wait = {.fd = box->event_fd, .events = POLLIN};
    int64_t left_us = until_us - clock_now_us();

    if (!mailbox_sleep(box))
        return;
    if (until_us == CLOCK_NEVER) {
        (void)poll(&wait, 1, -1);
    } else if (left_us > 0) {
        struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};

        (void)ppoll(&wait, 1, &left, NULL);
    }
    atomic_store(&box->sleeping, false);
    mailbox_clear(box);
}
