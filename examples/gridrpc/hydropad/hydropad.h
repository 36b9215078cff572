/* Shared by the programs that use GridRPC, in addition to the universe: options, handles, output. */
#ifndef HYDROPAD_H
#define HYDROPAD_H

#include "cosmology.h"

#include <grpc.h>

/* The functions of hydropad.idl. */
typedef struct functions {
    grpc_function_handle_t grav, initvel, dark, bary;
} functions;

/* Reads `PROGRAM CONFIGURATION [CELLS [PARTICLES [STEPS]]]` (along an edge; 16, 16 and 8), begins the session, makes
 * the handles and the first waves. An error ends the program with its text. */
universe hydropad_begin(int argc, char **argv, functions *f);

/* Prints the checksum of the physics and ends the session. @return The program's exit status. */
int hydropad_end(const char *program, universe *v, functions *f);

/* An error ends the program. There is none while calls are discovered. */
void hydropad_must(grpc_error_t error, const char *what);
#define MUST(call) hydropad_must((call), #call)

#endif
