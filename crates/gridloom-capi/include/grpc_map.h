/* Groups of calls that are mapped together (SmartGridRPC). Included by grpc.h.
 *
 *   grpc_map("auto") {
 *       grpc_call(&gravity, n, rho, phi);
 *       grpc_call_async(&dark, &moving, n, phi, x, u, rho);
 *       grpc_call(&gas, n, phi, state);
 *       grpc_wait(moving);
 *       grpc_local(grpc_local_reads(rho)) { print_density(n, rho); }
 *   }
 *
 * The block runs twice. First its calls are discovered: nothing is sent, each call returns GRPC_NO_ERROR, each wait
 * and probe reports that sessions have ended, and no buffer changes. Then all calls are mapped together. The block
 * runs again, and this time each call is sent to the server that the plan assigns to it. Results are sent from server
 * to server as planned, and not through the client.
 *
 * Dependencies follow from the memory that is passed to calls: a call that reads a buffer, or part of it, depends on
 * the last previous call that wrote there. Sizes follow from scalars. So within the block
 * - calls, their order and their scalars should not depend on results of the block. If they do, the results are right
 *   all the same, but the plan was made for other calls, which grpc_map_error_np reports. A loop that ends by a result
 *   does not end while calls are discovered (a warning names it): put the block inside the loop;
 * - code that computes from buffers, or changes anything that a second run would see, must be in grpc_local() { ...
 *   }, which is skipped when calls are discovered;
 * - handles may be made and destructed, sessions waited for, blocks nested: an inner grpc_map joins the outer one.
 *   All other functions of the library that change something (grpc_remote_*, grpc_data_*) must be in grpc_local() {
 *   ... } or outside, and grpc_finalize is refused.
 *
 * Content of a buffer. After the block: everything last written in it, unless grpc_stays_remote specifies otherwise.
 * Within the block: what the program wrote, the results requested with grpc_fetch or grpc_local_reads, and the results
 * of calls that have been waited for if they are scalars or local variables. In grpc_local also all other results of
 * calls that have been waited for: one of 64 KiB or more in memory of its own pages (variables of the program, large
 * allocations of malloc) is fetched when the program or a system call first uses it, others before. This is right
 * without any declaration, but grpc_local_reads is faster: the plan then sends the result in time. Elsewhere in the
 * block, any other buffer has undefined content.
 *
 * With `debug = true` in the configuration's [map], or GRIDLOOM_GRPC_DEBUG=1 in the environment, grpc_local fetches only
 * what is declared. Any other result's buffer is filled with the byte 0xFB (doubles of about -1e289), so that a read of
 * it is noticeable, and its whole pages are closed: each read of them is reported (on standard error, by
 * grpc_map_error_np, in the report) and then gets the value. So are arguments at another address than when the calls
 * were discovered.
 *
 * Memory that a call of the block reads or writes must stay allocated until the block ends, because results are
 * written then. A variable of a function that the block calls needs to exist only until the call has been waited for.
 * Before any other buffer ends earlier, give it up with grpc_forget_np.
 *
 * Calls have the same meaning as elsewhere: grpc_call returns when the call has ended on its server, with its error.
 * To let servers run ahead, use grpc_call_async; a call may read the result of an earlier one without a wait between
 * them. Calls that are outstanding at the end of the block have ended when it is left; the program waits for their
 * sessions outside as usual.
 *
 * Leaving the block. `break` and `continue` leave it, not a loop around it; `return` and `goto` leave it and its
 * function. However it is left, when calls are discovered it is run again from its beginning: nothing is skipped
 * except the exit itself. `return` and `goto` then jump back, so that, in C++, the returned value is constructed
 * twice. exit() and C++ exceptions (of C++17; with earlier versions, none may leave the block) leave for good:
 * running calls end by themselves, and no results are written. longjmp() must not leave it: the next calls notice that
 * the block's frame has gone, grpc_map_error_np() reports it, and no results are written.
 *
 * Errors. If a server is lost, the required parts of its work are mapped and run again; the program does not notice,
 * unless the calls are bound to that server. If a call fails, it and the calls that need its results return their
 * errors, and everything else continues; the values that its results should have replaced are in the program's memory
 * after the block, as with a plain call. If the calls cannot be mapped, each is mapped by itself. If a call is made
 * that was not discovered, it is mapped by itself; discovered calls that are not made are left out. After the block
 * grpc_map_error_np() returns the error.
 *
 * Mapping again. If speeds and links differ from the predictions, or new servers register, the calls that have not
 * been made yet are mapped again, if that pays; those that were made run where they are. A block that was given a
 * plan keeps it, and so does one by "round-robin" or "random". grpc_map_again_np requests it at once.
 *
 * The calls of the block are those of the thread that runs it; other threads' calls are plain ones. */
#ifndef GRIDLOOM_GRPC_MAP_H
#define GRIDLOOM_GRPC_MAP_H

/* Its macros take any number of arguments, about which -pedantic would complain in C90 and C++98. */
#if defined __GNUC__ && ((defined __cplusplus && __cplusplus < 201103L) || (!defined __cplusplus && !defined __STDC_VERSION__))
#pragma GCC system_header
#endif

#include "grpc.h"

#ifdef __cplusplus
#if __cplusplus >= 201703L
#include <exception>
#endif
extern "C" {
#endif

/* Maps the calls of the following block together: grpc_map(heuristic) { ... }.
 * @param heuristic  A name that `gridloom heuristics` lists, with options as there, or NULL for the configuration's;
 *          take "auto" if in doubt. Or a plan (grpc_plan.h): "file:PATH", or its name; or the name of a heuristic
 *          defined by the program (grpc_heuristic.h). An unknown name is GRPC_OTHER_ERROR_CODE in
 *          grpc_map_error_np(), and calls are mapped one by one. */
#define grpc_map(heuristic)                                                                                            \
    GRPC_BLOCK_(grpc_map_new_np((heuristic), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),                  \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* Marks the following block as the program's own work within grpc_map, grpc_local() { ... }: it is skipped when calls
 * are discovered. `break` leaves it. Elsewhere the block just runs. The parentheses may contain
 * grpc_local_reads(...), or several such macros separated by commas. */
#define grpc_local(...) GRPC_LOCAL_(GRPC_JOIN_(grpc_local_, __LINE__), __VA_ARGS__)

/* Fetches the current values of these buffers to the client, as grpc_fetch does for each pointer; the plan takes it
 * into account, so that they arrive earlier than without it. Used in the parentheses of grpc_local, or as a statement
 * before it.
 * @return The first error of grpc_fetch. */
#define grpc_local_reads(...) grpc_fetch_all_np(GRPC_POINTERS_(__VA_ARGS__))

/* Declares that the following grpc_local changes these buffers: calls that read them afterwards take them from the
 * client. Without it, the library detects the change when the next call reads a buffer, by comparing it with what was
 * fetched or sent. But then the plan did not include it, and grpc_map_error_np() reports this. A buffer that was
 * neither fetched nor sent needs it: then the whole buffer is taken from the program. */
#define grpc_local_writes(...) grpc_written_np(GRPC_POINTERS_(__VA_ARGS__))

/* Keeps results that are written to these buffers in this block, from now on, on their servers when the block ends.
 * The calls that read the buffers, in later blocks or outside, take them from there; grpc_fetch fetches one. The
 * memory must stay allocated and unchanged until the result is fetched, another call writes the buffer, or
 * grpc_forget_np is called. */
#define grpc_stays_remote(...) grpc_stays_remote_np(GRPC_POINTERS_(__VA_ARGS__))

/* Fetches the current value of a buffer, with all results in it or at its address, and waits for it. In grpc_map it
 * is discovered, so that the plan takes it into account. A value that the client already has is not fetched again.
 * @param pointer  An address within the buffer, as it was passed to the calls.
 * @return GRPC_NO_ERROR, also if no call has written there; GRPC_SESSION_FAILED if the call that did has failed;
 *          GRPC_INVALID_DATA_NP if the value is lost and cannot be computed again. MT-safe. */
grpc_error_t grpc_fetch(const void *pointer);

/* Drops results that stay remote in a buffer, and in a block those that calls have written to it; its content is then
 * undefined. NULL: all that stay remote. MT-safe. */
grpc_error_t grpc_forget_np(const void *pointer);

/* Returns the error of this thread's last block of grpc_map that has ended: GRPC_NO_ERROR; the first error of the
 * calls that it made; GRPC_MAP_DIFFERS_NP if its calls, or their arguments, were not those discovered, although all
 * succeeded, or if the debug mode found reads that were not announced; GRPC_OTHER_ERROR_CODE if its calls could not
 * be mapped together. The text (grpc_last_error_text_np) names the call, and the one that was discovered in its
 * place. MT-safe. */
grpc_error_t grpc_map_error_np(void);

/* Maps the calls of this thread's block that have not been made yet again, by its heuristic (by "heft" if it was
 * given a plan), on the grid in its current state: for a program that knows that something has changed. Waits for the
 * new plan. Has no effect while calls are discovered.
 * @return GRPC_OTHER_ERROR_CODE outside of a block, if no call is left, or if they cannot be mapped; then the
 *          previous plan is used. MT-safe. */
grpc_error_t grpc_map_again_np(void);

/* Returns 1 while calls are discovered, 2 while they are made, 0 outside of grpc_map, for this thread. MT-safe. */
int grpc_map_phase_np(void);

/* Writes the predicted and the actual cost of this thread's last block of grpc_map: its calls, servers, bytes over
 * the client's links and between servers, in the format of `gridloom explain`. NULL: to standard error. MT-safe. */
grpc_error_t grpc_map_report_np(const char *file_name);

/* ---- What the macros are made of: not for programs ----------------------------------------------------------------
 *
 * The block is the body of two loops. The inner one runs it once, so that `break` and `continue` end it; the outer
 * one runs the inner one for each phase. A variable of the outer one has a cleanup that runs on `return` or `goto`.
 * If that happened while calls are discovered, the cleanup jumps back into the outer loop's condition, which
 * continues with the next phase. The frame still exists, and __builtin_setjmp keeps no register across the jump, so
 * the program's variables have their last values. */

#if defined(GRPC_PLAIN_SETJMP) || (defined(__clang__) && !defined(__x86_64__) && !defined(__i386__))
/* Variables that the block changes, and that are used after a `return` or `goto` in it, have to be volatile here. */
#include <setjmp.h>
typedef jmp_buf grpc_jump_np;
#define GRPC_SETJMP_(buffer) setjmp(buffer)
#define GRPC_LONGJMP_(buffer) longjmp(buffer, 1)
#else
typedef void *grpc_jump_np[5];
#define GRPC_SETJMP_(buffer) __builtin_setjmp(buffer)
#define GRPC_LONGJMP_(buffer) __builtin_longjmp(buffer, 1)
#endif

/* A running block of grpc_map. */
typedef struct grpc_mapped_np {
    uint64_t number; /* of the block, in its thread; 0 if it joins another or is not mapped */
    int phase;       /* the current phase: 0 before the first */
    int exceptions;  /* being handled when it began (C++) */
    grpc_jump_np again;
} grpc_mapped_np;

/* Begins the block, and sets its number and phase. grpc_map_error_np reports its error. */
void grpc_map_begin_np(grpc_mapped_np *mapped, const char *heuristic, const char *file, int line);
/* Begins the next phase. @return Whether the block runs in it. */
int grpc_map_next_np(grpc_mapped_np *mapped);
/* Reports that the block was left: `how` is 0 if it may run again, 1 for an exception, 2 if a program in Fortran
 * cannot return to it.
 * @return Whether it has to run again. */
int grpc_map_leave_np(grpc_mapped_np *mapped, int how);
/* @return Whether the program's own work runs. */
int grpc_local_np(void);
/* The pointers end with a null pointer; additional null pointers at the beginning are skipped. */
grpc_error_t grpc_fetch_all_np(const void *const *pointers);
grpc_error_t grpc_written_np(const void *const *pointers);
grpc_error_t grpc_stays_remote_np(const void *const *pointers);

static __inline__ int grpc_exceptions_np(void) {
#if defined(__cplusplus) && __cplusplus >= 201703L
    return std::uncaught_exceptions();
#else
    return 0;
#endif
}

static __inline__ grpc_mapped_np grpc_map_new_np(const char *heuristic, const char *file, int line) {
    grpc_mapped_np mapped;
    mapped.exceptions = grpc_exceptions_np();
    grpc_map_begin_np(&mapped, heuristic, file, line);
    return mapped;
}

/* Must not be inlined: __builtin_longjmp must not be in the same function as __builtin_setjmp. */
__attribute__((noinline, unused)) static void grpc_map_left_np(grpc_mapped_np *mapped) {
    if (grpc_map_leave_np(mapped, grpc_exceptions_np() > mapped->exceptions)) GRPC_LONGJMP_(mapped->again);
}

#define GRPC_JOIN_(name, line) GRPC_JOINED_(name, line)
#define GRPC_JOINED_(name, line) name##line
#define GRPC_BLOCK_(begun, mapped, runs)                                                                               \
    for (grpc_mapped_np mapped __attribute__((cleanup(grpc_map_left_np))) = begun;                                     \
         ((void)GRPC_SETJMP_(mapped.again), grpc_map_next_np(&mapped));)                                               \
        for (int runs = 1; runs; runs = 0)

#ifdef __cplusplus
}
#if __cplusplus >= 201103L
template <typename... Errors> inline int grpc_local_with_np(Errors...) { return grpc_local_np(); }
template <typename... Pointers> struct grpc_pointers_np {
    const void *all[sizeof...(Pointers) + 1];
    explicit grpc_pointers_np(Pointers... pointers) : all{pointers..., nullptr} {}
};
template <typename... Pointers> inline grpc_pointers_np<Pointers...> grpc_pointers_of_np(Pointers... pointers) {
    return grpc_pointers_np<Pointers...>(pointers...);
}
#define GRPC_POINTERS_(...) (grpc_pointers_of_np(__VA_ARGS__).all)
#define GRPC_LOCAL_(local, ...) for (int local = grpc_local_with_np(__VA_ARGS__); local; local = 0)
#endif /* grpc_local, grpc_stays_remote and the like need C++11. */
#else
#define GRPC_POINTERS_(...) ((const void *const[]){__VA_ARGS__, NULL})
/* The list contains the errors of the macros in the parentheses, which are thereby evaluated first. */
static __inline__ int grpc_local_with_np(const int *errors) {
    (void)errors;
    return grpc_local_np();
}
#define GRPC_LOCAL_(local, ...)                                                                                        \
    for (int local = grpc_local_with_np((const int[]){0, __VA_ARGS__}); local; local = 0)
#endif

#endif
