/* Nobody catches the exception. */
#include <gras.h>

int client(int argc, char *argv[]);
int client(int argc, char *argv[]) {
    gras_init(&argc, argv);
    gras_msg_handle(0.1);
    return 0;
}
