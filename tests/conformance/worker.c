#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool read_all(int from, void *bytes, size_t size)
{
    char *at = bytes;

    while (size > 0) {
        ssize_t got = read(from, at, size);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

static bool write_all(int to, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        /* An end that is gone is an answer that is missing, not a signal. */
        ssize_t put = send(to, at, size, MSG_NOSIGNAL);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        size -= (size_t)put;
    }
    return true;
}

static _Noreturn void answer_all(const struct worker_task *task, int end)
{
    char *question = malloc(task->question_bytes), *answer = malloc(task->answer_bytes);

    if (question == NULL || answer == NULL)
        _exit(1);
    while (read_all(end, question, task->question_bytes) &&
           read_all(end, answer, task->answer_bytes)) {
        alarm(task->seconds);
        task->run(task->rules, question, answer);
        alarm(0);
        if (!write_all(end, answer, task->answer_bytes))
            break;
    }
    _exit(0);
}

static bool start(struct worker *worker, const struct worker_task *task)
{
    int ends[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return false;
    child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        answer_all(task, ends[1]);
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return false;
    }
    *worker = (struct worker){.process = child, .end = ends[0]};
    return true;
}

static int wait_for(struct worker *worker)
{
    int how = 0;

    (void)close(worker->end);
    while (waitpid(worker->process, &how, 0) < 0 && errno == EINTR)
        continue;
    *worker = (struct worker){0};
    return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

bool worker_ask(struct worker *worker, const struct worker_task *task, const void *question,
                void *answer, int *out_signal)
{
    *out_signal = 0;
    if (worker->process == 0 && !start(worker, task))
        return false;
    worker->asked++;
    if (write_all(worker->end, question, task->question_bytes) &&
        write_all(worker->end, answer, task->answer_bytes) &&
        read_all(worker->end, answer, task->answer_bytes))
        return true;
    *out_signal = wait_for(worker);
    return false;
}

void worker_end(struct worker *worker)
{
    if (worker->process != 0)
        (void)wait_for(worker);
}
