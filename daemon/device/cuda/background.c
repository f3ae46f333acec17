#include "device/cuda/background.h"

static void *work(void *arg)
{
    struct background *background = arg;

    pthread_mutex_lock(&background->lock);
    while (!background->ending) {
        struct background_job *job;

        background->working = !list_is_empty(&background->jobs);
        if (!background->working) {
            pthread_cond_broadcast(&background->settled);
            pthread_cond_wait(&background->came, &background->lock);
            continue;
        }
        job = CONTAINER_OF(list_first(&background->jobs), struct background_job, link);
        list_remove(&job->link);
        pthread_mutex_unlock(&background->lock);
        job->run(job);
        pthread_mutex_lock(&background->lock);
    }
    pthread_mutex_unlock(&background->lock);
    return NULL;
}

void background_init(struct background *background)
{
    pthread_mutex_init(&background->lock, NULL);
    pthread_cond_init(&background->came, NULL);
    pthread_cond_init(&background->settled, NULL);
    list_init(&background->jobs);
    background->started = background->working = background->ending = false;
}

void background_deinit(struct background *background)
{
    pthread_mutex_lock(&background->lock);
    background->ending = true;
    pthread_cond_signal(&background->came);
    pthread_mutex_unlock(&background->lock);
    if (background->started)
        pthread_join(background->thread, NULL);
    while (!list_is_empty(&background->jobs)) {
        struct background_job *job =
            CONTAINER_OF(list_first(&background->jobs), struct background_job, link);

        list_remove(&job->link);
        job->drop(job);
    }
    pthread_cond_destroy(&background->settled);
    pthread_cond_destroy(&background->came);
    pthread_mutex_destroy(&background->lock);
}

void background_add(struct background *background, struct background_job *job)
{
    bool taken;

    pthread_mutex_lock(&background->lock);
    if (!background->started)
        background->started = pthread_create(&background->thread, NULL, work, background) == 0;
    taken = background->started;
    if (taken) {
        list_append(&background->jobs, &job->link);
        pthread_cond_signal(&background->came);
    }
    pthread_mutex_unlock(&background->lock);
    if (!taken)
        job->drop(job);
}

void background_settle(struct background *background)
{
    pthread_mutex_lock(&background->lock);
    while (background->working || !list_is_empty(&background->jobs))
        pthread_cond_wait(&background->settled, &background->lock);
    pthread_mutex_unlock(&background->lock);
}
