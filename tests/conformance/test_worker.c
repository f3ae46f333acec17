/* A process that answers: what it leaves behind when it dies over a question. */
#include "worker.h"

#include <signal.h>
#include <unistd.h>

#include "support/unit.h"

struct answer {
    int sum;
    pid_t process;
};

static void answer_one(const void *rules, const void *question, void *answer)
{
    int number = *(const int *)question;
    struct answer *out = answer;

    if (number == 13)
        (void)raise(SIGKILL);
    if (number == 14)
        (void)pause();
    *out = (struct answer){out->sum + number + *(const int *)rules, getpid()};
}

static const int rules = 100;
static const struct worker_task task = {.run = answer_one,
                                        .rules = &rules,
                                        .question_bytes = sizeof(int),
                                        .answer_bytes = sizeof(struct answer),
                                        .seconds = 1};

static struct answer ask(struct worker *worker, int number)
{
    struct answer answer = {.sum = 1000};
    int signal;

    assert_true(worker_ask(worker, &task, &number, &answer, &signal));
    assert_int_equal(answer.sum, 1100 + number);
    return answer;
}

static void questions_go_to_one_process_until_it_is_ended(void **state)
{
    struct worker worker = {0};
    pid_t first = ask(&worker, 1).process;

    (void)state;
    assert_int_not_equal(first, getpid());
    assert_int_equal(ask(&worker, 2).process, first);
    assert_int_equal(worker.asked, 2);
    worker_end(&worker);
    assert_int_not_equal(ask(&worker, 3).process, first);
    worker_end(&worker);
    worker_end(&worker);
}

static void a_process_that_dies_takes_one_question_with_it(void **state)
{
    struct answer answer = {0};
    struct worker worker = {0};
    int number = 13, signal = 0;

    (void)state;
    (void)ask(&worker, 1);
    assert_false(worker_ask(&worker, &task, &number, &answer, &signal));
    assert_int_equal(signal, SIGKILL);
    (void)ask(&worker, 2);
    number = 14; /* never answered: its time is up */
    assert_false(worker_ask(&worker, &task, &number, &answer, &signal));
    assert_int_equal(signal, SIGALRM);
    (void)ask(&worker, 3);
    worker_end(&worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_go_to_one_process_until_it_is_ended),
        cmocka_unit_test(a_process_that_dies_takes_one_question_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
