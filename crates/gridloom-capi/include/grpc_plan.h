/* Plans of blocks: inspected, saved, edited, and run again. Included by grpc.h; not part of the standard.
 *
 *   grpc_plan("heft") { step(); }                 the plan to which the block would be mapped; nothing is called
 *   if (grpc_map_error_np() == GRPC_NO_ERROR) grpc_plan_save_np("step.json");
 *   ...
 *   grpc_map("file:step.json") { step(); }        the block, run by that plan
 *
 * A plan assigns a server to each call of a block, and defines their order. Its text is JSON, the same as in Python
 * and Rust: docs/plans.md describes it, `gridloom explain step.json` explains it. It may be edited: the server and
 * order of each call count.
 *
 * A plan fits a block that makes the same calls in the same order; arguments may differ. The calls of a plan are
 * those that can be part of it (not those with files, callbacks, remote data and the like), numbered from 0 in the
 * order in which the block makes them. Servers are identified by name. If a plan does not fit a block, or its file
 * cannot be read, grpc_map_error_np returns GRPC_OTHER_ERROR_CODE, and each call is mapped by itself. If a server is
 * lost, its calls are mapped again. */
#ifndef GRIDLOOM_GRPC_PLAN_H
#define GRIDLOOM_GRPC_PLAN_H

#include "grpc_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps the following block without making any call: grpc_plan(heuristic) { ... }. The block is run once, like the
 * first run of a block of grpc_map, and follows the same rules. `break`, `return` and `goto` in it end the block, and
 * the program continues after it. Sessions that are started in it end with it. It must not be inside a block of
 * grpc_map. Afterwards grpc_map_error_np() returns its error, the functions below return its plan, and
 * grpc_map_report_np writes the plan as text. Without a session the block is not run.
 * @param heuristic  As for grpc_map. */
#define grpc_plan(heuristic)                                                                                           \
    GRPC_BLOCK_(grpc_plan_new_np((heuristic), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),                 \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* Returns the plan of this thread's last block of grpc_map or grpc_plan, as text. For a block that was run it is the
 * plan that was made at its beginning.
 * @param[out] plan  The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is none. MT-safe. */
grpc_error_t grpc_plan_get_np(char **plan);

/* Writes the same to a file. @return GRPC_OTHER_ERROR_CODE if there is none, or the file cannot be written. MT-safe. */
grpc_error_t grpc_plan_save_np(const char *file_name);

/* Defines a plan with a name, by which blocks may then be mapped: grpc_map(name) { ... }. The plan of a file needs no
 * name: grpc_map("file:PATH").
 * @param name  Not one of those that `gridloom heuristics` lists. An existing name is redefined.
 * @param plan  Its text; NULL: the name is removed.
 * @return GRPC_OTHER_ERROR_CODE if the name is not allowed, or the text is not a plan. MT-safe. */
grpc_error_t grpc_plan_define_np(const char *name, const char *plan);

/* Returns another plan, with a call on another server. Its times are predicted again.
 * @param call        The call's number, from 0.
 * @param[out] moved  The other plan. The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is no such call or server in the plan, or the server cannot run it. MT-safe. */
grpc_error_t grpc_plan_move_np(const char *plan, size_t call, const char *server_name, char **moved);

/* Writes the server of a call in a plan to `text` as snprintf does. Returns its length; -1 with an error. MT-safe. */
int grpc_plan_server_np(const char *plan, size_t call, char *text, size_t size);

/* Returns the predicted time of a plan, in seconds, and its number of calls. Both pointers may be NULL. MT-safe.
 * @param[out] seconds  NAN if it is unknown, as for a plan that was edited in a file without its problem. */
grpc_error_t grpc_plan_predicted_np(const char *plan, double *seconds, size_t *calls);

/* Returns the memory that the client needs for the arrays of a plan's calls: its arguments, and the results that return to it.
 * If the client can use less, the plan's text (grpc_map_report_np) has a warning. The pointers may be NULL. MT-safe.
 * @param[out] needed_bytes        Largest number of bytes at a time, with this plan.
 * @param[out] call_by_call_bytes  The same if the calls were made one by one and all their results were returned.
 * @param[out] available_bytes     Bytes that the client could use when the plan was made: the memory of its simulated host, or
 *                                 the memory available to its process. NAN if they are unknown.
 * @return GRPC_OTHER_ERROR_CODE if the plan does not contain its problem. */
grpc_error_t grpc_plan_client_memory_np(const char *plan, double *needed_bytes, double *call_by_call_bytes,
                                        double *available_bytes);

/* ---- What the macros are made of: not for programs
 * ----------------------------------------------------------------------------------- */

/* As grpc_map_begin_np. */
void grpc_plan_begin_np(grpc_mapped_np *mapped, const char *heuristic, const char *file, int line);

static __inline__ grpc_mapped_np grpc_plan_new_np(const char *heuristic, const char *file, int line) {
    grpc_mapped_np mapped;
    mapped.exceptions = grpc_exceptions_np();
    grpc_plan_begin_np(&mapped, heuristic, file, line);
    return mapped;
}

#ifdef __cplusplus
}
#endif

#endif
