/* The variadic functions of OmniRpc.h. They read their arguments as those of grpc.h do (gridloom-grpc). */
#include "omnirpc_calls.h"

int gridloom_variadic_OmniRpcModuleInit(char *module, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_module(module, &call);
    if (error == GRPC_NO_ERROR) {
        READ(module);
        error = gridloom_grpc_initialize_module(&call, slots);
    }
    return gridloom_omnirpc_status(module, error);
}

int gridloom_variadic_OmniRpcCall(char *entry, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_error_t error = gridloom_grpc_open_named(entry, &call);
    if (error == GRPC_NO_ERROR) {
        READ(entry);
        error = gridloom_grpc_run(&call, slots);
    }
    return gridloom_omnirpc_status(entry, error);
}

void *gridloom_variadic_OmniRpcCallAsync(char *entry, ...) {
    gridloom_open_call call;
    gridloom_slot slots[GRIDLOOM_ARGUMENTS_MAX];
    va_list arguments;
    grpc_sessionid_t id = GRPC_SESSIONID_VOID;
    grpc_error_t error = gridloom_grpc_open_named(entry, &call);
    if (error == GRPC_NO_ERROR) {
        READ(entry);
        error = gridloom_grpc_begin(&call, slots, &id);
    }
    /* A session's id is greater than 0. */
    return gridloom_omnirpc_status(entry, error) == 0 ? (void *)(intptr_t)id : NULL;
}
