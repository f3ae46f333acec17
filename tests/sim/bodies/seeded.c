/* bodies_seeded none|overrun|barrier: one launch with that mistake. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seeded.h"

int main(int count, char **words)
{
    const char *mistake = count > 1 ? words[1] : "none";
    float *out = malloc(SEEDED_THREADS * sizeof(*out));
    bool right = true;

    if (out == NULL)
        return 2;
    seeded_run(out, strcmp(mistake, "overrun") == 0, strcmp(mistake, "barrier") == 0);
    for (int i = 0; i < SEEDED_THREADS; i++)
        right = right && out[i] == (float)(SEEDED_THREADS - 1 - i);
    puts(right ? "all is right" : "wrong numbers");
    free(out);
    return right ? 0 : 1;
}
