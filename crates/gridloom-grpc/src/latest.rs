//! The session that each thread started last: outstanding, or a call that it waited for in `grpc_call`.

use std::cell::RefCell;
use std::ffi::c_int;

use super::code::{GRPC_NO_ERROR, Outcome};
use super::session::{Origin, Record};

/// The last call of a thread.
#[derive(Clone)]
pub enum Latest {
    Nothing,
    Begun(c_int),
    Ended(Record),
}

thread_local! {
    static LATEST: RefCell<Latest> = const { RefCell::new(Latest::Nothing) };
}

/// Returns the last call of this thread.
pub fn latest() -> Latest {
    LATEST.with(|latest| latest.borrow().clone())
}

/// Records a session that this thread has started.
pub(crate) fn record_started(id: c_int) {
    // A program in its exit handlers no longer has one.
    let _ = LATEST.try_with(|latest| *latest.borrow_mut() = Latest::Begun(id));
}

/// Records a call that this thread has made and waited for, ended at `now_s`.
pub(crate) fn record_ended(origin: Origin, now_s: f64, outcome: &Outcome<()>) {
    let (code, text) = match outcome {
        Ok(()) => (GRPC_NO_ERROR, String::new()),
        Err(failed) => (failed.code, failed.text.clone()),
    };
    let total_s = now_s - origin.begun_s;
    let record = Record { code, text, server: String::new(), run_s: -1.0, total_s, origin };
    let _ = LATEST.try_with(|latest| *latest.borrow_mut() = Latest::Ended(record));
}
