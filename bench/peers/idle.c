/* Preloaded into the ranks of MPI: a rank that has nothing to do sleeps for 0.1 ms instead of polling. Sixteen polling
   ranks would take all processor time of a machine with few cores, including that of the emulated network. */
#include <time.h>

int sched_yield(void) {
    struct timespec pause = {0, 100000};
    return nanosleep(&pause, 0);
}
