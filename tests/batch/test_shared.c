/* Memory of clients as inputs and as room for outputs.  batcher_create() starts threads. */
#include "batch/lanes_bench.h"

/* Input and output in memory of the client; both may be bound unless the test says otherwise. */
static struct call *make_shared(int64_t rows, float value, void *room)
{
    struct call *call = make(rows, value);

    call->in.memory = MEMORY_SHARED;
    call->out.room = (struct request_room){.data = room,
                                           .bytes = (size_t)rows * FAKE_WIDTH * sizeof(float),
                                           .memory = MEMORY_SHARED,
                                           .apart = true};
    return call;
}

static void memory_of_clients_is_used_in_place(void **state)
{
    _Alignas(64) float room[FAKE_WIDTH] = {0};
    struct call *call;

    (void)state;
    fixture.network.takes_foreign = true;
    start();
    call = make_shared(1, 1, room);
    submit(call);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_OK);
    assert_ptr_equal(fixture.network.last_in, call->x);
    assert_ptr_equal(fixture.network.last_out, room);
    assert_ptr_equal(call->out.data, room);
    assert_true(room[0] == 2 && room[3] == 5);
}

static void plans_that_look_twice_get_copies_of_clients_memory(void **state)
{
    _Alignas(64) float room[FAKE_WIDTH] = {0};
    struct call *call;

    (void)state;
    start();
    call = make_shared(1, 1, room);
    call->request.keeps_inputs = fixture.network.passes = true;
    submit(call);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_OK);
    assert_ptr_not_equal(fixture.network.last_in, call->x);
    assert_ptr_not_equal(fixture.network.last_out, room);
    assert_ptr_equal(call->out.data, room); /* brought there afterwards */
    assert_true(room[0] == 2 && room[3] == 5);
}

static void answers_never_point_into_clients_memory_that_was_read(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.takes_foreign = fixture.network.passes = true;
    start();
    call = make(1, 1);
    call->in.memory = MEMORY_SHARED;
    call->request.keeps_inputs = true;
    submit(call);
    await_answers(1);
    assert_ptr_equal(fixture.network.last_in, call->x);
    assert_ptr_not_equal(call->out.data, call->x);
}

static void rooms_that_a_run_may_not_write_are_filled_afterwards(void **state)
{
    _Alignas(64) float room[3 * FAKE_WIDTH] = {0};
    struct call *call[2];

    (void)state;
    fixture.network.takes_foreign = true;
    start();
    call[0] = make_shared(1, 1, room);
    call[0]->out.room.apart = false;
    call[1] = make_shared(1, 1, room + 5); /* no address as good as the response's */
    for (size_t i = 0; i < 2; i++) {
        submit(call[i]);
        await_answers(i + 1);
        assert_int_equal(call[i]->request.status, STATUS_OK);
        assert_ptr_not_equal(fixture.network.last_out, call[i]->out.room.data);
        assert_ptr_equal(call[i]->out.data, call[i]->out.room.data);
    }
    assert_true(room[0] == 2 && room[3] == 5 && room[4] == 0 && room[5] == 2 && room[8] == 5);
}

static void rooms_that_are_too_small_are_not_written(void **state)
{
    _Alignas(64) float room[FAKE_WIDTH] = {0};
    struct call *call;

    (void)state;
    fixture.network.takes_foreign = true;
    start();
    call = make_shared(1, 1, room);
    call->out.room.bytes--;
    submit(call);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_OK);
    assert_int_equal(call->out.bytes, FAKE_WIDTH * sizeof(float));
    assert_true(room[0] == 0 && room[3] == 0);
}

static void batches_gather_from_clients_memory(void **state)
{
    _Alignas(64) float room[2][16] = {{0}};
    struct call *first, *second;

    (void)state;
    fixture.network.takes_foreign = true;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 1); /* keeps the lane busy */
    fake_await_runs(&fixture.network, 1);
    first = make_shared(1, 10, room[0]);
    second = make_shared(1, 20, room[1]);
    submit(first);
    submit(second);
    fake_gate(&fixture.network, false);
    await_answers(3);
    assert_int_equal(first->request.batch_rows, 2);
    assert_ptr_equal(first->out.data, room[0]);
    assert_true(room[0][0] == 11 && room[0][3] == 14);
    assert_true(room[1][0] == 21 && room[1][3] == 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_of_clients_is_used_in_place),
        TEST(plans_that_look_twice_get_copies_of_clients_memory),
        TEST(answers_never_point_into_clients_memory_that_was_read),
        TEST(rooms_that_a_run_may_not_write_are_filled_afterwards),
        TEST(rooms_that_are_too_small_are_not_written),
        TEST(batches_gather_from_clients_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
