/* Kernels that are compiled at run time: by the real NVRTC, run by the simulator as PTX. */
#include "device/cuda/rtc/fused.h"

#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/rtc/rtc.h"
#include "nvrtc/nvrtc.h"
#include "sim.h"
#include "support/unit.h"

enum { COUNT = 83, INPUTS = 3, OUT_OF_MEMORY = 1 };

static struct cuda_device cuda;
static char folder[64];

static int open_device(void **state)
{
    (void)state;
    sim_reset();
    sim_set_mode(SIM_EAGER);
    memset(&cuda, 0, sizeof(cuda));
    cuda.capability = 90;
    background_init(&cuda.background);
    disk_cache_init(&cuda.cache, NULL, DISK_CACHE_LIMIT);
    fused_table_init(&cuda.fused);
    strcpy(folder, "/tmp/sluice-fused-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static void close_rtc(void)
{
    background_deinit(&cuda.background);
    rtc_close(&cuda);
    fused_table_deinit(&cuda.fused);
}

static int close_device(void **state)
{
    char command[128];

    (void)state;
    sim_nvrtc_hold(false);
    close_rtc();
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

/* The next process: what is in memory is gone, what is on disk is there. */
static void start_anew(void)
{
    close_rtc();
    sim_reset();
    background_init(&cuda.background);
    disk_cache_init(&cuda.cache, folder, DISK_CACHE_LIMIT);
    fused_table_init(&cuda.fused);
}

/* ---- programs ---- */

static size_t element_bytes(enum dtype dtype)
{
    return dtype == DTYPE_DOUBLE ? 8 : dtype == DTYPE_FLOAT ? 4 : 2;
}

static struct pointwise empty_program(enum pointwise_type type, enum dtype dtype)
{
    struct pointwise program = {.type = type, .inputs = INPUTS, .grouped = 1};

    program.walk = (struct walk){.count = COUNT, .rank = 1, .sizes = {COUNT}};
    program.out.dtype = dtype;
    program.out.strides.of[0] = 1;
    program.out.vector = type == PW_FLOAT;
    for (size_t i = 0; i < INPUTS; i++) {
        program.in[i].dtype = dtype;
        program.in[i].strides.of[0] = 1;
        program.in[i].vector = type == PW_FLOAT;
    }
    return program;
}

static void add_step(struct pointwise *program, uint8_t op, uint8_t from, double a, double b)
{
    program->step[program->steps++] =
        (struct pointwise_step){.op = op, .from = from, .a = a, .b = b};
}

/* The step on input 0 and 1, its bits stirred into what the ones before gave. */
static void add_tested(struct pointwise *program, uint8_t op)
{
    add_step(program, PW_load, 0, 0, 0);
    add_step(program, op, 1, 0.75, -0.3125);
    if (program->steps > 2)
        add_step(program, PW_mul, PW_FROM_SAVED, 0, 0);
    add_step(program, PW_add, 2, 0, 0);
    program->step[program->steps - 1].saves = 1;
}

static struct pointwise small_program(void)
{
    struct pointwise program = empty_program(PW_FLOAT, DTYPE_FLOAT);

    add_step(&program, PW_load, 0, 0, 0);
    add_step(&program, PW_mul, 1, 0, 0);
    add_step(&program, PW_add, 2, 0, 0); /* with the step before it one operation, if it might */
    return program;
}

/* ---- runs ---- */

struct run_memory {
    char *in[INPUTS], *out;
    size_t bytes;
};

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Values of both signs, with a few that are not numbers. */
static double value_of(uint64_t *seed)
{
    static const double odd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 65504, -1e30};
    uint64_t die = draw(seed);

    if (die % 16 == 0)
        return odd[die / 16 % 8];
    return ((double)(die % 100003) / 50001 - 1) * (die % 3 == 0 ? 8 : 1);
}

static void fill(void *to, enum dtype dtype, uint64_t seed)
{
    for (size_t i = 0; i < COUNT; i++) {
        double value = value_of(&seed);

        if (dtype == DTYPE_DOUBLE)
            ((double *)to)[i] = value;
        else if (dtype == DTYPE_FLOAT)
            ((float *)to)[i] = (float)value;
        else if (dtype == DTYPE_FLOAT16)
            ((uint16_t *)to)[i] = half_from_float((float)value);
        else
            ((uint16_t *)to)[i] = bfloat16_from_float((float)value);
    }
}

static void run(struct pointwise program, const void *kernel, void *out)
{
    enum dtype dtype = (enum dtype)program.out.dtype;
    size_t bytes = COUNT * element_bytes(dtype);
    void *arguments[] = {&program};
    char values[COUNT * 8];
    cudaError_t error;

    for (size_t i = 0; i < INPUTS; i++) {
        fill(values, dtype, i + 1);
        assert_int_equal(cudaMalloc(&program.in[i].data, bytes), cudaSuccess);
        assert_int_equal(cudaMemcpy(program.in[i].data, values, bytes, cudaMemcpyHostToDevice),
                         cudaSuccess);
    }
    assert_int_equal(cudaMalloc(&program.out.data, bytes), cudaSuccess);
    error = kernel == NULL
                ? cuda_pointwise(&program, NULL)
                : cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){256, 1, 1}, arguments, 0, NULL);
    assert_int_equal(error, cudaSuccess);
    assert_int_equal(cudaMemcpy(out, program.out.data, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(cudaFree(program.out.data), cudaSuccess);
    for (size_t i = 0; i < INPUTS; i++)
        assert_int_equal(cudaFree(program.in[i].data), cudaSuccess);
}

static struct fused *take(const struct pointwise *program)
{
    const char *why = "";
    struct fused *fused = fused_take(&cuda, program, &why);

    if (fused == NULL)
        fail_msg("%s", why);
    return fused;
}

/* What became of it. */
static const char *outcome(const struct fused *fused)
{
    static char text[96];

    background_settle(&cuda.background);
    fused_describe(fused, text, sizeof(text));
    return text;
}

/* The bits; of what is no number only that it is none: which bits it has the hardware decides,
 * whose are the same ones always. */
static bool same(enum dtype dtype, const char *a, const char *b)
{
    size_t bytes = element_bytes(dtype);
    double x[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        const char *at = i == 0 ? a : b;
        uint16_t half;

        memcpy(&half, at, sizeof(half));
        if (dtype == DTYPE_DOUBLE)
            memcpy(&x[i], at, bytes);
        else if (dtype == DTYPE_FLOAT)
            x[i] = (double)*(const float *)(const void *)at;
        else
            x[i] = (double)(dtype == DTYPE_FLOAT16 ? float_from_half(half)
                                                   : float_from_bfloat16(half));
    }
    return memcmp(a, b, bytes) == 0 || (isnan(x[0]) && isnan(x[1]));
}

static void assert_same_bits(const struct pointwise *program)
{
    struct fused *fused = take(program);
    _Alignas(8) char interpreted[COUNT * 8], compiled[COUNT * 8];
    enum dtype dtype = (enum dtype)program->out.dtype;
    size_t bytes = element_bytes(dtype);

    (void)outcome(fused);
    assert_non_null(fused_kernel(fused));
    run(*program, NULL, interpreted);
    run(*program, fused_kernel(fused), compiled);
    fused_drop(fused);
    for (size_t i = 0; i < COUNT; i++)
        if (!same(dtype, interpreted + i * bytes, compiled + i * bytes)) {
            char *source = fused_source(program);
            uint64_t got = 0, wanted = 0;

            memcpy(&wanted, interpreted + i * bytes, bytes);
            memcpy(&got, compiled + i * bytes, bytes);
            print_message("%s", strstr(source, "pointwise_fused"));
            free(source);
            fail_msg("element %zu is %llx, the interpreter's %llx", i, (unsigned long long)got,
                     (unsigned long long)wanted);
        }
}

/* ---- same bits ---- */

/* PTX is what the simulator runs: machine code for every step would take most of the time. */
static void ask_for_ptx(void)
{
    const char *why;
    struct rtc *rtc = (struct rtc *)(uintptr_t)rtc_get(&cuda, &why);

    assert_non_null(rtc);
    strcpy(rtc->target, "--gpu-architecture=compute_90");
    rtc->has_machine_code = false;
}

static void steps_on(enum pointwise_type type, enum dtype dtype, unsigned apart)
{
    struct pointwise program = empty_program(type, dtype);

    ask_for_ptx();
    for (unsigned op = 0; op < PW_REAL_OPS; op += apart) {
        add_tested(&program, (uint8_t)op);
        if (program.steps + 4 <= POINTWISE_STEPS && op + apart < PW_REAL_OPS)
            continue;
        assert_same_bits(&program);
        program.steps = 0;
    }
    assert_int_equal(sim_findings(), 0);
}

static void every_step_on_floats_has_the_bits_of_the_interpreter(void **state)
{
    (void)state;
    steps_on(PW_FLOAT, DTYPE_FLOAT, 1);
}

/* By the same text: each seventh will do. */
static void steps_on_doubles_have_the_bits_of_the_interpreter(void **state)
{
    (void)state;
    steps_on(PW_DOUBLE, DTYPE_DOUBLE, 7);
}

static void sixteen_bits_are_read_and_rounded_as_the_interpreter_does(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT16, DTYPE_BFLOAT16};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct pointwise program = small_program();

        program.out.dtype = types[i];
        for (size_t k = 0; k < INPUTS; k++)
            program.in[k].dtype = types[i];
        assert_same_bits(&program);
    }
    assert_int_equal(sim_findings(), 0);
}

/* ---- who makes it, and when ---- */

static void a_kernel_is_made_while_others_go_on(void **state)
{
    struct pointwise program = small_program();
    char out[COUNT * 8], text[96];
    struct fused *fused;

    (void)state;
    sim_nvrtc_hold(true);
    fused = take(&program);
    sim_nvrtc_await_held();
    assert_null(fused_kernel(fused));
    fused_describe(fused, text, sizeof(text));
    assert_string_equal(text, "interpreter, until nvrtc has made it");
    run(program, NULL, out);
    sim_nvrtc_hold(false);
    assert_string_equal(outcome(fused), "sm_90 by nvrtc");
    assert_non_null(fused_kernel(fused));
    assert_int_equal(atomic_load(&cuda.device.kernels_changed), 1);
    fused_drop(fused);
    assert_int_equal(sim_open("library"), 0);
}

static void programs_of_the_same_steps_share_one(void **state)
{
    struct pointwise program = small_program(), longer = small_program();
    struct fused *first = take(&program), *second;

    (void)state;
    longer.walk.count = longer.walk.sizes[0] = 5 * COUNT;
    second = take(&longer);
    assert_ptr_equal(first, second);
    fused_drop(first);
    (void)outcome(second);
    assert_int_equal(sim_count("nvrtcCompileProgram"), 1);
    fused_drop(second);
    assert_int_equal(cuda.fused.count, 0);
}

static void what_nobody_wants_any_more_is_not_compiled(void **state)
{
    struct pointwise program = small_program(), other = small_program();
    struct fused *first, *second;

    (void)state;
    other.step[1].op = PW_sub;
    sim_nvrtc_hold(true);
    first = take(&program);
    sim_nvrtc_await_held();
    second = take(&other);
    fused_drop(second);
    fused_drop(first); /* while it is compiled */
    sim_nvrtc_hold(false);
    background_deinit(&cuda.background);
    background_init(&cuda.background);
    assert_int_equal(sim_count("nvrtcCompileProgram"), 1);
    assert_int_equal(cuda.fused.count, 0);
    assert_int_equal(sim_open("library"), 0);
}

static void a_compiler_or_driver_that_refuses_leaves_the_interpreter(void **state)
{
    static const char *const calls[] = {"nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetPTX",
                                        "cudaLibraryGetKernel", "cudaFuncGetAttributes"};

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct pointwise program = small_program();
        struct fused *fused;

        start_anew();
        sim_fail_nth(calls[i], 1, OUT_OF_MEMORY);
        fused = take(&program);
        assert_string_equal(outcome(fused), "interpreter: nvrtc or the driver refused its kernel");
        assert_null(fused_kernel(fused));
        fused_drop(fused);
        assert_int_equal(sim_open("library"), 0);
    }
}

static void without_a_compiler_the_interpreter_says_why(void **state)
{
    struct pointwise program = small_program();
    const char *why = "";

    (void)state;
    sim_fail_nth("nvrtcVersion", 1, OUT_OF_MEMORY);
    assert_null(fused_take(&cuda, &program, &why));
    assert_string_equal(why, "NVRTC does not start");
    assert_null(fused_kernel(NULL));
}

/* The simulated device refuses machine code, as one does that it was not made for. */
static void code_is_for_the_devices_own_architecture_or_the_next_below(void **state)
{
    static const struct {
        int capability;
        const char *target;
    } rows[] = {{75, "--gpu-architecture=sm_75"},
                {86, "--gpu-architecture=sm_86"},
                {103, "--gpu-architecture=sm_103"},
                {122, "--gpu-architecture=sm_121"},
                {150, "--gpu-architecture=compute_121"}};
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        start_anew();
        cuda.capability = rows[i].capability;
        assert_non_null(rtc_get(&cuda, &why));
        assert_string_equal(rtc_get(&cuda, &why)->target, rows[i].target);
    }
    cuda.capability = 90;
}

/* ---- the disk ---- */

static const char *make_again(void)
{
    struct pointwise program = small_program();
    struct fused *fused;
    const char *from;

    start_anew();
    fused = take(&program);
    from = outcome(fused);
    fused_drop(fused);
    return from;
}

/* The only file there. */
static void find_kept(char path[128])
{
    DIR *files = opendir(folder);
    struct dirent *entry;

    path[0] = '\0';
    while ((entry = readdir(files)) != NULL)
        if (entry->d_name[0] != '.')
            snprintf(path, 128, "%s/%.48s", folder, entry->d_name);
    closedir(files);
    assert_true(path[0] != '\0');
}

static void a_kernel_is_kept_on_disk_and_found_there(void **state)
{
    char out[COUNT * 8], again[COUNT * 8];
    struct pointwise program = small_program();
    struct fused *fused;

    (void)state;
    assert_string_equal(make_again(), "sm_90 by nvrtc");
    start_anew();
    fused = take(&program);
    assert_string_equal(outcome(fused), "sm_90 by disk");
    assert_int_equal(sim_count("nvrtcCompileProgram"), 0);
    run(program, fused_kernel(fused), out);
    run(program, NULL, again);
    assert_memory_equal(out, again, COUNT * sizeof(float));
    fused_drop(fused);
}

static void a_file_that_is_damaged_or_foreign_is_made_anew(void **state)
{
    char path[128];

    (void)state;
    assert_string_equal(make_again(), "sm_90 by nvrtc");
    find_kept(path);
    for (int way = 0; way < 4; way++) {
        FILE *file = fopen(path, way == 0 ? "w" : "r+");

        assert_non_null(file);
        if (way == 0)
            fputs("nothing of ours", file);
        else if (way == 1)
            assert_int_equal(ftruncate(fileno(file), 200), 0);
        else
            fseek(file, way == 2 ? 8 : -1, way == 2 ? SEEK_SET : SEEK_END);
        if (way >= 2)
            fputc('~', file);
        fclose(file);
        assert_string_equal(make_again(), "sm_90 by nvrtc");
        assert_string_equal(make_again(), "sm_90 by disk");
    }
}

static void another_architecture_has_files_of_its_own(void **state)
{
    struct pointwise program = small_program();
    struct fused *fused;

    (void)state;
    assert_string_equal(make_again(), "sm_90 by nvrtc");
    start_anew();
    cuda.capability = 80;
    fused = take(&program);
    assert_string_equal(outcome(fused), "sm_80 by nvrtc");
    fused_drop(fused);
    cuda.capability = 90;
    assert_string_equal(make_again(), "sm_90 by disk");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_step_on_floats_has_the_bits_of_the_interpreter),
        CASE(steps_on_doubles_have_the_bits_of_the_interpreter),
        CASE(sixteen_bits_are_read_and_rounded_as_the_interpreter_does),
        CASE(a_kernel_is_made_while_others_go_on),
        CASE(programs_of_the_same_steps_share_one),
        CASE(what_nobody_wants_any_more_is_not_compiled),
        CASE(a_compiler_or_driver_that_refuses_leaves_the_interpreter),
        CASE(without_a_compiler_the_interpreter_says_why),
        CASE(code_is_for_the_devices_own_architecture_or_the_next_below),
        CASE(a_kernel_is_kept_on_disk_and_found_there),
        CASE(a_file_that_is_damaged_or_foreign_is_made_anew),
        CASE(another_architecture_has_files_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
