/* Heuristics defined by the program: functions that decide where the calls of a block run. Included by grpc.h; not
 * part of the standard.
 *
 *   static int in_turn(const grpc_problem_np *problem, int *servers, int *order, void *context) {
 *       for (size_t call = 0; call < problem->calls_count; call++) servers[call] = (int)(call % problem->servers_count);
 *       return 0;
 *   }
 *   ...
 *   grpc_heuristic_define_np("in-turn", in_turn, NULL, 0);
 *   grpc_map("in-turn") { step(); }
 *
 * The function runs when a block is mapped, on a thread of its own while the block's thread waits, once for each
 * block and each time that it is mapped again. It gets the calls and the current state of the grid. Its result is
 * checked. If the result cannot be run, or if the function fails or takes too long, grpc_map_error_np returns
 * GRPC_OTHER_ERROR_CODE with the name and the reason, and each call is mapped by itself. The function may make plain
 * calls. It must not map blocks by heuristics defined by the program, nor throw, nor leave by longjmp. Calls of a
 * lost server are mapped by "heft". */
#ifndef GRIDLOOM_GRPC_HEURISTIC_H
#define GRIDLOOM_GRPC_HEURISTIC_H

#include "grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call to be mapped. A call follows those whose results it reads. */
typedef struct grpc_problem_call_np {
    const char *function;
    double work_flops;     /* negative if its signature does not state it */
    size_t inputs_count;
    const int *inputs;     /* numbers of the data that it reads; outputs: those that it makes */
    size_t outputs_count;
    const int *outputs;
    const double *seconds; /* predicted run time on each server; HUGE_VAL if it cannot run there */
} grpc_problem_call_np;

/* A server to which calls can be mapped; servers are in order of name. */
typedef struct grpc_problem_server_np {
    const char *name;
    uint64_t memory_bytes;      /* limit of its store */
    size_t slots;               /* number of the block's calls that it runs at a time */
    const double *busy_seconds; /* for each slot: time until other work promised to it has ended */
} grpc_problem_server_np;

/* A datum that calls make or read. */
typedef struct grpc_problem_datum_np {
    uint64_t size_bytes;
    int producer;         /* the call that makes it; -1 if it already exists */
    int readers;          /* number of calls that read it */
    int is_wanted;        /* whether it has to be sent to the client */
    size_t holders_count;
    const int *holders;   /* places that already have it: numbers of servers, or servers_count for the client */
} grpc_problem_datum_np;

/* A block and the grid, while the heuristic runs. Numbers begin with 0. */
typedef struct grpc_problem_np {
    size_t calls_count;
    const grpc_problem_call_np *calls;
    size_t servers_count;
    const grpc_problem_server_np *servers;
    size_t data_count;
    const grpc_problem_datum_np *data;
    const void *links_np; /* belongs to the library */
} grpc_problem_np;

/* Returns the transfer time of a datum of that size from one place to another, in seconds: places are numbers of
 * servers, or servers_count for the client. 0 from a place to itself; HUGE_VAL if the two cannot communicate (data
 * are then sent through the client), and for an invalid place. Only the heuristic may call it. */
double grpc_problem_link_seconds_np(const grpc_problem_np *problem, int from, int to, uint64_t size_bytes);

/* Decides where calls run.
 * @param servers  To be set: the number of the server of each call.
 * @param order    The numbers of the calls, in the order in which servers should run them; it may be changed.
 * @param context  The pointer that was passed with the name.
 * @return 0; any other value means that it failed, and is reported. */
typedef int (*grpc_heuristic_np)(const grpc_problem_np *problem, int *servers, int *order, void *context);

/* Defines a heuristic with a name, by which blocks may then be mapped: grpc_map(name) { ... }, and `heuristic` of the
 * configuration's [map]. Names are those of grpc_plan_define_np.
 * @param name       Not one of those that `gridloom heuristics` lists. An existing name is redefined.
 * @param heuristic  NULL: the name is removed.
 * @param context    Must be valid as long as blocks are mapped by it, and after its limit until it returns.
 * @param limit_s    Seconds of real time that it may take, in simulation too; 0: 30.
 * @return GRPC_OTHER_ERROR_CODE if the name is not allowed, or the limit is not a number from 0. MT-safe. */
grpc_error_t grpc_heuristic_define_np(const char *name, grpc_heuristic_np heuristic, void *context, double limit_s);

#ifdef __cplusplus
}
#endif

#endif
