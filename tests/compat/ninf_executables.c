/* Functions that are looked up once, sets of sessions, and what is known of a session. */
#include <stdio.h>
#include <stdlib.h>

#include <ninf.h>

int main(int argc, char **argv) {
    double sums[4];
    int ids[4], first = 0;
    argc = Ninf_parse_arg(argc, argv);
    Ninf_executable_t *add = Ninf_get_executable("add");
    if (add == NULL || Ninf_get_executable("no_such_function") != NULL) exit(2);
    for (int i = 0; i < 4; i++)
        if ((ids[i] = Ninf_call_executable_async(add, (double)i, 0.5, &sums[i])) == NINF_ERROR) exit(3);
    if (Ninf_wait_or(ids, 4, &first) != NINF_OK) exit(4);
    for (int i = 0; i < 4; i++)
        if (ids[i] == first) ids[i] = ids[3];
    if ((first = Ninf_wait_or(ids, 1)) != ids[0] || Ninf_wait_and(ids + 1, 2) != NINF_OK) exit(5);
    if (Ninf_call_executable(add, 20.0, 0.25, &sums[0]) != NINF_OK || Ninf_get_info(first) == NULL) exit(6);
    printf("%g %g %g, %d\n", sums[0], sums[1], sums[3], Ninf_session_probe(first) == NINF_ERROR);
    Ninf_executable_finalize(add);
    if (Ninf_wait(first) == NINF_ERROR) Ninf_perror("a session that was waited for");
    return 0;
}
