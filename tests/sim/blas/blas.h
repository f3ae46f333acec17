/* Control of the simulated cuBLASLt. */
#ifndef SLUICE_TESTS_SIM_BLAS_H
#define SLUICE_TESTS_SIM_BLAS_H

enum { SIM_BLAS_OFFERS = 8 };

/* From now on the heuristic offers `count` algorithms for each problem, which add in other orders
 * and take `milliseconds[i]` of the device's time, as far as events tell.  0: one, as before. */
__attribute__((visibility("default"))) void sim_blas_offer(int count, const double *milliseconds);
/* Which of them the last product ran on, from 0. */
__attribute__((visibility("default"))) int sim_blas_last(void);

#endif
