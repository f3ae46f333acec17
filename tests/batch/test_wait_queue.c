#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "batch/wait_queue.h"

enum { REQUESTS = 64 };

struct fixture {
    struct queue_config config;
    struct wait_queue queue;
    struct request request[REQUESTS];
    struct request_input input[REQUESTS];
    size_t made;
};

static void open_queue(struct fixture *fixture)
{
    assert_int_equal(wait_queue_init(&fixture->queue, &fixture->config, NULL), STATUS_OK);
}

static int set_up(void **state)
{
    static struct fixture fixture;

    fixture = (struct fixture){.config = {.name = "m", .max_batch_size = 8, .batching = true}};
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    wait_queue_deinit(&fixture->queue);
    return 0;
}

/* A request of `rows` rows of `width` floats; not put yet. */
static struct request *make(struct fixture *fixture, int64_t rows, int64_t width)
{
    struct request *request = &fixture->request[fixture->made];
    struct request_input *input = &fixture->input[fixture->made++];

    *input = (struct request_input){.shape = {.rank = 2, .dims = {rows, width}},
                                    .bytes = (size_t)(rows * width) * 4};
    *request = (struct request){.inputs = 1, .in = input, .rows = rows, .deadline_us = CLOCK_NEVER};
    list_init(&request->link);
    return request;
}

static struct request *put(struct fixture *fixture, int64_t rows, int64_t width, int64_t now_us)
{
    struct request *request = make(fixture, rows, width);

    assert_int_equal(wait_queue_put(&fixture->queue, request, now_us), STATUS_OK);
    return request;
}

static size_t take(struct fixture *fixture, int64_t now_us, struct list *batch, int64_t *out_rows)
{
    struct wait_offer offer =
        wait_queue_offer(&fixture->queue, now_us, fixture->config.max_batch_size);

    list_init(batch);
    *out_rows = offer.rows;
    return offer.rows == 0 ? 0 : wait_queue_take(&fixture->queue, &offer, batch);
}

static void an_empty_queue_offers_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct wait_offer offer;

    open_queue(fixture);
    offer = wait_queue_offer(&fixture->queue, 0, 8);
    assert_int_equal(offer.rows, 0);
    assert_int_equal(offer.at_us, CLOCK_NEVER);
    assert_int_equal(wait_queue_next_expiry(&fixture->queue), CLOCK_NEVER);
}

static void equal_shapes_share_a_batch_and_others_wait(void **state)
{
    struct fixture *fixture = *state;
    struct request *a, *b, *c;
    struct list batch;
    int64_t rows;

    open_queue(fixture);
    a = put(fixture, 1, 16, 0);
    b = put(fixture, 1, 17, 0);
    c = put(fixture, 2, 16, 0);
    assert_int_equal(take(fixture, 0, &batch, &rows), 2);
    assert_int_equal(rows, 3);
    assert_ptr_equal(batch.next, &a->link);
    assert_ptr_equal(batch.prev, &c->link);
    assert_int_equal(take(fixture, 0, &batch, &rows), 1);
    assert_ptr_equal(batch.next, &b->link);
    assert_int_equal(fixture->queue.count, 0);
    assert_int_equal(fixture->queue.bytes, 0);
}

static void a_batch_ends_before_the_request_that_does_not_fit(void **state)
{
    struct fixture *fixture = *state;
    struct list batch;
    int64_t rows;

    open_queue(fixture);
    put(fixture, 4, 16, 0);
    put(fixture, 5, 16, 0);
    put(fixture, 1, 16, 0);
    assert_int_equal(take(fixture, 0, &batch, &rows), 1);
    assert_int_equal(rows, 4);
    assert_int_equal(take(fixture, 0, &batch, &rows), 2);
    assert_int_equal(rows, 6);
}

static void a_request_larger_than_the_cap_runs_alone(void **state)
{
    struct fixture *fixture = *state;
    struct wait_offer offer;
    struct list batch;

    open_queue(fixture);
    put(fixture, 8, 16, 0);
    put(fixture, 1, 16, 0);
    offer = wait_queue_offer(&fixture->queue, 0, 2);
    assert_int_equal(offer.rows, 8);
    list_init(&batch);
    assert_int_equal(wait_queue_take(&fixture->queue, &offer, &batch), 1);
}

static void without_batching_one_request_goes_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    struct list batch;
    int64_t rows;

    fixture->config.batching = false;
    fixture->config.max_queue_delay_us = 1000;
    open_queue(fixture);
    put(fixture, 3, 16, 0);
    put(fixture, 1, 16, 0);
    assert_int_equal(take(fixture, 0, &batch, &rows), 1);
    assert_int_equal(rows, 3);
}

static void surplus_that_would_be_padding_stays(void **state)
{
    struct fixture *fixture = *state;
    struct list batch;
    int64_t rows;

    fixture->config.max_batch_size = 32;
    open_queue(fixture);
    for (int i = 0; i < 17; i++)
        put(fixture, 1, 16, 0);
    assert_int_equal(take(fixture, 0, &batch, &rows), 16); /* 24 would be 7 of padding */
    assert_int_equal(take(fixture, 0, &batch, &rows), 1);
    for (int i = 0; i < 7; i++)
        put(fixture, 1, 16, 0);
    assert_int_equal(take(fixture, 0, &batch, &rows), 7); /* 8 is one of padding */
}

static void a_delay_waits_for_company_but_not_longer(void **state)
{
    struct fixture *fixture = *state;
    struct wait_offer offer;

    fixture->config.max_queue_delay_us = 1000;
    open_queue(fixture);
    put(fixture, 1, 16, 100);
    put(fixture, 1, 16, 600);
    offer = wait_queue_offer(&fixture->queue, 700, 8);
    assert_int_equal(offer.rows, 0);
    assert_int_equal(offer.at_us, 1100);
    offer = wait_queue_offer(&fixture->queue, 1100, 8);
    assert_int_equal(offer.rows, 2);
}

static void a_full_batch_does_not_wait(void **state)
{
    struct fixture *fixture = *state;

    fixture->config.max_queue_delay_us = 1000000;
    open_queue(fixture);
    put(fixture, 4, 16, 0);
    put(fixture, 4, 16, 0);
    assert_int_equal(wait_queue_offer(&fixture->queue, 1, 8).rows, 8);
}

static void a_deadline_shortens_the_delay(void **state)
{
    struct fixture *fixture = *state;
    struct request *request;
    struct wait_offer offer;

    fixture->config.max_queue_delay_us = 1000000;
    open_queue(fixture);
    fixture->queue.lead_us = 300;
    request = make(fixture, 1, 16);
    request->deadline_us = 50000;
    assert_int_equal(wait_queue_put(&fixture->queue, request, 0), STATUS_OK);
    offer = wait_queue_offer(&fixture->queue, 0, 8);
    assert_int_equal(offer.rows, 0);
    assert_int_equal(offer.at_us, 49700);
    assert_int_equal(wait_queue_offer(&fixture->queue, 49700, 8).rows, 1);
}

static void a_preferred_size_goes_at_once(void **state)
{
    static const int64_t preferred[] = {4, 6};
    struct fixture *fixture = *state;
    struct list batch;
    int64_t rows;

    fixture->config.preferred = preferred;
    fixture->config.preferred_count = 2;
    fixture->config.max_queue_delay_us = 1000;
    open_queue(fixture);
    for (int i = 0; i < 3; i++)
        put(fixture, 1, 16, 0);
    assert_int_equal(take(fixture, 10, &batch, &rows), 0);
    put(fixture, 1, 16, 10);
    put(fixture, 1, 16, 10);
    assert_int_equal(take(fixture, 10, &batch, &rows), 4); /* five are there */
    assert_int_equal(take(fixture, 10, &batch, &rows), 0);
    assert_int_equal(take(fixture, 1010, &batch, &rows), 1);
}

static void a_higher_level_is_served_first(void **state)
{
    struct fixture *fixture = *state;
    struct request *low, *high;
    struct list batch;
    int64_t rows;

    fixture->config.priority_levels = 3;
    fixture->config.default_priority = 2;
    fixture->config.max_batch_size = 1;
    open_queue(fixture);
    low = make(fixture, 1, 16);
    high = make(fixture, 1, 16);
    high->priority = 1;
    assert_int_equal(wait_queue_put(&fixture->queue, low, 0), STATUS_OK);
    assert_int_equal(wait_queue_offer(&fixture->queue, 0, 1).rank, 0);
    assert_int_equal(wait_queue_put(&fixture->queue, high, 0), STATUS_OK);
    assert_int_equal(wait_queue_offer(&fixture->queue, 0, 1).rank, -1);
    assert_int_equal(take(fixture, 0, &batch, &rows), 1);
    assert_ptr_equal(batch.next, &high->link);
}

static void an_unknown_priority_means_the_default(void **state)
{
    struct fixture *fixture = *state;
    struct request *request;

    fixture->config.priority_levels = 3;
    fixture->config.default_priority = 2;
    open_queue(fixture);
    request = make(fixture, 1, 16);
    request->priority = 9;
    assert_int_equal(wait_queue_put(&fixture->queue, request, 0), STATUS_OK);
    assert_int_equal(request->wait.level, 1);
}

static void a_full_level_refuses_with_tritons_words(void **state)
{
    struct fixture *fixture = *state;
    struct request *request;

    fixture->config.policy.max_queue_size = 2;
    open_queue(fixture);
    put(fixture, 1, 16, 0);
    put(fixture, 1, 16, 0);
    request = make(fixture, 1, 16);
    assert_int_equal(wait_queue_put(&fixture->queue, request, 0), STATUS_UNAVAILABLE);
    assert_string_equal(request->error.text, "Exceeds maximum queue size");
    assert_int_equal(fixture->queue.count, 2);
}

static void bytes_are_bounded_too(void **state)
{
    struct fixture *fixture = *state;
    struct request *request;

    fixture->config.max_queue_bytes = 100;
    open_queue(fixture);
    put(fixture, 1, 16, 0);
    request = make(fixture, 1, 16);
    assert_int_equal(wait_queue_put(&fixture->queue, request, 0), STATUS_UNAVAILABLE);
}

static void those_past_deadline_cancelled_or_timed_out_leave(void **state)
{
    struct fixture *fixture = *state;
    struct request *expired, *cancelled, *stays;
    struct list leaving;

    fixture->config.policy.default_timeout_us = 5000;
    open_queue(fixture);
    expired = make(fixture, 1, 16);
    expired->deadline_us = 1000;
    assert_int_equal(wait_queue_put(&fixture->queue, expired, 0), STATUS_OK);
    cancelled = put(fixture, 1, 16, 0);
    stays = put(fixture, 1, 16, 2000);
    atomic_store(&cancelled->cancelled, true);
    assert_int_equal(wait_queue_next_expiry(&fixture->queue), 1000);
    list_init(&leaving);
    wait_queue_sweep(&fixture->queue, 500, false, &leaving);
    assert_true(list_is_empty(&leaving)); /* not looked at yet */
    wait_queue_sweep(&fixture->queue, 1000, false, &leaving);
    assert_int_equal(expired->status, STATUS_DEADLINE);
    assert_int_equal(cancelled->status, STATUS_CANCELLED);
    assert_int_equal(fixture->queue.count, 1);
    assert_int_equal(wait_queue_next_expiry(&fixture->queue), 7000);
    list_init(&leaving);
    wait_queue_sweep(&fixture->queue, 7000, false, &leaving);
    assert_int_equal(stays->status, STATUS_UNAVAILABLE);
    assert_string_equal(stays->error.text, "Request timeout expired");
    assert_int_equal(fixture->queue.count, 0);
}

static void delayed_requests_come_after_the_others(void **state)
{
    struct fixture *fixture = *state;
    struct request *late, *fresh;
    struct list leaving, batch;
    int64_t rows;

    fixture->config.policy =
        (struct queue_policy){.delay_on_timeout = true, .default_timeout_us = 100};
    fixture->config.max_batch_size = 1;
    open_queue(fixture);
    late = put(fixture, 1, 16, 0);
    fresh = put(fixture, 1, 16, 90);
    list_init(&leaving);
    wait_queue_sweep(&fixture->queue, 100, false, &leaving);
    assert_true(list_is_empty(&leaving));
    assert_int_equal(take(fixture, 100, &batch, &rows), 1);
    assert_ptr_equal(batch.next, &fresh->link);
    assert_int_equal(take(fixture, 100, &batch, &rows), 1);
    assert_ptr_equal(batch.next, &late->link);
}

static void a_request_may_shorten_its_timeout_only(void **state)
{
    struct fixture *fixture = *state;
    struct request *shorter, *longer;

    fixture->config.policy =
        (struct queue_policy){.default_timeout_us = 1000, .allow_timeout_override = true};
    open_queue(fixture);
    shorter = make(fixture, 1, 16);
    shorter->queue_timeout_us = 10;
    longer = make(fixture, 1, 16);
    longer->queue_timeout_us = 5000;
    assert_int_equal(wait_queue_put(&fixture->queue, shorter, 0), STATUS_OK);
    assert_int_equal(wait_queue_put(&fixture->queue, longer, 0), STATUS_OK);
    assert_int_equal(shorter->wait.timeout_us, 10);
    assert_int_equal(longer->wait.timeout_us, 1000);
}

static void what_is_put_back_stands_first_in_its_old_order(void **state)
{
    struct fixture *fixture = *state;
    struct request *a, *b;
    struct list batch;
    int64_t rows;
    uint64_t bytes;

    open_queue(fixture);
    a = put(fixture, 1, 16, 0);
    b = put(fixture, 1, 16, 0);
    bytes = fixture->queue.bytes;
    assert_int_equal(take(fixture, 0, &batch, &rows), 2);
    put(fixture, 1, 16, 0);
    wait_queue_put_back(&fixture->queue, &batch);
    assert_int_equal(fixture->queue.count, 3);
    assert_int_equal(fixture->queue.bytes, bytes * 3 / 2);
    assert_int_equal(take(fixture, 0, &batch, &rows), 3);
    assert_ptr_equal(batch.next, &a->link);
    assert_ptr_equal(batch.next->next, &b->link);
}

static void bad_levels_are_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    struct level_policy policy = {.level = 4};
    struct error err;

    fixture->config.priority_levels = 3;
    fixture->config.level_policies = 1;
    fixture->config.level_policy = &policy;
    assert_int_equal(wait_queue_init(&fixture->queue, &fixture->config, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "priority level 4"));
    fixture->config.level_policies = 0;
    fixture->config.default_priority = 5;
    assert_int_equal(wait_queue_init(&fixture->queue, &fixture->config, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "default_priority_level"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_queue_offers_nothing),
        TEST(equal_shapes_share_a_batch_and_others_wait),
        TEST(a_batch_ends_before_the_request_that_does_not_fit),
        TEST(a_request_larger_than_the_cap_runs_alone),
        TEST(without_batching_one_request_goes_at_a_time),
        TEST(surplus_that_would_be_padding_stays),
        TEST(a_delay_waits_for_company_but_not_longer),
        TEST(a_full_batch_does_not_wait),
        TEST(a_deadline_shortens_the_delay),
        TEST(a_preferred_size_goes_at_once),
        TEST(a_higher_level_is_served_first),
        TEST(an_unknown_priority_means_the_default),
        TEST(a_full_level_refuses_with_tritons_words),
        TEST(bytes_are_bounded_too),
        TEST(those_past_deadline_cancelled_or_timed_out_leave),
        TEST(delayed_requests_come_after_the_others),
        TEST(a_request_may_shorten_its_timeout_only),
        TEST(what_is_put_back_stands_first_in_its_old_order),
        TEST(bad_levels_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
