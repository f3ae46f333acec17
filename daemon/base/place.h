/* Where threads run that are to work at once.
 *
 * A thread begins where its maker is, and one that is woken may go to whoever woke it; a kernel
 * that believes the other processors to be away (those of a virtual machine that sleep, for one)
 * leaves them there together for tens of milliseconds.
 */
#ifndef BASE_PLACE_H
#define BASE_PLACE_H

/* The processor that the calling thread runs on now; -1: unknown. */
int place_now(void);
/* Moves the calling thread, if it runs on `cpu`, to the processor `steps` (from 1) behind it among
 * those it may run on.  It is free to be moved again at once.  `cpu` of -1, one processor alone, or
 * a system that refuses: nothing happens. */
void place_apart(int cpu, unsigned steps);

#endif
