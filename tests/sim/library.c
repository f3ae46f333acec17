/* What simulated libraries (blas/, dnn/) need of the simulator besides sim_enqueue(). */
#include "core.h"
#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 64 };

int sim_library_call(const char *function)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct api functions[FUNCTIONS];
    size_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < FUNCTIONS - 1 && functions[i].name != NULL &&
           strcmp(functions[i].name, function) != 0)
        i++;
    if (functions[i].name == NULL)
        functions[i].name = function;
    pthread_mutex_unlock(&lock);
    return (int)api_begin(&functions[i], true);
}

void sim_set_plan_bytes(size_t bytes)
{
    sim_start();
    sim.plan_bytes = bytes;
}

size_t sim_plan_hold(void)
{
    const size_t bytes = sim.plan_bytes;

    return charge(bytes) ? bytes : 0;
}

void sim_plan_drop(size_t bytes)
{
    discharge(bytes);
}

void sim_keep_nan(bool kept)
{
    sim_start();
    sim.keeps_nan = kept;
}

bool sim_nan_is_kept(void)
{
    return sim.keeps_nan;
}

void sim_find(const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    finding("%s", text);
}
