/* Declared graphs: calls that are described beforehand, for programs whose control flow depends on results. Included
 * by grpc.h; not part of the standard.
 *
 *   grpc_describe("steps") {                       nothing is called: the calls are described
 *       for (int i = 0; i < 100; i++) {
 *           grpc_describe_optional_np(i > 0);      further steps are optional
 *           grpc_call(&step, n, state);
 *           grpc_call(&norm, n, state, &size);
 *           grpc_fetch(&size);                     the program will read it
 *       }
 *   }
 *   grpc_follow("steps", "auto") {                 they are mapped together, and run as they are made
 *       do {
 *           grpc_call(&step, n, state);
 *           grpc_call(&norm, n, state, &size);
 *           grpc_fetch(&size);
 *       } while (size > 1e-6);
 *   }
 *
 * grpc_map needs no description, because it discovers the calls of its block in a first run. So the calls must not
 * depend on results. Here the block of grpc_follow runs once, and may read results (grpc_fetch) before it decides on
 * the next call. A call takes the place of the first described one that has not been made and that it matches: the
 * same function and server, the same results and inputs read, the same extents. Values of numbers and strings may
 * differ. The memory passed to the described calls does not matter, except for which calls read results of others.
 * Calls that do not depend on each other may be made in any order.
 *
 * Differences. A call that matches no described one is mapped by itself, and its result is right. After the block
 * grpc_map_error_np reports it as GRPC_MAP_DIFFERS_NP, and also a described call that was not made, unless it is
 * optional.
 *
 * Everything else is as in the second run of a block of grpc_map: the content of buffers, how the block is left, its
 * report (grpc_map.h). */
#ifndef GRIDLOOM_GRPC_GRAPH_H
#define GRIDLOOM_GRPC_GRAPH_H

#include "grpc_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Describes the calls of the following block, under a name: grpc_describe(name) { ... }. The block is run once, by
 * the rules of a block of grpc_map whose calls are discovered: no buffer changes, and grpc_local is skipped. Calls
 * that cannot be part of a plan (with files, callbacks, remote data and the like) are left out. It must not be inside
 * another block. `break`, `return` and `goto` in it end the block, and the program continues after it.
 * grpc_map_error_np() then returns its error. An existing name is redefined. */
#define grpc_describe(name)                                                                                            \
    GRPC_BLOCK_(grpc_describe_new_np((name), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),                  \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* Makes the following calls of this thread's block of grpc_describe optional, or required again (0). They are mapped
 * as if they were made.
 * @return GRPC_OTHER_ERROR_CODE outside of such a block. MT-safe. */
grpc_error_t grpc_describe_optional_np(int is_optional);

/* Maps a declared graph, and runs the following block once, in its plan: grpc_follow(name, heuristic) { ... }. Inside
 * a block of grpc_map it joins that block.
 * @param name       A name of grpc_describe or grpc_graph_define_np; or "file:PATH", for a file of
 *          grpc_graph_save_np.
 * @param heuristic  As for grpc_map; also a plan of grpc_graph_plan_np. */
#define grpc_follow(name, heuristic)                                                                                   \
    GRPC_BLOCK_(grpc_follow_new_np((name), (heuristic), __FILE__, __LINE__), GRPC_JOIN_(grpc_mapped_, __LINE__),       \
                GRPC_JOIN_(grpc_runs_, __LINE__))

/* Returns a declared graph as text: JSON, the same as in Python and Rust, which docs/graphs.md describes.
 * @param[out] graph  The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is none of that name. MT-safe. */
grpc_error_t grpc_graph_get_np(const char *name, char **graph);

/* Writes the same to a file. @return GRPC_OTHER_ERROR_CODE, also if the file cannot be written. MT-safe. */
grpc_error_t grpc_graph_save_np(const char *name, const char *file_name);

/* Defines a declared graph from its text. @param graph  Its text; NULL: the name is removed.
 * @return GRPC_OTHER_ERROR_CODE if the name is empty or begins with "file:", or the text is not a graph. MT-safe. */
grpc_error_t grpc_graph_define_np(const char *name, const char *graph);

/* Returns the plan to which a declared graph would be mapped, as text (grpc_plan.h); nothing is run.
 * @param heuristic  As for grpc_map.
 * @param[out] plan  The program frees it with free().
 * @return GRPC_OTHER_ERROR_CODE if there is no such graph, or if it cannot be mapped. MT-safe. */
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
