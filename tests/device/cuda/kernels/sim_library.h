/* What tests of operators ask of the simulator, which they only find at run time. */
#ifndef TESTS_DEVICE_CUDA_SIM_LIBRARY_H
#define TESTS_DEVICE_CUDA_SIM_LIBRARY_H

#include <dlfcn.h>
#include <stddef.h>

static inline void *library_function(const char *file, const char *name)
{
    void *library = dlopen(file, RTLD_NOW);

    return library != NULL ? dlsym(library, name) : NULL;
}

static inline void *sim_function(const char *name)
{
    return library_function("libcudart.so.13", name);
}

static inline unsigned long count_calls(const char *function)
{
    unsigned long (*ask)(const char *);

    *(void **)&ask = sim_function("sim_count");
    assert_non_null(ask);
    return ask(function);
}

static inline unsigned long count_findings(void)
{
    unsigned long (*ask)(void);

    *(void **)&ask = sim_function("sim_findings");
    assert_non_null(ask);
    return ask();
}

static inline void fail_call(const char *function, unsigned n, int code)
{
    void (*order)(const char *, unsigned, int);

    *(void **)&order = sim_function("sim_fail_nth");
    assert_non_null(order);
    order(function, n, code);
}

static inline void keep_nan(bool kept)
{
    void (*order)(bool);

    *(void **)&order = sim_function("sim_keep_nan");
    assert_non_null(order);
    order(kept);
}

#endif
