#include "serve/endpoints/admin_job.h"

#include <pthread.h>
#include <stdlib.h>

static void on_made(struct notice *notice)
{
    struct admin_job *job = CONTAINER_OF(notice, struct admin_job, notice);
    struct call *call = notice->call;

    if (job->text != NULL)
        admin_reply_text(call, job->text);
    else
        call_fail_with(call, &job->err);
    *job->busy = false;
    call_unref(call);
    free(job->text);
    free(job);
}

static void discard(struct admin_job *job)
{
    free(job->text);
    job->text = NULL;
}

static enum status write_text(struct admin_job *job)
{
    size_t size = 0;
    FILE *to = open_memstream(&job->text, &size);
    enum status status;

    if (to == NULL)
        return error_set(&job->err, STATUS_NO_MEMORY, "out of memory for the answer");
    status = job->make(job, to, &job->err);
    if (fclose(to) != 0 && status == STATUS_OK)
        status = error_set(&job->err, STATUS_NO_MEMORY, "out of memory for the answer");
    return status;
}

static void *run_job(void *arg)
{
    struct admin_job *job = arg;

    if (write_text(job) != STATUS_OK)
        discard(job);
    server_notify(job->notice.call->server, &job->notice);
    return NULL;
}

static bool start_thread(struct admin_job *job)
{
    pthread_attr_t detached;
    pthread_t thread;
    bool started;

    if (pthread_attr_init(&detached) != 0)
        return false;
    started = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0 &&
              pthread_create(&thread, &detached, run_job, job) == 0;
    (void)pthread_attr_destroy(&detached);
    return started;
}

void admin_job_start(struct call *call, struct admin_job *job)
{
    job->notice.run = on_made;
    job->notice.call = call_ref(call);
    *job->busy = true;
    if (start_thread(job))
        return;
    *job->busy = false;
    call_unref(call);
    free(job);
    call_fail(call, STATUS_NO_MEMORY, "no thread to make the answer");
}
