//! Whether the call that runs was cancelled, for functions that ask (`grpc_is_canceled_np`).
//!
//! A function that has asked may end by itself when its call is cancelled; the server then waits a moment before it ends the process.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use super::protocol::Board;
use crate::segment::SharedWords;

/// The call that runs: the words of this worker, and its serial.
static CURRENT: Mutex<Option<(Arc<SharedWords>, u64)>> = Mutex::new(None);

fn set(current: Option<(Arc<SharedWords>, u64)>) {
    *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = current;
}

/// A call begins. It has ended when the guard is dropped.
pub(super) fn begin(words: &Arc<SharedWords>, serial: u64) -> Running {
    set(Some((words.clone(), serial)));
    Running
}

/// A call runs.
pub(super) struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        set(None);
    }
}

/// What compiled bodies call: 1 if the call that runs was cancelled. Any of their threads may call it.
pub(super) extern "C" fn is_canceled() -> c_int {
    let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
    c_int::from(current.as_ref().is_some_and(|(words, serial)| Board(words.words()).asks(*serial)))
}

/// The variable of a compiled library that leads to [`is_canceled`] (`gridloom-idl/src/c_text.rs`).
pub(super) const POINTER: &[u8] = b"gridloom_asks_np";
