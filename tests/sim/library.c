/* What simulated libraries (blas/, dnn/) need of the simulator besides sim_enqueue(). */
#include "core.h"

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

void sim_find(const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    finding("%s", text);
}
