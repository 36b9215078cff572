//! What a running call tells its server: that it waits for calls that it makes itself, through a session that it opens in its worker,
//! and what its program is to hear ([`print`], [`progress`]).
//!
//! A session asks here how deep its calls are nested, and says when a thread of it waits. The worker tells its server, which
//! gives the slot to another task meanwhile: what the function waits for may need it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridloom_base::{NodeId, TaskId};

use super::channel::Outbox;
use super::protocol::{FromWorker, Run};
use super::said::{Rest, Speech};
use crate::pid::pid;

/// In a worker's environment: the name of its server.
pub const SERVER_VARIABLE: &str = "GRIDLOOM_SERVER";

static WORKER: Mutex<Worker> = Mutex::new(Worker { line: None, call: None });
/// The worker itself; 0 in a process that is none. A process that a function forks has a copy of all this, and says nothing.
static PID: AtomicU32 = AtomicU32::new(0);
/// Whether what calls print goes to their programs alone, and never to the server's log.
static DROPS: AtomicBool = AtomicBool::new(false);

struct Worker {
    /// To the server; `None` in a process that is no worker.
    line: Option<(OwnedFd, Arc<Mutex<Outbox>>)>,
    call: Option<Call>,
}

/// The call that runs.
struct Call {
    serial: u64,
    puts_as: TaskId,
    depth: u16,
    gang: u32,
    /// Threads of it that wait.
    waiting: u32,
    /// Its program wants what it says.
    tells: bool,
    speech: Speech,
}

fn worker() -> MutexGuard<'static, Worker> {
    WORKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process is a worker, with that socket to its server, and what is to be sent there.
pub(super) fn attach(socket: BorrowedFd<'_>, outbox: Arc<Mutex<Outbox>>) -> std::io::Result<()> {
    let mut worker = worker();
    worker.line = Some((socket.try_clone_to_owned()?, outbox));
    PID.store(pid(), Ordering::Relaxed);
    Ok(())
}

/// What a call prints that its program does not take is dropped from now on: the server's log would be shown by the program.
pub fn drop_what_is_not_taken() {
    DROPS.store(true, Ordering::Relaxed);
}

/// Whether this process is a fork of a worker. Then it must not answer, nor read what the worker is sent.
pub fn is_forked() -> bool {
    let worker = PID.load(Ordering::Relaxed);
    worker != 0 && worker != pid()
}

/// A call begins. It has ended when the guard is dropped: threads that it leaves behind say nothing more.
pub(super) fn begin(run: &Run) -> Running {
    let rest = if DROPS.load(Ordering::Relaxed) { Rest::Dropped } else { Rest::Log };
    let speech = Speech::new(Instant::now(), rest);
    let Run { serial, puts_as, depth, gang, tells, .. } = *run;
    worker().call = Some(Call { serial, puts_as, depth, gang, waiting: 0, tells, speech });
    Running
}

/// A call runs.
pub(super) struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let mut worker = worker();
        let Some(Call { serial, mut speech, .. }) = worker.call.take() else { return };
        for saying in speech.rest() {
            worker.tell(&FromWorker::Said { serial, saying });
        }
    }
}

/// A text that the running call prints, to standard output or standard error. The server keeps the last lines, and hands on what
/// its program wants. False if the text is for the server's log: if the program does not want it, or if it is too much.
pub fn print(is_error: bool, text: &str) -> bool {
    !is_forked() && print_of(serial(), is_error, text)
}

/// As [`print`], of that call: false if it has ended.
pub(super) fn print_of(call: Option<u64>, is_error: bool, text: &str) -> bool {
    let mut worker = worker();
    let running = worker.call.as_mut().filter(|running| Some(running.serial) == call);
    let Some(Call { serial, tells, speech, .. }) = running else { return false };
    let (serial, printed) = (*serial, speech.print(Instant::now(), is_error, text));
    let is_taken = *tells && printed.is_ok() || DROPS.load(Ordering::Relaxed);
    if let Ok(Some(saying)) | Err(Some(saying)) = printed {
        worker.tell(&FromWorker::Said { serial, saying });
    }
    is_taken
}

/// How far the running call has come: so much is done, of so much in all. Nothing happens in a process that runs no call.
pub fn progress(done: f64, total: Option<f64>) {
    if is_forked() {
        return;
    }
    let mut worker = worker();
    let Some(Call { serial, tells: true, speech, .. }) = &mut worker.call else { return };
    let serial = *serial;
    if let Some(saying) = speech.progress(Instant::now(), done, total) {
        worker.tell(&FromWorker::Said { serial, saying });
    }
}

/// How many calls a call is nested in that this process makes now: 0 in a program.
pub fn depth() -> u16 {
    worker().call.as_ref().map_or(0, |call| call.depth.saturating_add(1))
}

/// The call that this worker runs; `None` in a process that runs none.
pub(super) fn serial() -> Option<u64> {
    worker().call.as_ref().map(|call| call.serial)
}

/// How many slots the call that this worker runs has as a gang; 0 if it is none.
pub(super) fn gang() -> u32 {
    worker().call.as_ref().map_or(0, |call| call.gang)
}

/// The client that made the call that this worker runs; `None` in a process that runs none.
pub fn client() -> Option<NodeId> {
    worker().call.as_ref().map(|call| call.puts_as.client)
}

/// The call as which the function that this worker runs puts data; `None` in a process that runs none.
pub fn puts_as() -> Option<TaskId> {
    worker().call.as_ref().map(|call| call.puts_as)
}

/// A thread of the call that this worker runs waits, until the guard is dropped. `None` in a process that runs no call.
pub fn wait() -> Option<Waiting> {
    let mut worker = worker();
    let call = worker.call.as_mut()?;
    call.waiting += 1;
    let (serial, is_first) = (call.serial, call.waiting == 1);
    if is_first {
        worker.tell(&FromWorker::Calling { serial, waits: true });
    }
    Some(Waiting { serial })
}

/// A thread of a call waits.
pub struct Waiting {
    serial: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut worker = worker();
        let Some(call) = worker.call.as_mut().filter(|call| call.serial == self.serial) else { return };
        call.waiting -= 1;
        if call.waiting == 0 {
            worker.tell(&FromWorker::Calling { serial: self.serial, waits: false });
        }
    }
}

impl Worker {
    /// Answers of calls before this one, which were to travel with others, go now: their programs may wait for them.
    fn tell(&self, what: &FromWorker) {
        let Some((socket, outbox)) = self.line.as_ref().filter(|_| !is_forked()) else { return };
        let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that is gone ends its workers.
        let _ = outbox.push(what, std::iter::empty()).and_then(|()| outbox.send(socket.as_fd(), true));
    }
}
