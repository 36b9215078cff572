/* Heuristics of the program's own: functions that say where the calls of a block run. Included by grpc.h; not of the standard.
 *
 *   static int in_turn(const grpc_problem_np *problem, int *servers, int *order, void *context) {
 *       for (size_t call = 0; call < problem->calls_count; call++) servers[call] = (int)(call % problem->servers_count);
 *       return 0;
 *   }
 *   ...
 *   grpc_heuristic_define_np("in-turn", in_turn, NULL, 0);
 *   grpc_map("in-turn") { step(); }
 *
 * The function runs when a block is mapped, on a thread of its own while the block's thread waits, once for each block and each time that
 * it is mapped again. It sees the calls and the grid as known then. Its result is checked. If it cannot be run, if the function
 * fails or takes too long, grpc_map_error_np gives GRPC_OTHER_ERROR_CODE with the name and the reason, and each call is mapped by itself. It may
 * make plain calls. It must not map blocks by heuristics of the program's own, nor throw, nor leave by longjmp. What a lost server had
 * is mapped by "heft". */
#ifndef GRIDLOOM_GRPC_HEURISTIC_H
#define GRIDLOOM_GRPC_HEURISTIC_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call to be mapped. A call comes after those whose results it reads. */
typedef struct grpc_problem_call_np {
    const char *function;
    double work_flops;     /* negative if its signature does not tell */
    size_t inputs_count;
    const int *inputs;     /* numbers of the data that it reads, and makes */
    size_t outputs_count;
    const int *outputs;
    const double *seconds; /* that it is predicted to run, by server; HUGE_VAL where it cannot */
} grpc_problem_call_np;

/* A server that calls can be mapped to; they stand in order of name. */
typedef struct grpc_problem_server_np {
    const char *name;
    uint64_t memory_bytes;      /* bound on its store */
    size_t slots;               /* calls of the block that it runs at a time */
    const double *busy_seconds; /* by slot: until it is free of what others were promised */
} grpc_problem_server_np;

/* What calls make or read. */
typedef struct grpc_problem_datum_np {
    uint64_t size_bytes;
    int producer;         /* the call that makes it; -1 if it is there before */
    int readers;          /* how many calls read it */
    int is_wanted;        /* whether it has to come to the client */
    size_t holders_count;
    const int *holders;   /* places that hold it before: numbers of servers, or servers_count for the client */
} grpc_problem_datum_np;

/* A block and the grid, while the heuristic runs. Numbers begin with 0. */
typedef struct grpc_problem_np {
    size_t calls_count;
    const grpc_problem_call_np *calls;
    size_t servers_count;
    const grpc_problem_server_np *servers;
    size_t data_count;
    const grpc_problem_datum_np *data;
    const void *links_np; /* the library's */
} grpc_problem_np;

/* How long a datum of that size takes from one place to another, in seconds: places are numbers of servers, or servers_count for the
 * client. 0 to itself; HUGE_VAL if the two cannot talk (data then go through the client), and for what is no place. To be called by the
 * heuristic. */
double grpc_problem_link_seconds_np(const grpc_problem_np *problem, int from, int to, uint64_t size_bytes);

/* Says where calls run.
 * @param servers  To be set: the number of the server of each call.
 * @param order    The numbers of the calls, in the order in which servers are to take them; it may be changed.
 * @param context  As it was given with the name.
 * @return 0; anything else says that it failed, and is told. */
typedef int (*grpc_heuristic_np)(const grpc_problem_np *problem, int *servers, int *order, void *context);

/* Gives a heuristic a name, by which blocks may be mapped from then on: grpc_map(name) { ... }, and `heuristic` of the configuration's [map].
 * Names are those of grpc_plan_define_np.
 * @param name       Not one of those that `gridloom heuristics` lists. One that was given is given anew.
 * @param heuristic  NULL: the name is forgotten.
 * @param context    Has to be valid as long as blocks are mapped by it, and behind its limit until it returns.
 * @param limit_s    Seconds of real time that it may take, in simulation too; 0: 30.
 * @return GRPC_OTHER_ERROR_CODE if the name cannot be given, or the limit is no number from 0. MT-safe. */
grpc_error_t grpc_heuristic_define_np(const char *name, grpc_heuristic_np heuristic, void *context, double limit_s);

#ifdef __cplusplus
}
#endif

#endif
