//! What compiled bodies ask about the call that runs: whether it was cancelled (`grpc_is_canceled_np`), and how many ranks its program
//! wants.
//!
//! A function that has asked for the former may end by itself when its call is cancelled; the server then waits a moment before it ends the
//! process.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use super::protocol::{Board, Run};
use crate::segment::SharedWords;

/// The call that runs.
struct Current {
    /// Of this worker.
    words: Arc<SharedWords>,
    serial: u64,
    ranks: u32,
}

static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

fn set(current: Option<Current>) {
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = current;
}

/// What of the call that runs; 0 if none does.
fn ask(what: impl FnOnce(&Current) -> c_int) -> c_int {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, what)
}

/// A call begins. It has ended when the guard is dropped.
pub(super) fn begin(words: &Arc<SharedWords>, run: &Run) -> Running {
    set(Some(Current { words: words.clone(), serial: run.serial, ranks: run.ranks }));
    Running
}

/// A call runs.
pub(super) struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        set(None);
    }
}

/// 1 if the call that runs was cancelled. Any thread of its function may ask.
extern "C" fn is_canceled() -> c_int {
    ask(|current| c_int::from(Board(current.words.words()).asks(current.serial)))
}

/// How many ranks the program wants; 0 for those of the server.
extern "C" fn ranks() -> c_int {
    ask(|current| c_int::try_from(current.ranks).unwrap_or(c_int::MAX))
}

/// A function that takes nothing and gives a number.
pub(super) type Answer = extern "C" fn() -> c_int;

/// Variables of libraries that lead to what they ask (`gridloom-idl/src/c_text.rs`, `gridloom-idl/include/ranks.h`,
/// `gridloom-capi/fortran/grpc_executable.f90`).
pub(super) const ANSWERS: [(&[u8], Answer); 2] = [(b"gridloom_asks_np", is_canceled), (b"gridloom_ranks_np", ranks)];
