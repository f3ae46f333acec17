#include "lifecycle/options.h"

#include <string.h>

#include "support/unit.h"

static struct options options;

static enum status read_line(const char *line, struct error *err)
{
    static char text[512];
    char *argv[32] = {"sluiced"}, *rest = text;
    int argc = 1;

    snprintf(text, sizeof(text), "%s", line);
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL; argc++)
        argv[argc] = word;
    return options_read(&options, argc, argv, err);
}

static void expect_refusal(const char *line, const char *message)
{
    struct error err;

    assert_int_equal(read_line(line, &err), STATUS_INVALID);
    assert_string_equal(err.text, message);
}

static void nothing_means_run(void **state)
{
    (void)state;
    assert_ok(read_line("", NULL));
    assert_int_equal(options.action, ACTION_RUN);
    assert_null(options.source.file);
    assert_int_equal(options.source.set_count, 0);
}

static void values_follow_or_are_joined(void **state)
{
    (void)state;
    assert_ok(read_line("--config /a --instance 1 --set A.B=c=d --set=E.F=g --model-repository /m",
                        NULL));
    assert_string_equal(options.source.file, "/a");
    assert_string_equal(options.source.instance, "1");
    assert_int_equal(options.source.set_count, 3);
    assert_string_equal(options.source.sets[0], "A.B=c=d");
    assert_string_equal(options.source.sets[1], "E.F=g");
    assert_string_equal(options.source.sets[2], "Models.Repository=/m");
    assert_ok(read_line("--explain-plan=m.onnx --batch 8 --json", NULL));
    assert_int_equal(options.action, ACTION_EXPLAIN_PLAN);
    assert_string_equal(options.model_file, "m.onnx");
    assert_int_equal(options.batch, 8);
    assert_true(options.as_json);
}

static void faults_name_the_option(void **state)
{
    (void)state;
    expect_refusal("--confg x", "unknown option '--confg'; see sluiced --help");
    expect_refusal("--config", "--config takes a value: FILE");
    expect_refusal("--json=1 --list-ops", "--json takes no value");
    expect_refusal("--explain-plan m --batch 0", "--batch: found '0', allowed is 1 to 1048576");
    expect_refusal("--profile", "--batch, --json and --profile belong to --explain-plan");
    expect_refusal("--batch 3", "--batch, --json and --profile belong to --explain-plan");
    expect_refusal("--list-ops --version", "--version: only one thing can be asked for at a time");
    expect_refusal("--model-repository a --model-repository b",
                   "--model-repository twice: one folder is served");
    expect_refusal("stray", "unknown option 'stray'; see sluiced --help");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_means_run),
        cmocka_unit_test(values_follow_or_are_joined),
        cmocka_unit_test(faults_name_the_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
