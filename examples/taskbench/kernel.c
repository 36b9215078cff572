/* The kernel of Task Bench's tasks, for programs in C: the given number of times a product and a sum of each of 64 cells, as in
   taskbench.rs. */
__attribute__((noinline)) void compute(double *cells, long iterations) {
    for (long i = 0; i < iterations; i++) {
        for (int cell = 0; cell < 64; cell++)
            cells[cell] = cells[cell] * 0.5 + 1.0;
        /* Each iteration counts. */
        __asm__ volatile("" : : "r"(cells) : "memory");
    }
}
