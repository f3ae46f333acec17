#include "bodies.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(BODIES_TSAN)
#include <sanitizer/tsan_interface.h>
enum { FIBER_A_THREAD = true };
#else
enum { FIBER_A_THREAD = false }; /* one goes on with the next thread where no barrier comes */
#endif

/* Changing stacks: ucontext's way makes two system calls each time, and a block changes some
 * hundred times at each barrier. */
#if defined(__x86_64__)
struct stack_switch {
    void *top; /* of a stack on which the registers lie that a function must keep */
};
void bodies_switch(void **out_from, void *to);
__asm__(".text\n"
        ".hidden bodies_switch\n"
        ".globl bodies_switch\n"
        ".type bodies_switch, @function\n"
        "bodies_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size bodies_switch, .-bodies_switch\n");

static void stack_begin(struct stack_switch *at, char *stack, size_t bytes, void (*main)(void))
{
    void **top = (void **)(void *)(stack + bytes);

    memset(top - 8, 0, 8 * sizeof(*top)); /* six registers, where to, and nowhere behind that */
    memcpy(&top[-2], &main, sizeof(main));
    at->top = top - 8;
}

static void stack_change(struct stack_switch *from, const struct stack_switch *to)
{
    bodies_switch(&from->top, to->top);
}
#else
#include <ucontext.h>
struct stack_switch {
    ucontext_t context;
};

static void stack_begin(struct stack_switch *at, char *stack, size_t bytes, void (*main)(void))
{
    if (getcontext(&at->context) != 0)
        abort();
    at->context.uc_stack.ss_sp = stack;
    at->context.uc_stack.ss_size = bytes;
    at->context.uc_link = NULL;
    makecontext(&at->context, main, 0);
}

static void stack_change(struct stack_switch *from, const struct stack_switch *to)
{
    (void)swapcontext(&from->context, &to->context);
}
#endif

enum { MOST_THREADS = 1024, STACK_BYTES = 256 << 10 };

struct fiber {
    struct stack_switch at; /* where it was left */
    char *stack;
    void *sanitizer; /* ThreadSanitizer's fiber; AddressSanitizer's false stack */
    uint3 thread;
    bool waits; /* at a barrier */
};

struct bodies_self bodies_self;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over all below */
static struct fiber fibers[MOST_THREADS], caller;
static struct fiber *running;
#if defined(__SANITIZE_ADDRESS__)
static const void *caller_bottom;
static size_t caller_bytes;
#endif
static struct {
    void (*body)(void *arg);
    void *arg;
    unsigned count, next; /* threads of the block; the first that has not begun */
} block;
#if defined(BODIES_TSAN)
/* Threads release `arrived` where they stop and acquire `departed` where they go on; the caller the
 * other way round, once all have stopped.  One address for both would order a thread behind those
 * that went on before it, and hide their races. */
static char arrived, departed;
#endif

/* ---- what the sanitizers are told ---- */

enum side { OF_THREAD, OF_CALLER };

static void tell_stops(enum side side)
{
#if defined(BODIES_TSAN)
    __tsan_release(side == OF_THREAD ? &arrived : &departed);
#endif
    (void)side;
}

static void tell_goes_on(enum side side)
{
#if defined(BODIES_TSAN)
    __tsan_acquire(side == OF_THREAD ? &departed : &arrived);
#endif
    (void)side;
}

/* Where a fiber is left for, or begins: the stack it was entered from is always the caller's. */
static void tell_entered(struct fiber *fiber)
{
#if defined(__SANITIZE_ADDRESS__)
    bool entered = fiber != &caller;

    __sanitizer_finish_switch_fiber(fiber->sanitizer, entered ? &caller_bottom : NULL,
                                    entered ? &caller_bytes : NULL);
#endif
    (void)fiber;
}

static void switch_to(struct fiber *to)
{
    struct fiber *from = running;

    running = to;
#if defined(BODIES_TSAN)
    if (to->sanitizer == NULL)
        to->sanitizer = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(to->sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer, to == &caller ? caller_bottom : to->stack,
                                   to == &caller ? caller_bytes : STACK_BYTES);
#endif
    stack_change(&from->at, &to->at);
    tell_entered(from);
}

/* ---- threads of a block ---- */

static uint3 place_of(unsigned index)
{
    const dim3 *size = &bodies_self.threads;

    return (uint3){index % size->x, index / size->x % size->y, index / size->x / size->y};
}

static void run_thread(struct fiber *fiber)
{
    fiber->thread = place_of(block.next++);
    bodies_self.thread = fiber->thread;
    tell_goes_on(OF_THREAD);
    block.body(block.arg);
    tell_stops(OF_THREAD);
}

static void fiber_main(void)
{
    tell_entered(running);
    for (;;) { /* fibers are used again, by the next threads and the next blocks */
        struct fiber *fiber = running;

        do
            run_thread(fiber);
        while (!FIBER_A_THREAD && block.next < block.count);
        fiber->waits = false;
        switch_to(&caller);
    }
}

void bodies_barrier(void)
{
    struct fiber *fiber = running;

    fiber->waits = true;
    tell_stops(OF_THREAD);
    switch_to(&caller);
    bodies_self.thread = fiber->thread;
    tell_goes_on(OF_THREAD);
}

static void make_fiber(struct fiber *fiber)
{
    if (fiber->stack != NULL)
        return;
    fiber->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED) {
        fputs("bodies: no memory for a fiber\n", stderr);
        abort();
    }
    stack_begin(&fiber->at, fiber->stack, STACK_BYTES, fiber_main);
}

/* The threads come up to a barrier or to their end, again and again until all have ended. */
static void run_block(void)
{
    unsigned used = 0;
    bool any;

    block.next = 0;
    while (block.next < block.count) {
        make_fiber(&fibers[used]);
        switch_to(&fibers[used++]);
    }
    do {
        any = false;
        tell_goes_on(OF_CALLER);
        tell_stops(OF_CALLER);
        for (unsigned i = 0; i < used; i++) {
            if (!fibers[i].waits)
                continue;
            fibers[i].waits = false;
            any = true;
            switch_to(&fibers[i]);
        }
    } while (any);
    tell_goes_on(OF_CALLER);
}

void bodies_run(dim3 blocks, dim3 threads, void (*body)(void *arg), void *arg)
{
    pthread_mutex_lock(&lock);
    bodies_self.blocks = blocks;
    bodies_self.threads = threads;
    block.body = body;
    block.arg = arg;
    block.count = threads.x * threads.y * threads.z;
    if (block.count == 0 || block.count > MOST_THREADS) {
        fprintf(stderr, "bodies: a block of %u threads\n", block.count);
        abort();
    }
    running = &caller;
#if defined(BODIES_TSAN)
    caller.sanitizer = __tsan_get_current_fiber();
#endif
    tell_stops(OF_CALLER);
    for (unsigned z = 0; z < blocks.z; z++)
        for (unsigned y = 0; y < blocks.y; y++)
            for (unsigned x = 0; x < blocks.x; x++) {
                bodies_self.block = (uint3){x, y, z};
                run_block();
                tell_stops(OF_CALLER);
            }
    pthread_mutex_unlock(&lock);
}
