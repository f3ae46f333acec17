/* Convolutions whose whole epilogue is part of an engine that cuDNN compiles, and attention: made
 * in the background, kept on disk, in force from the next start.  Each device that is opened stands
 * for a start. */
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "answer.h"
#include "graph/match.h"

enum { CHANNELS = 8, SIDE = 6, IMAGE = CHANNELS * SIDE * SIDE, IMAGES = 3 };

static char folder[64];

/* ---- a folder for what is compiled ---- */

static int fresh_folder(void **state)
{
    snprintf(folder, sizeof(folder), "/tmp/sluice-fusions-XXXXXX");
    assert_non_null(mkdtemp(folder));
    answer_cache = folder;
    return clean_slate(state);
}

/* Paths of what is kept; their number. */
static size_t list_kept(char paths[16][512])
{
    DIR *kept = opendir(folder);
    const struct dirent *entry;
    size_t count = 0;

    assert_non_null(kept);
    while ((entry = readdir(kept)) != NULL && count < 16) {
        size_t length = strlen(entry->d_name);

        if (length > 5 && strcmp(entry->d_name + length - 5, ".made") == 0)
            snprintf(paths[count++], 512, "%s/%s", folder, entry->d_name);
    }
    closedir(kept);
    return count;
}

static int no_folder(void **state)
{
    char paths[16][512];
    size_t count = list_kept(paths);

    (void)state;
    for (size_t i = 0; i < count; i++)
        unlink(paths[i]);
    answer_cache = NULL;
    return rmdir(folder);
}

static void await_kept(struct device *device, size_t count)
{
    char paths[16][512];

    device_settle(device);
    assert_int_equal(list_kept(paths), count);
}

/* Conv(f(Conv(x))), with f as asked: the second one keeps the first in 16 bits. */
static struct graph *make_images(const char *activation, unsigned residual)
{
    struct graph *graph = graph_create();
    struct value *x =
        make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, CHANNELS, SIDE, SIDE));
    struct value *first =
        APPLY(graph, "Conv", x, make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), 1));
    struct value *h, *y;

    first = APPLY(graph, "Relu", first);
    h = APPLY(graph, "Conv", first, make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), 2),
              make_floats(graph, SHAPE(CHANNELS), 3));
    if (residual == 1)
        h = APPLY(graph, "Add", h, first);
    h = APPLY(graph, activation, h);
    if (residual == 2)
        h = APPLY(graph, "Add", h, first);
    y = APPLY(graph, "Conv", h, make_floats(graph, SHAPE(2, CHANNELS, 1, 1), 4));
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void fill(float *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        in[i] = (float)(i * 31 % 97) / 48 - 1;
}

static size_t run_images(const char *device, struct graph *graph, int64_t images, float *out,
                         char **text)
{
    const struct shape shape = SHAPE(images, CHANNELS, SIDE, SIDE);
    float in[IMAGES * IMAGE];

    fill(in, IMAGES * IMAGE);
    return answer(device, strcmp(device, "cpu") == 0 ? "strict" : "fp16", graph, in,
                  (size_t)images * IMAGE, &shape, out, text);
}

/* One start that asks for IMAGES images, until as many plans as `kept` are on disk. */
static void start_and_wait(struct graph *graph, size_t kept)
{
    const struct shape shape = SHAPE(IMAGES, CHANNELS, SIDE, SIDE);
    struct run_rig rig;

    open_as(&rig, "cuda", "fp16", graph, &shape);
    await_kept(rig.rig.device, kept);
    run_rig_close(&rig);
}

static void expect_words(const char *text, const char *words, bool wanted)
{
    if ((strstr(text, words) != NULL) != wanted)
        fail_msg("%s '%s' in\n%s", wanted ? "no" : "there is", words, text);
}

static void a_fusion_is_compiled_in_the_background_and_serves_from_the_next_start(void **state)
{
    float out[MANY], alone[MANY], wanted[MANY];
    char *text = NULL;
    size_t count;

    (void)state;
    count = run_images("cpu", make_images("Swish", 2), IMAGES, wanted, &text);
    free(text);
    start_and_wait(make_images("Swish", 2), 2); /* as it is, and with the canonical images */
    assert_int_equal(sim_count("cudnnCompile"), 2);
    (void)run_images("cuda", make_images("Swish", 2), IMAGES, out, &text);
    expect_words(text, "fusion: compiled", true);
    expect_words(text, "next start", false);
    free(text);
    assert_int_equal(sim_count("cudnnCompile"), 2);
    for (size_t i = 0; i < count; i++)
        assert_true(fabsf(out[i] - wanted[i]) <= 4e-3F * largest(wanted, count));
    /* What is not on disk yet is compiled at once: all images have the same bits. */
    (void)run_images("cuda", make_images("Swish", 2), 1, alone, &text);
    expect_words(text, "fusion: compiled", true);
    free(text);
    assert_int_equal(sim_count("cudnnCompile"), 3);
    assert_memory_equal(alone, out, count / IMAGES * sizeof(float));
    assert_nothing_left();
}

static void the_precompiled_engine_serves_until_then(void **state)
{
    float out[2][MANY], wanted[MANY];
    char *text = NULL;
    size_t count = run_images("cpu", make_images("Swish", 0), IMAGES, wanted, &text);

    (void)state;
    free(text);
    for (size_t i = 0; i < 2; i++) { /* the second time without a folder */
        (void)run_images("cuda", make_images("Swish", 0), IMAGES, out[i], &text);
        expect_words(text, i == 0 ? "fusion: compiled for the next start" : "there is no folder",
                     true);
        free(text);
        answer_cache = NULL;
    }
    assert_memory_equal(out[0], out[1], count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        assert_true(fabsf(out[0][i] - wanted[i]) <= 4e-3F * largest(wanted, count));
    assert_nothing_left();
}

static void every_activation_and_residual_can_be_part_of_it(void **state)
{
    static const char *const activations[] = {"Swish", "Sigmoid", "Tanh", "Gelu", "Relu"};
    size_t kept = 0;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        float out[MANY], wanted[MANY];
        unsigned residual = i == 4 ? 2 : (unsigned)i % 3;
        char *text = NULL;
        size_t count =
            run_images("cpu", make_images(activations[i], residual), IMAGES, wanted, &text);

        free(text);
        start_and_wait(make_images(activations[i], residual), kept += 2);
        (void)run_images("cuda", make_images(activations[i], residual), IMAGES, out, &text);
        expect_words(text, "fusion: compiled", true);
        free(text);
        for (size_t k = 0; k < count; k++)
            if (!(fabsf(out[k] - wanted[k]) <= 4e-3F * largest(wanted, count)))
                fail_msg("%s, residual %u: %g is not %g", activations[i], residual, (double)out[k],
                         (double)wanted[k]);
    }
    assert_nothing_left();
}

/* The library dies of a damaged plan: it never comes to see one. */
static void what_is_damaged_on_disk_is_compiled_anew(void **state)
{
    char paths[16][512], *text = NULL;
    float out[MANY];
    size_t count;

    (void)state;
    start_and_wait(make_images("Tanh", 0), 2);
    count = list_kept(paths);
    for (size_t i = 0; i < count; i++) {
        int file = open(paths[i], O_WRONLY);

        assert_int_equal(pwrite(file, "damaged", 7, 900), 7);
        close(file);
    }
    (void)run_images("cuda", make_images("Tanh", 0), IMAGES, out, &text);
    expect_words(text, "fusion: compiled for the next start", true);
    free(text);
    start_and_wait(make_images("Tanh", 0), 2);
    while (sim_count("cudnnCompile") < 4) /* by either start */
        start_and_wait(make_images("Tanh", 0), 2);
    (void)run_images("cuda", make_images("Tanh", 0), IMAGES, out, &text);
    expect_words(text, "next start", false);
    free(text);
    assert_nothing_left();
}

static void what_cudnn_has_no_engine_for_is_not_tried_again(void **state)
{
    enum { NOT_SUPPORTED = 3000 };
    char *text = NULL;
    float out[MANY];
    unsigned long tried;

    (void)state;
    sim_fail_nth("cudnnCompile", 1, NOT_SUPPORTED);
    start_and_wait(make_images("Sigmoid", 0), 2);
    sim_fail_nth("cudnnCompile", 0, 0);
    tried = sim_count("cudnnCompile");
    (void)run_images("cuda", make_images("Sigmoid", 0), IMAGES, out, &text);
    expect_words(text, "fusion: cuDNN has no engine for it", true);
    free(text);
    assert_int_equal(sim_count("cudnnCompile"), tried);
    assert_nothing_left();
}

/* Without NVRTC, or on a device that is full: the next start tries again. */
static void what_could_not_be_compiled_this_time_is_tried_again(void **state)
{
    enum { PREREQUISITE_MISSING = 3008, DEVICE_ALLOCATION_FAILED = 4004 };
    static const int codes[] = {PREREQUISITE_MISSING, DEVICE_ALLOCATION_FAILED};
    char paths[16][512], *text = NULL;
    float out[MANY];

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        sim_fail_every("cudnnCompile", 1, codes[i]);
        start_and_wait(make_images("Sigmoid", 0), 0);
        assert_int_equal(list_kept(paths), 0);
    }
    sim_fail_every("cudnnCompile", 0, 0);
    start_and_wait(make_images("Sigmoid", 0), 2);
    (void)run_images("cuda", make_images("Sigmoid", 0), IMAGES, out, &text);
    expect_words(text, "next start", false);
    free(text);
    assert_nothing_left();
}

/* ---- attention ---- */

enum { TOKENS = 10, HEADS = 2, DEPTH = 8, FEATURES = HEADS * DEPTH, TEXT = TOKENS * FEATURES };

/* [rows, tokens, features] to [rows, heads, tokens, depth], or with the last two turned. */
static struct value *divided(struct graph *graph, struct value *x, bool turned)
{
    static const int64_t by_heads[] = {0, 2, 1, 3}, by_depth[] = {0, 2, 3, 1};
    struct value *h = APPLY(graph, "Reshape", x, INTS(graph, 0, TOKENS, HEADS, DEPTH));
    struct node *node = NODE(graph, "Transpose", h);

    *(struct ints *)node_attr(node, "perm") = (struct ints){4, turned ? by_depth : by_heads};
    return node->out[0];
}

/* As exporters write it. */
static struct graph *make_attention(bool masked)
{
    static const int64_t by_tokens[] = {0, 2, 1, 3};
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, TOKENS, FEATURES));
    struct value *projected[3], *h, *factor = make_floats(graph, SHAPE(), 4);
    struct node *node;

    ((float *)(uintptr_t)factor->constant->tensor.data)[0] = 0.35355339F;
    for (unsigned i = 0; i < 3; i++)
        projected[i] =
            APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(FEATURES, FEATURES), i + 1));
    h = APPLY(graph, "MatMul", divided(graph, projected[0], false),
              divided(graph, projected[1], true));
    h = APPLY(graph, "Mul", h, factor);
    if (masked)
        h = APPLY(graph, "Add", h, make_floats(graph, SHAPE(1, 1, 1, TOKENS), 5));
    h = APPLY(graph, "MatMul", APPLY(graph, "Softmax", h), divided(graph, projected[2], false));
    node = NODE(graph, "Transpose", h);
    *(struct ints *)node_attr(node, "perm") = (struct ints){4, by_tokens};
    h = APPLY(graph, "Reshape", node->out[0], INTS(graph, 0, TOKENS, FEATURES));
    h = APPLY(graph, "MatMul", h, make_floats(graph, SHAPE(FEATURES, FEATURES), 6));
    set_borders(graph, 1, &x, 1, &h);
    return graph;
}

static size_t run_text(const char *device, const char *precision, bool masked, int64_t rows,
                       float *out, char **text)
{
    const struct shape shape = SHAPE(rows, TOKENS, FEATURES);
    float in[IMAGES * TEXT];

    fill(in, IMAGES * TEXT);
    return answer(device, precision, make_attention(masked), in, (size_t)rows * TEXT, &shape, out,
                  text);
}

static void start_with_text(const char *precision, size_t kept)
{
    const struct shape shape = SHAPE(IMAGES, TOKENS, FEATURES);
    struct run_rig rig;

    open_as(&rig, "cuda", precision, make_attention(false), &shape);
    await_kept(rig.rig.device, kept);
    run_rig_close(&rig);
}

static void attention_in_16_bits_is_one_step_from_the_next_start(void **state)
{
    static const char *const precisions[] = {"fp16", "bf16"};
    float out[MANY], alone[MANY], wanted[MANY];
    char *text = NULL;
    size_t count = run_text("cpu", "strict", false, IMAGES, wanted, &text);

    (void)state;
    free(text);
    for (size_t i = 0; i < 2; i++) {
        const float slack = i == 0 ? 4e-3F : 3e-2F;
        unsigned long compiled;

        (void)run_text("cuda", precisions[i], false, IMAGES, out, &text);
        expect_words(text, " Softmax ", true);
        free(text);
        for (size_t k = 0; k < count; k++)
            assert_true(fabsf(out[k] - wanted[k]) <= slack * largest(wanted, count));
        start_with_text(precisions[i], 2 + 3 * i);
        (void)run_text("cuda", precisions[i], false, IMAGES, out, &text);
        expect_words(text, " Attention ", true);
        expect_words(text, " Softmax ", false);
        expect_words(text, "cuda:strided", false); /* heads are divided by strides */
        expect_words(text, "engine 8, compiled", true);
        free(text);
        for (size_t k = 0; k < count; k++)
            if (!(fabsf(out[k] - wanted[k]) <= slack * largest(wanted, count)))
                fail_msg("%s: %g is not %g", precisions[i], (double)out[k], (double)wanted[k]);
        compiled = sim_count("cudnnCompile");
        (void)run_text("cuda", precisions[i], false, 1, alone, &text);
        expect_words(text, " Attention ", true);
        free(text);
        assert_int_equal(sim_count("cudnnCompile"), compiled + 1);
        assert_memory_equal(alone, out, count / IMAGES * sizeof(float));
    }
    assert_nothing_left();
}

static void attention_with_a_mask_or_of_float32_is_not_asked_for(void **state)
{
    char *text = NULL, paths[16][512];
    float out[MANY];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        (void)run_text("cuda", "fp16", true, IMAGES, out, &text);
        expect_words(text, "cuda:tensor", true); /* a kernel of ours */
        free(text);
        (void)run_text("cuda", "tf32", false, IMAGES, out, &text);
        expect_words(text, " Attention ", false);
        free(text);
    }
    assert_int_equal(list_kept(paths), 0);
    assert_int_equal(sim_count("cudnnCompile"), 0);
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_fusion_is_compiled_in_the_background_and_serves_from_the_next_start, fresh_folder,
            no_folder),
        cmocka_unit_test_setup_teardown(the_precompiled_engine_serves_until_then, fresh_folder,
                                        no_folder),
        cmocka_unit_test_setup_teardown(every_activation_and_residual_can_be_part_of_it,
                                        fresh_folder, no_folder),
        cmocka_unit_test_setup_teardown(what_is_damaged_on_disk_is_compiled_anew, fresh_folder,
                                        no_folder),
        cmocka_unit_test_setup_teardown(what_cudnn_has_no_engine_for_is_not_tried_again,
                                        fresh_folder, no_folder),
        cmocka_unit_test_setup_teardown(what_could_not_be_compiled_this_time_is_tried_again,
                                        fresh_folder, no_folder),
        cmocka_unit_test_setup_teardown(attention_in_16_bits_is_one_step_from_the_next_start,
                                        fresh_folder, no_folder),
        cmocka_unit_test_setup_teardown(attention_with_a_mask_or_of_float32_is_not_asked_for,
                                        fresh_folder, no_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
