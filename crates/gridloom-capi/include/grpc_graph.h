/* Described graphs: calls that are described beforehand, for programs whose control flow depends on results. Included by grpc.h; not of
 * the standard.
 *
 *   grpc_describe("steps") {                       nothing is called: the calls are described
 *       for (int i = 0; i < 100; i++) {
 *           grpc_describe_optional_np(i > 0);      further steps may stay away
 *           grpc_call(&step, n, state);
 *           grpc_call(&norm, n, state, &size);
 *           grpc_fetch(&size);                     the program will look at it
 *       }
 *   }
 *   grpc_follow("steps", "auto") {                 they are mapped together, and run as they come
 *       do {
 *           grpc_call(&step, n, state);
 *           grpc_call(&norm, n, state, &size);
 *           grpc_fetch(&size);
 *       } while (size > 1e-6);
 *   }
 *
 * grpc_map needs no description, as it discovers the calls of its block by a first run. So they must not depend on results. Here the block
 * of grpc_follow runs once, and may look at results (grpc_fetch) before it decides on the next call. A call takes the place of the first
 * described one that has not come and that it fits: the same function and server, the same results and inputs read, the same extents.
 * Values of numbers and texts are free. What memory the described calls were given does not matter, but for which reads what another
 * makes. Calls that do not depend on one another may come in any order.
 *
 * Differences. A call that fits no described one is mapped by itself, and its result is right. It is told by
 * grpc_map_error_np as GRPC_MAP_DIFFERS_NP after the block, and so is a described call that did not come, unless it is optional.
 *
 * Everything else is as in a block of grpc_map that is run for real: what buffers hold, how it is left, its report (grpc_map.h). */
#ifndef GRIDLOOM_GRPC_GRAPH_H
#define GRIDLOOM_GRPC_GRAPH_H

#include "grpc_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describes the calls of the block that follows, under a name: grpc_describe(name) { ... }. It is run once, by the rules of a block of
 * grpc_map whose calls are discovered: no buffer changes, and grpc_local is skipped. Calls without a place in a plan (with files,
 * callbacks, remote data and the like) are left out. It cannot stand in another block. `break`, `return` and `goto` in it end the block,
 * and the program goes on behind it. grpc_map_error_np() then gives its error. A name that was given is given anew. */
#define grpc_describe(name)                                                                                            \
    GRPC_BLOCK_(grpc_describe_new_np((name), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),                  \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* Calls of this thread's block of grpc_describe that follow may stay away, or have to come again (0). They are mapped as if they came.
 * @return GRPC_OTHER_ERROR_CODE outside of such a block. MT-safe. */
grpc_error_t grpc_describe_optional_np(int is_optional);

/* Maps a described graph, and runs the block that follows once, in its plan: grpc_follow(name, heuristic) { ... }. In a block of grpc_map
 * it joins that.
 * @param name       Of grpc_describe or grpc_graph_define_np; or "file:PATH", for what grpc_graph_save_np wrote.
 * @param heuristic  As for grpc_map; also a plan of grpc_graph_plan_np. */
#define grpc_follow(name, heuristic)                                                                                   \
    GRPC_BLOCK_(grpc_follow_new_np((name), (heuristic), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),       \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* A described graph as text: JSON, the same as in Python and Rust, which docs/graphs.md describes.
 * @param[out] graph  The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is none of that name. MT-safe. */
grpc_error_t grpc_graph_get_np(const char *name, char **graph);

/* Writes the same to a file. @return GRPC_OTHER_ERROR_CODE, also if the file cannot be written. MT-safe. */
grpc_error_t grpc_graph_save_np(const char *name, const char *file_name);

/* Gives a described graph a name. @param graph  Its text; NULL: the name is forgotten.
 * @return GRPC_OTHER_ERROR_CODE if the name is empty or begins with "file:", or the text is no graph. MT-safe. */
grpc_error_t grpc_graph_define_np(const char *name, const char *graph);

/* What a described graph would be mapped to, as the text of a plan (grpc_plan.h); nothing is run.
 * @param heuristic  As for grpc_map.
 * @param[out] plan  The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is no such graph, or it cannot be mapped. MT-safe. */
grpc_error_t grpc_graph_plan_np(const char *name, const char *heuristic, char **plan);

/* ---- What the macros are made of: not for programs
 * ----------------------------------------------------------------------------------- */

/* As grpc_map_begin_np. */
void grpc_describe_begin_np(grpc_mapped_np *mapped, const char *name, const char *file, int line);
void grpc_follow_begin_np(grpc_mapped_np *mapped, const char *name, const char *heuristic, const char *file, int line);

static __inline__ grpc_mapped_np grpc_describe_new_np(const char *name, const char *file, int line) {
    grpc_mapped_np mapped;
    mapped.exceptions = grpc_exceptions_np();
    grpc_describe_begin_np(&mapped, name, file, line);
    return mapped;
}

static __inline__ grpc_mapped_np grpc_follow_new_np(const char *name, const char *heuristic, const char *file, int line) {
    grpc_mapped_np mapped;
    mapped.exceptions = grpc_exceptions_np();
    grpc_follow_begin_np(&mapped, name, heuristic, file, line);
    return mapped;
}

#ifdef __cplusplus
}
#endif

#endif
