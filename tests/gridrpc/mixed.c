/* One program that calls functions of both kinds: a native library's, and Python's, whose sizes are the last inputs.
 *
 *   mixed CONFIGURATION */
#include "../../examples/gridrpc/example.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    grpc_function_handle_t transpose, outer, fails;
    const double x[2] = {1, 2}, y[3] = {10, 20, 30};
    double product[2][3];
    float a[2][3] = {{1, 2, 3}, {4, 5, 6}}, b[3][2];
    char text[256], cut[8];
    MUST(grpc_initialize(argc > 1 ? argv[1] : NULL));
    MUST(grpc_function_handle_default(&transpose, "gridrpc/transpose"));
    MUST(grpc_function_handle_default(&outer, "mixed/outer"));
    MUST(grpc_function_handle_default(&fails, "mixed/fails"));
    MUST(grpc_call(&transpose, 2, 3, a, b));
    MUST(grpc_call(&outer, x, y, (int64_t)2, (int64_t)3, product));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            if (b[j][i] != a[i][j] || product[i][j] != x[i] * y[j]) return 2;
    if (grpc_call(&fails, 1.5) != GRPC_SESSION_FAILED) return 3;
    if (strstr(grpc_last_error_text_np(), "ValueError: 1.5") == NULL) return 4;
    int length = grpc_function_handle_signature_np(&outer, text, sizeof text);
    if (length != (int)strlen(text) || strncmp(text, "mixed/outer(", 12) != 0) return 5;
    if (grpc_function_handle_signature_np(&outer, cut, sizeof cut) != length || strcmp(cut, "mixed/o") != 0) return 6;
    const char *call = "grpc_call(&handle, const double *x /* [m] */, const double *y /* [n] */, long m, long n, ";
    if (grpc_function_handle_prototype_np(&outer, text, sizeof text) != (int)strlen(text)) return 7;
    if (strncmp(text, call, strlen(call)) != 0) return 8;
    MUST(grpc_finalize());
    return 0;
}
