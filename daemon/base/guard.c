#include "base/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* `base` is written last when a slot is taken and first when it is left, so that whoever finds the
 * same base before and after has read the size that belongs to it. */
struct slot {
    _Atomic uintptr_t base; /* 0: free */
    _Atomic size_t bytes;
    atomic_bool is_broken;
};

static struct slot slots[GUARD_SLOTS];
static atomic_uint used_slots; /* none behind these was ever taken */
static struct sigaction former;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER; /* never held while bytes are used */

static struct slot *find(uintptr_t address)
{
    unsigned count = atomic_load_explicit(&used_slots, memory_order_acquire);

    for (unsigned i = 0; i < count; i++) {
        uintptr_t base = atomic_load_explicit(&slots[i].base, memory_order_acquire);
        size_t bytes = atomic_load_explicit(&slots[i].bytes, memory_order_acquire);

        if (base != 0 && address >= base && address - base < bytes &&
            atomic_load_explicit(&slots[i].base, memory_order_acquire) == base)
            return &slots[i];
    }
    return NULL;
}

/* mmap() as the kernel has it: the library's is not promised to be callable here. */
static bool put_zeros(const struct slot *slot)
{
    long mapped = syscall(SYS_mmap, atomic_load(&slot->base), atomic_load(&slot->bytes),
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    return mapped != -1;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    struct slot *slot = info->si_code > 0 ? find((uintptr_t)info->si_addr) : NULL;

    (void)context;
    if (slot != NULL) {
        atomic_store(&slot->is_broken, true);
        if (put_zeros(slot)) {
            errno = saved;
            return;
        }
    }
    /* Not ours: it happens again, or is sent again, and finds the former handler. */
    (void)sigaction(SIGBUS, &former, NULL);
    if (info->si_code <= 0)
        (void)raise(number);
    errno = saved;
}

/* Asked each time: a library may have put a handler of its own in its place. */
static bool install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction now;

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) != 0)
        return false;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_bus_error)
        return true;
    former = now;
    return sigaction(SIGBUS, &action, NULL) == 0;
}

static enum status add(void *base, size_t bytes, unsigned *out_slot)
{
    unsigned count = atomic_load(&used_slots), i;

    if (!install())
        return STATUS_IO;
    for (i = 0; i < count && atomic_load(&slots[i].base) != 0;)
        i++;
    if (i == GUARD_SLOTS)
        return STATUS_NO_MEMORY;
    atomic_store(&slots[i].is_broken, false);
    atomic_store(&slots[i].bytes, bytes);
    atomic_store(&slots[i].base, (uintptr_t)base);
    if (i == count)
        atomic_store_explicit(&used_slots, count + 1, memory_order_release);
    *out_slot = i;
    return STATUS_OK;
}

enum status guard_add(void *base, size_t bytes, unsigned *out_slot)
{
    enum status status;

    pthread_mutex_lock(&adding);
    status = add(base, bytes, out_slot);
    pthread_mutex_unlock(&adding);
    return status;
}

bool guard_is_whole(unsigned slot)
{
    return !atomic_load(&slots[slot].is_broken);
}

void guard_remove(unsigned slot)
{
    atomic_store(&slots[slot].base, 0);
}
