"""Annotations of the C headers for the Fortran module: parameters whose C type is not enough, and functions that are left out."""

import fnmatch

#: Words about parameters, by "function.parameter" in C; the name may have wildcards.
#:   =NAME     its name in Fortran
#:   optional  it may be left out: C gets NULL or 0. Optional arguments come last
#:   integer   a default integer
#:   in        C does not change it, although its type permits that
#:   list      addresses that end with NULL
#:   array     an array without a length
#:   kept      memory that is still used after the function has returned
#:   number    a pointer to an int that C reads
#:   address   an address, not memory of Fortran
PARAMETERS = {
    "*_attr_get_np.attr": "in",
    "*_with_attr_np.attr": "in",
    "grpc_data_free.URI_locations": "=uris optional",
    "grpc_data_getinfo.info_tag": "=tag",
    "grpc_data_getinfo.server_name": "optional",
    "grpc_data_load.URI_input": "=uri",
    "grpc_data_memory_mapping_set.data": "optional kept",
    "grpc_data_save.URI_output": "=uri",
    "grpc_data_wait.data": "list",
    "grpc_forget_np.pointer": "=buffer optional kept",
    "grpc_graph_define_np.graph": "optional",
    "grpc_heuristic_define_np.context": "optional address",
    "grpc_heuristic_define_np.heuristic": "optional",
    "grpc_heuristic_define_np.limit_s": "optional",
    "grpc_heuristic_np.order": "array",
    "grpc_heuristic_np.servers": "array",
    "grpc_initialize.config_file_name": "optional",
    "grpc_map_report_np.file_name": "optional",
    "grpc_plan_define_np.plan": "optional",
    "grpc_plan_move_np.call": "=number integer",
    "grpc_plan_predicted_np.calls": "integer",
    "grpc_plan_server_np.call": "=number integer",
    "grpc_remote_new_np.name": "optional",
    "grpc_session_attr_set_np.value": "number",
    # For the functions by hand that begin blocks.
    "grpc_*_begin_np.heuristic": "optional",
    "grpc_*_begin_np.file": "optional",
    "grpc_describe_begin_np.name": "optional",
}

#: Functions that call another one of C, which has the same effect: it returns its code, or it writes to memory of the program.
FUNCTIONS = {"grpc_call_arg_stack": "grpc_call_argstack", "grpc_session_info_get_np": "grpc_get_info_np"}

#: C distinguishes these from functions by capital letters.
RENAMED = {"GRPC_WAIT_ALL": "GRPC_DATA_WAIT_ALL", "GRPC_WAIT_ANY": "GRPC_DATA_WAIT_ANY"}

#: Copies are the same handle: only functions that make one change it.
HANDLES = {"grpc_function_handle_t", "grpc_object_handle_t_np"}
MAKE_HANDLES = ("*_default", "*_default_np", "*_init", "*_init_np", "*_init_with_attr_np")

#: Structures that are identified by their address.
BY_ADDRESS = {"grpc_data_t"}

#: Structures of C in which the module uses the first components only. The Fortran types of these names are written by hand.
PARTS = {"grpc_mapped_np": ("number", "phase")}

#: Types with private components, in addition to those whose components all have names in _np.
PRIVATE = {"grpc_handle_attr_t_np"}

#: Initial values of components that are not 0.
VALUES = {"grpc_session_details_np.*_s": -1}

#: A type of the system's headers that records contain.
TIMEVAL = "struct timeval { long tv_sec, tv_usec; } grpc_timeval_np"

#: Modules that are written by hand and that the functions use.
MODULES = ["grpc_texts", "grpc_errors", "grpc_stacks", "grpc_remotes"]

#: Number of arguments of a call.
ARGUMENTS_MAX = 32

HEADERS_LEFT_OUT = {
    "OmniRpc.h": "programs after OmniRPC are in C; Fortran has handles and grpc_call",
    "gridloom.h": "processes declare messages by macros of C",
    "gridloom_layout.h": "it annotates structures of C",
    "grpc_shared.h": "Fortran has grpc_remote_share_np and grpc_remote_find_shared_np",
    "omst.h": "Fortran has grpc_remote_share_np and grpc_remote_find_shared_np",
}

#: Functions, macros, types and constants; the names may have wildcards.
LEFT_OUT = {
    "grpc_*_release_np": "values are returned in variables of the program, which need no release",
    "grpc_arg_stack_*": "the type grpc_arg_stack_t has push, push_value, pop, clear and count",
    "*ArgStack": "it is NetSolve's name of a function of argument stacks",
    "pushArg": "it is NetSolve's name of a function of argument stacks",
    "popArg": "it is NetSolve's name of a function of argument stacks",
    "grpc_call_argstack*": "it is NetSolve's name of grpc_call_arg_stack",
    "mynetsl*": "it takes the function's name for each call; Fortran has handles and grpc_call",
    "netsl*": "it takes the function's name for each call; Fortran has handles and grpc_call",
    "grpc_get_last_error_np": "it is an earlier name of grpc_last_error_get_np",
    "*RealTime": "it is an earlier name of a component",
    "*CpuTime": "it is an earlier name of a component",
    "[sd]complex": "Fortran has complex numbers",
    "grpc_compression_info_t_np": "nothing is compressed",
}


def left_out(name):
    """Returns the reason for which the module does not have a name of C; None if it has it."""
    return next((reason for pattern, reason in LEFT_OUT.items() if fnmatch.fnmatchcase(name, pattern)), None)


def c_name(name):
    """Returns the name of a function or a part of a structure of C inside the module."""
    return "c_" + name.removeprefix("grpc_")


def words(function, parameter):
    """Returns the words about a parameter of C."""
    name = f"{function}.{parameter}"
    return " ".join(words for pattern, words in PARAMETERS.items() if fnmatch.fnmatchcase(name, pattern)).split()
