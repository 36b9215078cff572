/* Plans of blocks: looked at, saved, edited, and run again. Included by grpc.h; not of the standard.
 *
 *   grpc_plan("heft") { step(); }                 what the block would be mapped to; nothing is called
 *   if (grpc_map_error_np() == GRPC_NO_ERROR) grpc_plan_save_np("step.json");
 *   ...
 *   grpc_map("file:step.json") { step(); }        the block as that plan has it
 *
 * A plan says which server runs each call of a block, and in which order. Its text is JSON, the same as in Python and Rust:
 * docs/plans.md describes it, `gridloom explain step.json` explains it. It may be edited: the server and order of each call count.
 *
 * A plan fits a block that makes the same calls in the same order; arguments may differ. The calls of a plan are those with a
 * place in it (not those with files, callbacks, remote data and the like), numbered from 0 in the order in which the block makes them.
 * Servers go by name. If a plan does not fit a block, or its file cannot be read, grpc_map_error_np gives
 * GRPC_OTHER_ERROR_CODE, and each call is mapped by itself. If a server is lost, what it had is mapped anew. */
#ifndef GRIDLOOM_GRPC_PLAN_H
#define GRIDLOOM_GRPC_PLAN_H

#include "grpc_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Has the block that follows mapped, and makes no call: grpc_plan(heuristic) { ... }. It is run once, as grpc_map runs a
 * block first, and follows the same rules. `break`, `return` and `goto` in it end the block, and the program goes on behind
 * it. Sessions that are begun in it end with it. It cannot stand in a block of grpc_map. Afterwards grpc_map_error_np() gives its
 * error, the functions below its plan, and grpc_map_report_np writes the plan in words. Without a session the block is not run.
 * @param heuristic  As for grpc_map. */
#define grpc_plan(heuristic)                                                                                           \
    GRPC_BLOCK_(grpc_plan_new_np((heuristic), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),                 \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* The plan of this thread's last block of grpc_map or grpc_plan, as text. Of one that was run it is the plan that was made at its
 * beginning.
 * @param[out] plan  The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is none. MT-safe. */
grpc_error_t grpc_plan_get_np(char **plan);

/* Writes the same to a file. @return GRPC_OTHER_ERROR_CODE if there is none, or the file cannot be written. MT-safe. */
grpc_error_t grpc_plan_save_np(const char *file_name);

/* Gives a plan a name, by which blocks may be mapped from then on: grpc_map(name) { ... }. The plan of a file needs none:
 * grpc_map("file:PATH").
 * @param name  Not one of those that `gridloom heuristics` lists. One that was given is given anew.
 * @param plan  Its text; NULL: the name is forgotten.
 * @return GRPC_OTHER_ERROR_CODE if the name cannot be given, or the text is no plan. MT-safe. */
grpc_error_t grpc_plan_define_np(const char *name, const char *plan);

/* Another plan, with a call on another server. Its times are predicted anew.
 * @param call        Its number, from 0.
 * @param[out] moved  The other plan. The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is no such call or server in the plan, or the server cannot run it. MT-safe. */
grpc_error_t grpc_plan_move_np(const char *plan, size_t call, const char *server_name, char **moved);

/* The server of a call in a plan, written to `text` as snprintf does; its length; -1 with an error. MT-safe. */
int grpc_plan_server_np(const char *plan, size_t call, char *text, size_t size);

/* What a plan is predicted to take, in seconds, and how many calls it has. Both may be NULL.
 * @param[out] seconds  NAN if it is not known, as of a plan that was edited in a file without its problem. MT-safe. */
grpc_error_t grpc_plan_predicted_np(const char *plan, double *seconds, size_t *calls);

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
