//! What a server and its worker say to each other, and the words that they share.
//!
//! ```text
//!  server                                        worker
//!    | Setup (+ progress words), Load, Run, Run -->|  Ready when set up
//!    |<-- Ready                                    |  claims a word: QUEUED -> RUNNING
//!    |<-- Ended (serial, outcome)                  |  after the call: -> DONE
//!    |<-- CallsBack, CalledBack ------------------>|  in the middle of a call
//!    |<-- Calling, Said -----------------------------|  likewise
//!    | Forget (memory that is gone) -------------->|
//! ```
//! Each task sent has a word of its own, `serial * STATES + state`. The server may take a task back as long as it is
//! `QUEUED` (it wins the exchange to `WITHDRAWN`), and knows after a crash which one was `RUNNING`.
//!
//! Frames have no earlier form. A worker learns the version of its server from its environment, and one of another version says so with
//! [`FromWorker::Broken`], which keeps its place in all versions to come.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use gridloom_base::{DatumId, Meta, TaskError, TaskId};
use gridloom_core::call::{CallBackAnswer, Saying};
use gridloom_idl::Definition;
use serde::{Deserialize, Serialize};

/// Words for progress; a bound on the tasks that one worker holds at a time.
pub const TASKS_PER_WORKER_MAX: usize = 256;

/// In the environment of a worker: the highest protocol version of its server. They differ if Gridloom was updated under a server.
pub const SERVER_PROTOCOL_VARIABLE: &str = "GRIDLOOM_SERVER_PROTOCOL";

/// What a worker knows of its server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Its name.
    pub server_name: String,
    /// Libraries to search for symbols, in order.
    pub libraries: Vec<PathBuf>,
    /// Files of Python modules.
    pub modules: Vec<PathBuf>,
    /// How many times as long as they need calls take.
    pub slowdown: f64,
    /// Where it may make a folder for the files of its calls: not there yet, and removed by the server after its end.
    pub scratch: PathBuf,
}

/// From server to worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// First of all; a descriptor of the progress words comes with it.
    Setup(Setup),
    /// A function that will be called under that number.
    Load { function: u32, definition: Definition },
    /// Call a function.
    Run(Run),
    /// What the program says to `CallsBack`.
    CalledBack { serial: u64, answer: CallBackAnswer },
    /// The memory of these keys is gone, or not wanted in the cache.
    Forget { keys: Vec<u64> },
}

/// A call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) serial: u64,
    pub(crate) function: u32,
    /// The call as which it puts data by name: itself, or one that it repeats.
    pub(crate) puts_as: TaskId,
    /// How many calls it is nested in.
    pub(crate) depth: u16,
    /// Its program wants what it says.
    pub(crate) tells: bool,
    /// Ranks that it wants, if it runs on several; 0 for those of the server.
    pub(crate) ranks: u32,
    /// Slots that it has as a gang; 0 for the one of any call.
    pub(crate) gang: u32,
    /// `IN` and `INOUT` parameters.
    pub(crate) args: Vec<Value>,
    /// `OUT` and `INOUT` parameters, and where the result shall be; an inline one comes back in the answer.
    pub(crate) outs: Vec<Value>,
}

/// A value and where its bytes are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Value {
    pub(crate) meta: Meta,
    pub(crate) place: Place,
}

/// Where the bytes of a value are.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Place {
    /// Next in the frame (an argument, a result), or to be sent in the answer (room for a result).
    Inline { size_bytes: u32 },
    /// In shared memory known by `key`; a descriptor comes with the frame if it is `new` to the worker. An argument is a `datum`.
    Shared { datum: Option<DatumId>, key: u64, new: bool, len: u64, offset: u64, size_bytes: u64 },
    /// Room for a result in shared memory, known likewise, that holds what some other call left unless it is `zeroed`.
    Room { key: u64, new: bool, len: u64, size_bytes: u64, zeroed: bool },
    /// A result of unforeseen size, in a memory file: its descriptor comes with the frame.
    File { size_bytes: u64 },
}

/// From worker to server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// It is set up.
    Ready,
    /// It cannot serve at all; it ends after this.
    Broken { why: String },
    /// A call calls the program back, and waits for `CalledBack`.
    CallsBack { serial: u64, callback: u32, values: Vec<(Meta, Vec<u8>)> },
    /// A call says something.
    Said { serial: u64, saying: Saying },
    /// A call waits for calls that it made itself, or goes on.
    Calling { serial: u64, waits: bool },
    /// A call ended.
    Ended { serial: u64, run_ns: u64, outcome: Result<Vec<Value>, TaskError> },
}

const QUEUED: u64 = 0;
const RUNNING: u64 = 1;
const DONE: u64 = 2;
const WITHDRAWN: u64 = 3;
/// It runs, and its function has asked whether it was cancelled.
const ASKING: u64 = 4;
/// It runs, and its function will see that it was.
const CANCELED: u64 = 5;
/// More than there are.
const STATES: u64 = 8;

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It has not started.
    Queued,
    /// It has started and not ended. Also said of a word that a crashing worker overwrote.
    Running,
    /// It has ended; its answer may not have been sent.
    Done,
}

/// The words of one worker.
#[derive(Clone, Copy)]
pub(crate) struct Board<'a>(pub(crate) &'a [AtomicU64]);

impl Board<'_> {
    fn word(&self, serial: u64) -> &AtomicU64 {
        &self.0[serial as usize % TASKS_PER_WORKER_MAX]
    }

    /// Server: a task is about to be sent.
    pub(crate) fn queue(&self, serial: u64) {
        self.word(serial).store(serial * STATES + QUEUED, Ordering::Release);
    }

    /// Server: takes a task back; `false` if the worker was faster.
    pub(crate) fn withdraw(&self, serial: u64) -> bool {
        self.swap(serial, QUEUED, WITHDRAWN)
    }

    /// Worker: starts a task; `false` if the server took it back.
    pub(crate) fn claim(&self, serial: u64) -> bool {
        self.swap(serial, QUEUED, RUNNING)
    }

    /// Server: tells a task that asks that it is cancelled; `false` if it does not ask, or has ended.
    pub(crate) fn cancel(&self, serial: u64) -> bool {
        self.swap(serial, ASKING, CANCELED)
    }

    /// Worker: a task asks whether it is cancelled.
    pub(crate) fn asks(&self, serial: u64) -> bool {
        self.swap(serial, RUNNING, ASKING);
        self.word(serial).load(Ordering::Acquire) == serial * STATES + CANCELED
    }

    /// Worker: a task has ended.
    pub(crate) fn finish(&self, serial: u64) {
        self.word(serial).store(serial * STATES + DONE, Ordering::Release);
    }

    /// How far a task has come.
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
        let board = Board(&words);
        board.queue(7);
        board.queue(8);
        assert_eq!(board.progress(7), Progress::Queued);
        assert!(board.claim(7) && !board.withdraw(7));
        assert_eq!(board.progress(7), Progress::Running);
        assert!(board.withdraw(8) && !board.claim(8));
        assert!(!board.cancel(7), "it has not asked");
        assert!(!board.asks(7) && board.cancel(7) && board.asks(7) && !board.cancel(7));
        assert_eq!(board.progress(7), Progress::Running);
        board.finish(7);
        assert_eq!(board.progress(7), Progress::Done);
        board.queue(7 + TASKS_PER_WORKER_MAX as u64);
        assert_eq!(board.progress(7), Progress::Running, "another task's word is not ours");
    }
}
