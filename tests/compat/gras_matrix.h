/* Declarations shared by client and server. */
#include <stdio.h>
#include <stdlib.h>

#include <gras.h>

#define SIZE 16

GRAS_DEFINE_TYPE(s_matrix,
struct s_matrix {
    int lines;
    int rows;
    double *ctn GRAS_ANNOTE(size, lines * rows);
};)
typedef struct s_matrix matrix_t;

void register_messages(void);
int server(int argc, char *argv[]);
int client(int argc, char *argv[]);
