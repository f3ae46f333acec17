/* A repository whose models are put to sleep, woken and asked. */
#ifndef TESTS_MODELS_BENCH_RESIDENT_H
#define TESTS_MODELS_BENCH_RESIDENT_H

#include "onnx/writer.h"

/* The writer and the loader both have a `struct message`. */
#define message loader_message
#include "models/internal.h"
#undef message
/* So have the engine and the table a `struct slot`. */
#define slot engine_slot
#include "engine/internal.h"
#undef slot

#include "models/bench_repository.h"

enum { WIDTH = 64 };

/* ---- commands ---- */

static struct residency_answer moved;

static inline void on_moved(void *arg, const struct residency_answer *answer,
                            const struct error *err)
{
    (void)arg;
    moved = *answer;
    on_command_done(NULL, err == NULL ? STATUS_OK : err->status, err, answer->freed_bytes);
}

static inline enum status put_to_sleep(const char *name, enum sleep_level level)
{
    repository_sleep(bench.repository, name, level, on_moved, NULL);
    return await_command();
}

static inline enum status wake(const char *name)
{
    repository_wake(bench.repository, name, on_moved, NULL);
    return await_command();
}

static inline struct model_residency residency_of(const char *name)
{
    struct model_info info = {0};

    assert_true(find_row(name, "1", &info));
    assert_int_equal(info.state, MODEL_READY);
    return info.residency;
}

static inline struct model *find(const char *name)
{
    struct model *found;
    struct error err;

    assert_ok(repository_find(bench.repository, name, "", &found, &err));
    return found;
}

static inline struct model *find_m(void)
{
    return find("m");
}

static float asked[WIDTH] = {1, 2, 3};

static inline void assert_multiplied(const struct ask *ask, int factor)
{
    for (int i = 0; i < 4; i++) {
        int right = 0;

        for (int row = 0; row < 3; row++)
            right += (row + 1) * factor * ((4 * row + i) % 7 - 3); /* weights of multiplier_by() */
        assert_float_equal(((const float *)ask->out[0].data)[i], (float)right, 1e-5);
    }
}

static inline void assert_answers(const char *name)
{
    struct ask ask = {.in = {floats(asked, 1, WIDTH)}};

    if (ask_model(&ask, name) != STATUS_OK)
        fail_msg("%s: %s", name, ask.request.error.text);
    assert_multiplied(&ask, 1);
    ask_end(&ask);
}

static inline void write_multiplier(const char *name, const char *config)
{
    struct message graph = multiplier();
    char path[64];

    write_model(name, 1, &graph);
    (void)snprintf(path, sizeof(path), "%.40s/config.pbtxt", name);
    write_text(path, config);
}

/* Behind the move that may be under way. */
static inline void take_move(struct model *model)
{
    bool taken = false;

    while (!taken) {
        pthread_mutex_lock(&bench.repository->lock);
        taken = !model->resident.is_moving;
        model->resident.is_moving = true;
        pthread_mutex_unlock(&bench.repository->lock);
        (void)sched_yield();
    }
}

#endif
