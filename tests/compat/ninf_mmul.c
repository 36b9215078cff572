/* A synchronous call by name, and an error. */
#include <stdio.h>
#include <stdlib.h>

#include "ninf.h"

int main(int argc, char **argv) {
    double a[3][3], b[3][3], c[3][3];
    argc = Ninf_parse_arg(argc, argv);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) a[i][j] = i + 0.5 * j, b[i][j] = i == j;
    if (Ninf_call("services/matprod", 3, 3, 3, a, b, c) < 0) {
        Ninf_perror("Ninf_call matprod");
        exit(3);
    }
    printf("%d %g %g\n", argc, c[1][2], c[2][0]);
    if (Ninf_call("services/matprot", 3) == NINF_ERROR) printf("%s\n", Ninf_error_string(Ninf_get_last_error()));
    return 0;
}
