/* The variadic functions of OmniRpc.h, under names to which the exported symbols jump, and what they call. */
#ifndef GRIDLOOM_OMNIRPC_CALLS_H
#define GRIDLOOM_OMNIRPC_CALLS_H

#include <calls.h>

/* Converts the code of an entry's call to its status or request, and prints errors on standard error. */
int gridloom_omnirpc_status(const char *entry, grpc_error_t error);

int gridloom_variadic_OmniRpcModuleInit(char *module, ...);
int gridloom_variadic_OmniRpcCall(char *entry, ...);
void *gridloom_variadic_OmniRpcCallAsync(char *entry, ...);

#endif
