#include "support/unit.h"

#include <string.h>

#include <stdlib.h>
#include <unistd.h>

#include "ctl.h"

/* A version 1.0 file with this header text and so many element bytes. */
static size_t make_file(unsigned char *file, const char *header, size_t element_bytes)
{
    size_t length = strlen(header);

    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (unsigned char)(length & 0xFF);
    file[9] = (unsigned char)(length >> 8);
    memcpy(file + 10, header, length);
    for (size_t i = 0; i < element_bytes; i++)
        file[10 + length + i] = (unsigned char)i;
    return 10 + length + element_bytes;
}

static void reads_type_shape_and_elements(void **state)
{
    unsigned char file[512];
    size_t bytes =
        make_file(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
    struct npy npy;
    char why[256];

    (void)state;
    assert_true(npy_parse(file, bytes, &npy, why));
    assert_string_equal(npy.datatype, "FP32");
    assert_int_equal(npy.rank, 2);
    assert_int_equal(npy.shape[0], 2);
    assert_int_equal(npy.shape[1], 3);
    assert_int_equal(npy.byte_count, 24);
    assert_int_equal(((unsigned char *)npy.bytes)[23], 23);
    free(npy.bytes);
}

static void refuses_each_bad_file_with_a_reason(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
        const char *reason;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 20, "its shape needs 24"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }", 24, "Fortran order"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", 24, "element type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }", 24, "no number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 6, }", 24, "no tuple"},
        {"{'descr': '<f4', 'fortran_order': False}", 24, "lacks"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4, "rank"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 8,
         "overflow"},
    };
    unsigned char file[512];
    struct npy npy;
    char why[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t bytes = make_file(file, cases[i].header, cases[i].bytes);

        assert_false(npy_parse(file, bytes, &npy, why));
        if (strstr(why, cases[i].reason) == NULL)
            fail_msg("case %zu: '%s' does not say '%s'", i, why, cases[i].reason);
    }
}

static void refuses_every_truncation(void **state)
{
    unsigned char file[512];
    size_t bytes = make_file(file, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", 16);
    struct npy npy;
    char why[256];

    (void)state;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char *exact = malloc(i + 1); /* so that a sanitizer sees one byte too many */

        assert_non_null(exact);
        memcpy(exact, file, i);
        assert_false(npy_parse(exact, i, &npy, why));
        free(exact);
    }
}

static void writes_what_it_reads(void **state)
{
    static const float elements[] = {1.5F, -2, 3.25F};
    const struct sluice_tensor tensor = {.name = "x",
                                         .datatype = "FP32",
                                         .rank = 2,
                                         .shape = {3, 1},
                                         .data = elements,
                                         .bytes = sizeof(elements)};
    char path[] = "/tmp/sluice-test-XXXXXX", why[256];
    int fd = mkstemp(path);
    struct npy npy;

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_true(npy_write(path, &tensor, why));
    assert_true(npy_read(path, &npy, why));
    assert_string_equal(npy.datatype, "FP32");
    assert_int_equal(npy.rank, 2);
    assert_int_equal(npy.shape[0], 3);
    assert_memory_equal(npy.bytes, elements, sizeof(elements));
    free(npy.bytes);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_type_shape_and_elements),
        cmocka_unit_test(refuses_each_bad_file_with_a_reason),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(writes_what_it_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
