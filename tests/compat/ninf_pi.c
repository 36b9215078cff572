/* Calls of several servers, which are named in the form ninf://HOST:PORT/NAME. argv: the servers. */
#include <stdio.h>
#include <stdlib.h>

#include "ninf.h"

#define TIMES 20000

int main(int argc, char **argv) {
    long count[8], sum = 0;
    int ids[8], servers = argc - 1, answers = 0, id;
    char entry[200];
    for (int i = 0; i < servers; i++) {
        struct ninf_stub_information *stub;
        int types[30];
        sprintf(entry, "ninf://%s/services/pi_trial", argv[i + 1]);
        if (Ninf_get_stub(entry, types, &stub) != NINF_OK) exit(2);
        if ((ids[i] = Ninf_call_async(entry, i, (long)TIMES, &count[i])) == NINF_ERROR) {
            Ninf_perror("pi_trial");
            exit(2);
        }
    }
    while ((id = Ninf_wait_any()) != NINF_OK)
        for (int i = 0; i < servers; i++)
            if (ids[i] == id) sum += count[i], answers++;
    printf("%d answers, %s\n", answers, Ninf_wait_any(&id) == NINF_OK && id == 0 ? "none left" : "some left");
    printf("PI = %.1f\n", 4.0 * (double)sum / (TIMES * servers));
    sprintf(entry, "ninf://no-such-host:1/services/pi_trial");
    if (Ninf_call(entry, 1, 1L, &sum) == NINF_ERROR) printf("%s\n", Ninf_error_string(Ninf_get_last_error()));
    return 0;
}
