//! Queries of compiled bodies about the running call: whether it was cancelled (`grpc_is_canceled_np`), and how many
//! ranks its program wants.
//!
//! A function that has queried the former may end by itself when its call is cancelled; the server then waits a moment
//! before it kills the process.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use super::protocol::{ProgressBoard, Run};
use crate::segment::SharedWords;

/// The running call.
struct Current {
    /// The worker's progress words.
    words: Arc<SharedWords>,
    serial: u64,
    ranks: u32,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

fn set(current: Option<Current>) {
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = current;
}

/// Returns a property of the running call; 0 if none is running.
fn query(what: impl FnOnce(&Current) -> c_int) -> c_int {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, what)
}

/// Registers a call, which ends when the guard is dropped.
pub(super) fn begin(words: &Arc<SharedWords>, run: &Run) -> CallGuard {
    set(Some(Current { words: words.clone(), serial: run.serial, ranks: run.ranks }));
    CallGuard
}

/// Guard of a running call.
pub(super) struct CallGuard;

impl Drop for CallGuard {
    fn drop(&mut self) {
        set(None);
    }
}

/// Returns 1 if the running call was cancelled. Any thread of its function may call this.
extern "C" fn is_canceled() -> c_int {
    query(|current| c_int::from(ProgressBoard(current.words.words()).query_cancelled(current.serial)))
}

/// Returns the number of ranks that the program wants; 0 means the server's default.
extern "C" fn ranks() -> c_int {
    query(|current| c_int::try_from(current.ranks).unwrap_or(c_int::MAX))
}

/// A function without arguments that returns a number.
pub(super) type QueryFn = extern "C" fn() -> c_int;

/// Library variables that point to the query functions (`gridloom-idl/src/c_text.rs`, `gridloom-idl/prelude/ranks.h`,
/// `gridloom-capi/fortran/grpc_executable.f90`).
pub(super) const QUERIES: [(&[u8], QueryFn); 2] =
    [(b"gridloom_is_canceled_np", is_canceled), (b"gridloom_ranks_np", ranks)];
