//! Messages between a server and its worker, and the progress words that they share.
//!
//! ```text
//!  server                                        worker
//!    | Setup (+ progress words), Load, Run, Run -->|  Ready when set up
//!    |<-- Ready                                    |  claims a word: QUEUED -> RUNNING
//!    |<-- Ended (serial, outcome)                  |  after the call: -> DONE
//!    |<-- CallsBack, CalledBack ------------------>|  in the middle of a call
//!    |<-- Calling, Said ---------------------------|  likewise
//!    |<-- Session, Session ----------------------->|  likewise, in a simulation
//!    | Forget (memory that is gone) -------------->|
//! ```
//! Each sent task has its own word, `serial * STATES + state`. The server may withdraw a task while it is `QUEUED` (by
//! winning the exchange to `WITHDRAWN`), and knows after a crash which task was `RUNNING`.
//!
//! Frames are not compatible between versions. A worker learns its server's version from its environment. A worker of
//! another version reports that with [`FromWorker::Broken`], which keeps its position in all future versions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use gridloom_base::{DatumId, Meta, NodeId, Priority, TaskError, TaskId};
use gridloom_core::call::{CallbackAnswer, OutputItem};
use gridloom_core::node::{SessionAnswer, SessionRequest};
use gridloom_idl::Definition;
use serde::{Deserialize, Serialize};

/// Number of progress words; limits the tasks that one worker holds at a time.
pub const TASKS_PER_WORKER_MAX: usize = 256;

/// Environment variable of a worker with its server's highest protocol version. It differs from the worker's if
/// Gridloom was updated while the server was running.
pub const SERVER_PROTOCOL_VARIABLE: &str = "GRIDLOOM_SERVER_PROTOCOL";

/// Configuration that a worker gets from its server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Name of the server.
    pub server_name: String,
    /// Libraries to search for symbols, in order.
    #[serde(with = "gridloom_base::path_bytes::list")]
    pub libraries: Vec<PathBuf>,
    /// Files of Python modules.
    #[serde(with = "gridloom_base::path_bytes::list")]
    pub modules: Vec<PathBuf>,
    /// Factor by which calls take longer than they need.
    pub slowdown: f64,
    /// Path at which the worker may create a folder for the files of its calls. It does not exist yet, and the server
    /// removes it after the worker's end.
    #[serde(with = "gridloom_base::path_bytes")]
    pub scratch: PathBuf,
}

/// Messages from server to worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The first message, sent with a descriptor of the progress words.
    Setup(Setup),
    /// Defines a function that will be called by this number.
    Load { function: u32, definition: Definition },
    /// Call a function.
    Run(Run),
    /// The program's reply to `CallsBack`.
    CalledBack { serial: u64, answer: CallbackAnswer },
    /// In a simulation: the answer to `Session`, and the location of the bytes of a value.
    Session { serial: u64, answer: SessionAnswer, bytes: Location },
    /// The memory of these keys was destroyed, or must leave the cache.
    Forget { keys: Vec<u64> },
}

/// A call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) serial: u64,
    pub(crate) function: u32,
    /// The server that runs it in a simulation, where a worker serves all servers.
    pub(crate) simulated_at: Option<NodeId>,
    /// Call under which it puts data by name: itself, or the call that it repeats.
    pub(crate) puts_as: TaskId,
    /// The program that made the outermost call.
    pub(crate) program: NodeId,
    /// The user to whom the call belongs.
    pub(crate) user: Box<str>,
    /// Number of calls that it is nested in.
    pub(crate) depth: u16,
    /// Its priority. Calls that it makes have the same one, unless they state another.
    pub(crate) priority: Priority,
    /// True if its program wants its output.
    pub(crate) wants_output: bool,
    /// Number of ranks that it wants, if it runs on several; 0 means the server's default.
    pub(crate) ranks: u32,
    /// Number of slots that it has as a gang; 0 for an ordinary call, which has one.
    pub(crate) gang: u32,
    /// `IN` and `INOUT` parameters.
    pub(crate) args: Vec<Value>,
    /// `OUT` and `INOUT` parameters, and the places of their results; an inline result is sent in the reply.
    pub(crate) outs: Vec<Value>,
}

/// A value and the location of its bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    pub(crate) meta: Meta,
    pub(crate) place: Location,
}

/// The location of a value's bytes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Location {
    /// Next in the frame (an argument or result), or to be sent in the reply (place of a result).
    Inline { size_bytes: u32 },
    /// In shared memory identified by `key`; if it is `new` to the worker, a descriptor is sent with the frame. An
    /// argument is a `datum`.
    Shared { datum: Option<DatumId>, key: u64, new: bool, len: u64, offset: u64, size_bytes: u64 },
    /// Place for a result in shared memory, identified likewise. It contains data of another call unless it is `zeroed`.
    Room { key: u64, new: bool, len: u64, size_bytes: u64, zeroed: bool },
    /// A result of unforeseen size in a memory file, whose descriptor is sent with the frame.
    File { size_bytes: u64 },
}

/// Messages from worker to server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The worker is set up.
    Ready,
    /// The worker cannot run anything, and ends after this message.
    Broken { why: String },
    /// A call calls the program back and waits for `CalledBack`.
    Callback { serial: u64, callback: u32, values: Vec<(Meta, Vec<u8>)> },
    /// Output of a call.
    Output { serial: u64, saying: OutputItem },
    /// In a simulation: a call uses its session and waits for the answer.
    Session { serial: u64, request: SessionRequest, bytes: Location },
    /// A call begins or stops waiting for calls that it made itself.
    WaitsForCalls { serial: u64, waits: bool },
    /// A call ended.
    Ended { serial: u64, run_ns: u64, outcome: Result<Vec<Value>, TaskError> },
}

const QUEUED: u64 = 0;
const RUNNING: u64 = 1;
const DONE: u64 = 2;
const WITHDRAWN: u64 = 3;
/// The task runs, and its function has queried whether it was cancelled.
const QUERYING: u64 = 4;
/// The task runs, and its function will see that it was cancelled.
const CANCELED: u64 = 5;
/// Stride between serials; larger than every state.
const STATES: u64 = 8;

/// The progress of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It has not started.
    Queued,
    /// It has started and not ended. Also returned for a word that a crashing worker has overwritten.
    Running,
    /// It has ended; its reply may not have been sent.
    Done,
}

/// The progress words of one worker.
#[derive(Clone, Copy)]
pub(crate) struct ProgressBoard<'a>(pub(crate) &'a [AtomicU64]);

impl ProgressBoard<'_> {
    fn word(&self, serial: u64) -> &AtomicU64 {
        &self.0[serial as usize % TASKS_PER_WORKER_MAX]
    }

    /// Server: marks a task that is about to be sent.
    pub(crate) fn queue(&self, serial: u64) {
        self.word(serial).store(serial * STATES + QUEUED, Ordering::Release);
    }

    /// Server: withdraws a task; `false` if the worker has started it already.
    pub(crate) fn withdraw(&self, serial: u64) -> bool {
        self.swap(serial, QUEUED, WITHDRAWN)
    }

    /// Worker: starts a task; `false` if the server has withdrawn it.
    pub(crate) fn claim(&self, serial: u64) -> bool {
        self.swap(serial, QUEUED, RUNNING)
    }

    /// Server: notifies a task that queries its cancellation; `false` if it does not query it, or has ended.
    pub(crate) fn cancel(&self, serial: u64) -> bool {
        self.swap(serial, QUERYING, CANCELED)
    }

    /// Worker: queries whether a task is cancelled.
    pub(crate) fn query_cancelled(&self, serial: u64) -> bool {
        self.swap(serial, RUNNING, QUERYING);
        self.word(serial).load(Ordering::Acquire) == serial * STATES + CANCELED
    }

    /// Worker: marks a task as ended.
    pub(crate) fn finish(&self, serial: u64) {
        self.word(serial).store(serial * STATES + DONE, Ordering::Release);
    }

    /// Returns the progress of a task.
    pub(crate) fn progress(&self, serial: u64) -> Progress {
        match self.word(serial).load(Ordering::Acquire).wrapping_sub(serial * STATES) {
            QUEUED | WITHDRAWN => Progress::Queued,
            DONE => Progress::Done,
            RUNNING.. => Progress::Running,
        }
    }

    fn swap(&self, serial: u64, from: u64, to: u64) -> bool {
        let word = self.word(serial);
        word.compare_exchange(serial * STATES + from, serial * STATES + to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_either_claimed_or_withdrawn() {
        let words: Vec<AtomicU64> = (0..TASKS_PER_WORKER_MAX).map(|_| AtomicU64::new(0)).collect();
        let board = ProgressBoard(&words);
        board.queue(7);
        board.queue(8);
        assert_eq!(board.progress(7), Progress::Queued);
        assert!(board.claim(7) && !board.withdraw(7));
        assert_eq!(board.progress(7), Progress::Running);
        assert!(board.withdraw(8) && !board.claim(8));
        assert!(!board.cancel(7), "it has not asked");
        assert!(!board.query_cancelled(7) && board.cancel(7) && board.query_cancelled(7) && !board.cancel(7));
        assert_eq!(board.progress(7), Progress::Running);
        board.finish(7);
        assert_eq!(board.progress(7), Progress::Done);
        board.queue(7 + TASKS_PER_WORKER_MAX as u64);
        assert_eq!(board.progress(7), Progress::Running, "another task's word is not ours");
    }
}
