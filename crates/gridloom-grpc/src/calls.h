/* The interface between the variadic functions of grpc.h, which are in C (calls.c), and the library, which is in
 * Rust.
 *
 * Opening a call finds its function and returns how its arguments have to be read. They are read. Then the call is
 * run or started with them, which closes it. Codes and last errors belong to the library. */
#ifndef GRIDLOOM_GRPC_CALLS_H
#define GRIDLOOM_GRPC_CALLS_H

#include <complex.h>
#include <grpc.h>
#include <grpc_map.h>
#include <stdarg.h>

/* How an argument is passed. The numbers are those of `Read` in handles.rs. */
enum {
    GRIDLOOM_READ_INT = 1,              /* int, and types that C promotes to it */
    GRIDLOOM_READ_UNSIGNED = 2,
    GRIDLOOM_READ_INT64 = 3,
    GRIDLOOM_READ_UINT64 = 4,
    GRIDLOOM_READ_DOUBLE = 5,           /* and float */
    GRIDLOOM_READ_LONG_DOUBLE = 6,
    GRIDLOOM_READ_COMPLEX_FLOAT = 7,
    GRIDLOOM_READ_COMPLEX_DOUBLE = 8,
    GRIDLOOM_READ_COMPLEX_LONG_DOUBLE = 9,
    GRIDLOOM_READ_POINTER = 10
};

/* The same as PARAMETERS_MAX in base/limits.rs. */
enum { GRIDLOOM_ARGUMENTS_MAX = 128 };

/* An argument as it was passed. */
typedef union gridloom_slot {
    int64_t integer;
    uint64_t natural;
    double real;
    long double long_real;
    float _Complex complex_float;
    double _Complex complex_double;
    long double _Complex complex_long_double;
    void *pointer;
} gridloom_slot;

/* An open call: the arguments to read, and the library's own data. Both exist until it is run or started. */
typedef struct gridloom_open_call {
    const uint8_t *reads;
    size_t count;
    void *own;
} gridloom_open_call;

/* The stack pointer of the function that calls the current one. */
#define GRIDLOOM_POINTER() __builtin_dwarf_cfa()

/* Leaves a block of grpc_map that the program has left by longjmp. */
void gridloom_grpc_enter(const void *pointer);
/* Begins the next phase of a block that is in the function with this stack pointer. */
int gridloom_grpc_map_next(grpc_mapped_np *mapped, const void *pointer);
/* grpc_map_next_np. */
int gridloom_map_next(grpc_mapped_np *mapped);

grpc_error_t gridloom_grpc_open(grpc_function_handle_t *handle, gridloom_open_call *call);
/* Opens a call of a function by its name, without a handle. */
grpc_error_t gridloom_grpc_open_named(const char *function, gridloom_open_call *call);
/* Opens a call of a method of an object. */
grpc_error_t gridloom_grpc_open_method(grpc_object_handle_t_np *handle, const char *method, gridloom_open_call *call);
/* Runs it and waits for its end. */
grpc_error_t gridloom_grpc_run(gridloom_open_call *call, const gridloom_slot *slots);
/* Starts it; a null `id` is an error. */
grpc_error_t gridloom_grpc_begin(gridloom_open_call *call, const gridloom_slot *slots, grpc_sessionid_t *id);

/* The variadic functions of grpc.h and related headers, under names to which the library's exported symbols jump:
 * Rust's linker script does not export C definitions. */
grpc_error_t gridloom_variadic_grpc_call(grpc_function_handle_t *handle, ...);
grpc_error_t gridloom_variadic_grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session_id, ...);
grpc_error_t gridloom_variadic_mynetsl(const char *function, ...);
grpc_sessionid_t gridloom_variadic_mynetslnb(const char *function, ...);
grpc_error_t gridloom_variadic_grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...);
grpc_error_t gridloom_variadic_grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method,
                                                    grpc_sessionid_t *session_id, ...);

/* Opens a call of a module's Initialize; and registers it with its arguments, to run before calls of that module. */
grpc_error_t gridloom_grpc_open_module(const char *module, gridloom_open_call *call);
grpc_error_t gridloom_grpc_initialize_module(gridloom_open_call *call, const gridloom_slot *slots);

int gridloom_variadic_netsl(const char *function, ...);
int gridloom_variadic_netslnb(const char *function, ...);

/* Returns the next argument. `arguments` is a pointer because a va_list is indeterminate after a function has used
 * it. */
static inline gridloom_slot gridloom_next_slot(uint8_t read, va_list *arguments) {
    gridloom_slot slot = {0};
    switch (read) {
    case GRIDLOOM_READ_INT: slot.integer = va_arg(*arguments, int); break;
    case GRIDLOOM_READ_UNSIGNED: slot.natural = va_arg(*arguments, unsigned); break;
    case GRIDLOOM_READ_INT64: slot.integer = va_arg(*arguments, int64_t); break;
    case GRIDLOOM_READ_UINT64: slot.natural = va_arg(*arguments, uint64_t); break;
    case GRIDLOOM_READ_DOUBLE: slot.real = va_arg(*arguments, double); break;
    case GRIDLOOM_READ_LONG_DOUBLE: slot.long_real = va_arg(*arguments, long double); break;
    case GRIDLOOM_READ_COMPLEX_FLOAT: slot.complex_float = va_arg(*arguments, float _Complex); break;
    case GRIDLOOM_READ_COMPLEX_DOUBLE: slot.complex_double = va_arg(*arguments, double _Complex); break;
    case GRIDLOOM_READ_COMPLEX_LONG_DOUBLE:
        slot.complex_long_double = va_arg(*arguments, long double _Complex);
        break;
    default: slot.pointer = va_arg(*arguments, void *); break;
    }
    return slot;
}

/* The library opens no call with more than GRIDLOOM_ARGUMENTS_MAX arguments. */
static inline void gridloom_read_all(const gridloom_open_call *call, va_list *arguments, gridloom_slot *slots) {
    for (size_t i = 0; i < call->count; i++) slots[i] = gridloom_next_slot(call->reads[i], arguments);
}

/* Reads the arguments of an open call, which follow `last`. */
#define READ(last)                                                                                                     \
    va_start(arguments, last);                                                                                         \
    gridloom_read_all(&call, &arguments, slots);                                                                                \
    va_end(arguments)

#endif
