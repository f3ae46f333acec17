/* What runs: decoded instructions, and a warp of 32 lanes that runs them in step.
 *
 * A warp has one block of memory, its file.  Every register is an array of 32 lanes in it: 2, 4 or
 * 8 bytes a lane, predicates one bit a lane; constants and special registers (%tid ...) lie in it
 * too, so that an operand is an offset and nothing else.  Beside each register a mask says which
 * lanes have ever written it: the result of an instruction counts as written where all it read was.
 *
 * Lanes that branch apart run one group at a time, the group with the lowest address first; groups
 * that reach the same address join.  Compilers lay code out so that this joins lanes where their
 * paths meet.
 */
#ifndef SLUICE_TESTS_SIM_PTX_WARP_H
#define SLUICE_TESTS_SIM_PTX_WARP_H

#include "ptx.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 32, ALL_LANES = -1 };

struct warp;
struct worker;
struct op;

typedef void op_fn(struct warp *warp, const struct op *op, uint32_t mask);

struct operand {
    uint32_t at;   /* offset in the file */
    uint32_t mark; /* index of its mask of written lanes */
};

/* Where an instruction stands in the sources, for reports. */
struct place {
    uint32_t file; /* number of a .file, 0: none */
    uint32_t line;
    uint32_t ptx_line;
};

enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };

struct op {
    op_fn *fn;
    struct operand d;
    struct operand a;
    struct operand b;
    struct operand c;
    struct operand guard;
    bool guarded;
    bool guard_not;
    bool flip;     /* the predicate read as c is negated */
    uint8_t space; /* of memory */
    uint8_t bytes; /* of one element in memory */
    uint8_t store; /* bytes of a lane of the register */
    uint8_t count; /* elements, or operands in `list` */
    uint8_t kind;  /* the instruction's own: comparison, rounding ... */
    bool is_signed;
    bool wide_address; /* the address register has 64 bits */
    bool second;       /* there is a second result, or a third operand: the instruction's own */
    int64_t offset;    /* added to an address; or an immediate */
    uint32_t target;   /* of a branch */
    uint32_t slot;     /* of a memory instruction: its cache of spans */
    const struct operand *list;
    const void *extra; /* the instruction's own */
    struct place place;
};

/* Bases of the windows that generic addresses of other spaces lie in. */
#define SHARED_WINDOW ((uint64_t)1 << 36)
#define LOCAL_WINDOW  ((uint64_t)1 << 37)
#define PARAM_WINDOW  ((uint64_t)3 << 36)
enum { WINDOW_BITS = 32 };

/* A special register that the kernel reads. */
enum special {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_LANEID,
    SPECIAL_WARPID,
    SPECIAL_NWARPID,
    SPECIAL_LANEMASK_EQ,
    SPECIAL_LANEMASK_LE,
    SPECIAL_LANEMASK_LT,
    SPECIAL_LANEMASK_GE,
    SPECIAL_LANEMASK_GT,
    SPECIAL_SMID,
    SPECIAL_DYNAMIC_SHARED,
    SPECIAL_TOTAL_SHARED,
    SPECIALS, /* those above are the same for a whole block; the clocks are read by mov alone */
    SPECIAL_CLOCK = SPECIALS,
    SPECIAL_CLOCK64
};

struct constant {
    uint32_t at;
    uint32_t bytes; /* of a lane */
    uint64_t value;
};

struct ptx_kernel {
    struct ptx_info info;
    char *name;
    struct op *ops;
    size_t op_count;
    size_t file_bytes;
    uint32_t marks; /* how many masks; the first is all ones, for constants */
    struct constant *constants;
    size_t constant_count;
    uint32_t special_at[SPECIALS]; /* 0: not read */
    size_t static_shared_bytes;
    size_t local_bytes;
    uint32_t slots; /* of memory instructions */
    struct ptx_parameter *parameters;
    void **owned; /* lists and extras */
    size_t owned_count;
    const struct ptx_module *module;
    struct ptx_kernel *next;
};

/* A copy that was started and not yet waited for (cp.async). */
struct async_copy {
    uint64_t from;
    uint32_t to;
    uint32_t bytes;
    uint32_t from_bytes; /* the rest is filled with zeros */
    uint32_t group;
    const struct op *op;
};

struct async_lane {
    struct async_copy *copies;
    size_t count;
    size_t room;
    uint32_t group; /* that new copies join */
};

enum wait_kind { WAIT_NONE, WAIT_BARRIER, WAIT_WARP };

struct warp {
    char *file;
    uint32_t *marks;
    struct worker *worker;
    uint32_t number; /* in the block */
    uint32_t lanes;  /* that exist */
    uint32_t live;   /* that have not ended */
    uint32_t active; /* that run now, all at pc */
    uint32_t pc;
    uint32_t join;               /* lowest address where other lanes stand; UINT32_MAX: none */
    uint32_t barrier;            /* lanes that wait at a barrier of the block */
    uint32_t together;           /* lanes that wait for others of the warp */
    uint32_t lane_pc[LANES];     /* of lanes that are not active */
    uint8_t lane_barrier[LANES]; /* which barrier they wait at */
    uint32_t reduce_at[LANES];   /* offset of the result of bar.red, 0: none */
    bool stopped;                /* no lane of it can run before something happens elsewhere */
    uint64_t instructions;
    uint64_t lane_instructions;
    uint32_t warp_epoch; /* grows at each synchronisation of the warp */
    char *local;         /* lane l at local + l * local_stride */
    uint8_t *local_shadow;
    struct async_lane *async;
};

struct race_entry;

struct barrier {
    uint32_t arrived;    /* threads */
    uint32_t expected;   /* 0: all that live */
    const struct op *op; /* where the first that came stands */
    uint32_t first;      /* that thread */
    uint32_t set;        /* threads whose predicate is true, of bar.red */
};

enum { BARRIERS = 16 };

/* One thread of the host that runs blocks. */
struct worker {
    const struct ptx_kernel *kernel;
    struct launch *launch;
    struct ptx_grid *grid;
    unsigned block_index[3];
    unsigned threads; /* of a block */
    unsigned warp_count;
    struct warp *warps;
    size_t warps_room;
    char *shared;
    uint8_t *shared_shadow;
    size_t shared_bytes;
    struct race_entry *races;
    size_t race_words; /* where the entries of bytes begin */
    uint32_t epoch;    /* grows at each barrier of the block */
    size_t local_stride;
    struct barrier barriers[BARRIERS];
    struct span *spans; /* a memory instruction's last */
    void *memory;       /* what all of the above lies in */
    size_t memory_bytes;
    uint64_t clock;
};

/* One run of a kernel, shared by its workers. */
struct launch {
    const struct ptx_kernel *kernel;
    struct ptx_grid *grid;
    uint64_t blocks;
    uint64_t next;   /* block to be taken */
    uint64_t stride; /* of the shuffle */
    int end;         /* enum ptx_end; the first that is not PTX_DONE stops all */
    uint64_t instructions;
};

/* Ends the launch with a finding that names kernel, place, block and thread.  `lanes` are those it
 * happened to; the first is named. */
void fault(struct warp *warp, const struct op *op, uint32_t lanes, enum ptx_end end,
           const char *format, ...) __attribute__((format(printf, 5, 6)));

static inline bool stopped(const struct warp *warp)
{
    return __atomic_load_n(&warp->worker->launch->end, __ATOMIC_RELAXED) != PTX_DONE;
}

static inline void *reg(const struct warp *warp, struct operand operand)
{
    return warp->file + operand.at;
}

static inline uint32_t written(const struct warp *warp, struct operand operand)
{
    return warp->marks[operand.mark];
}

/* The lanes of `mask` have a result now; it counts as written where `good` is set. */
static inline void mark_result(struct warp *warp, struct operand d, uint32_t mask, uint32_t good)
{
    uint32_t *marks = &warp->marks[d.mark];

    *marks = (*marks & ~mask) | (good & mask);
}

static inline uint32_t predicate(const struct warp *warp, struct operand operand)
{
    return *(const uint32_t *)(const void *)(warp->file + operand.at);
}

static inline void predicate_set(struct warp *warp, struct operand d, uint32_t mask, uint32_t value)
{
    uint32_t *at = (uint32_t *)(void *)(warp->file + d.at);

    *at = (*at & ~mask) | (value & mask);
}

#ifdef __clang__
#define LANES_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES_APART _Pragma("GCC ivdep")
#endif

/* Runs `body` for each lane of `mask` with `lane` set; the loop over all is one for vectors. */
#define EACH_LANE(mask, body)                                                                      \
    do {                                                                                           \
        if ((mask) == (uint32_t)ALL_LANES) {                                                       \
            LANES_APART for (int lane = 0; lane < LANES; lane++)                                   \
            {                                                                                      \
                body;                                                                              \
            }                                                                                      \
        } else {                                                                                   \
            for (uint32_t left_ = (mask); left_ != 0; left_ &= left_ - 1) {                        \
                int lane = __builtin_ctz(left_);                                                   \
                body;                                                                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* An undefined value where a kernel must not have one: an address, a condition. */
static inline bool undefined(struct warp *warp, const struct op *op, uint32_t mask,
                             struct operand operand, const char *what)
{
    uint32_t bad = mask & ~written(warp, operand);

    if (bad == 0 || !warp->worker->grid->check_uninitialised)
        return false;
    fault(warp, op, bad, PTX_FAILED, "%s comes from a register or memory that was never written",
          what);
    return true;
}

/* The group that runs has moved or stopped: chooses what runs next. */
void warp_reschedule(struct warp *warp);
/* Lanes leave the group, to stand at `pc`. */
void warp_park(struct warp *warp, uint32_t lanes, uint32_t pc);
/* Lanes end. */
void warp_exit(struct warp *warp, uint32_t lanes);
/* Runs until no lane can go on or about `slice` instructions have run. */
void warp_run(struct warp *warp, uint64_t slice);
/* Calls `act` for each set of lanes that name each other in `members` and are all here; the others
 * wait until the rest of theirs comes to this instruction. */
void warp_together(struct warp *warp, const struct op *op, uint32_t mask, struct operand members,
                   op_fn *act);

/* Barriers of the block (barrier.c). */
void barrier_wait(struct warp *warp, const struct op *op, uint32_t mask, unsigned barrier,
                  unsigned expected, bool leaves);
/* Lets go who waits at barriers that are complete.  False: none was. */
bool barriers_release(struct worker *worker);
/* Nothing of the block can run any more: says why. */
void block_stuck(struct worker *worker);

#endif
