//! The functions of `grpc_shared.h` and `omst.h` that a worker provides to the functions that it runs.

use gridloom_net::worker::native::LibraryVariable;

use super::super::worker_functions::WorkerFunctions;
use super::extensions::{grpc_last_error_get_np, grpc_last_error_text_np};
use super::omst::{OmstGetData, OmstPutData, OmstSetTimeLimit_np, OmstWait};
use super::shared::{
    grpc_shared_delete_np, grpc_shared_exists_np, grpc_shared_get_new_np, grpc_shared_get_np, grpc_shared_get_part_np,
    grpc_shared_place_np, grpc_shared_put_replicas_np, grpc_shared_share_np, grpc_shared_size_np, grpc_shared_wait_np,
};
use super::shared_requests::{
    grpc_shared_begin_get_np, grpc_shared_begin_put_np, grpc_shared_begin_wait_np, grpc_shared_cancel_np,
    grpc_shared_finish_np,
};

static FUNCTIONS: WorkerFunctions = WorkerFunctions {
    size: size_of::<WorkerFunctions>(),
    last_error: grpc_last_error_get_np,
    last_error_text: grpc_last_error_text_np,
    shared_put: grpc_shared_put_replicas_np,
    shared_get: grpc_shared_get_np,
    shared_get_new: grpc_shared_get_new_np,
    shared_size: grpc_shared_size_np,
    shared_wait: grpc_shared_wait_np,
    shared_exists: grpc_shared_exists_np,
    shared_place: grpc_shared_place_np,
    shared_delete: grpc_shared_delete_np,
    omst_put: OmstPutData,
    omst_wait: OmstWait,
    omst_get: OmstGetData,
    omst_limit: OmstSetTimeLimit_np,
    shared_get_part: grpc_shared_get_part_np,
    shared_begin_put: grpc_shared_begin_put_np,
    shared_begin_get: grpc_shared_begin_get_np,
    shared_begin_wait: grpc_shared_begin_wait_np,
    shared_finish: grpc_shared_finish_np,
    shared_cancel: grpc_shared_cancel_np,
    shared_share: grpc_shared_share_np,
};

/// Returns the variable in the functions' libraries that points to them.
pub fn worker_functions() -> LibraryVariable {
    LibraryVariable { name: c"gridloom_functions_np", value: (&raw const FUNCTIONS).cast() }
}
