//! What a running call reports to its server: that it waits for calls that it makes itself, through a session that it
//! opens in its worker, and output for its program ([`fn@print`], [`progress`]).
//!
//! A session queries here how deeply its calls are nested, and reports when one of its threads waits. The worker
//! notifies its server, which gives the slot to another task meanwhile: the calls that the function waits for may need
//! it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridloom_base::{NodeId, Priority, TaskId};
use gridloom_core::node::{SessionAnswer, SessionRequest};

use super::channel::Outbox;
use super::incoming::Incoming;
use super::output::{CallOutput, ExcessOutput};
use super::protocol::{FromWorker, Location, Run, ToWorker};
use crate::payload::Payload;
use crate::pid::pid;
use crate::segment::Pool;

/// Environment variable of a worker with the name of its server.
pub const SERVER_VARIABLE: &str = "GRIDLOOM_SERVER";

static WORKER: Mutex<Worker> = Mutex::new(Worker { line: None, incoming: None, call: None, user: None });
/// Pid of the worker; 0 in a process that is not a worker. A process forked by a function has a copy of all this, and
/// sends nothing.
static PID: AtomicU32 = AtomicU32::new(0);
/// True if the output of calls goes only to their programs and never to the server's log.
static DROPS: AtomicBool = AtomicBool::new(false);

struct Worker {
    /// Connection to the server; `None` in a process that is not a worker.
    line: Option<(Arc<OwnedFd>, Arc<Mutex<Outbox>>)>,
    incoming: Option<Arc<Mutex<Incoming>>>,
    call: Option<Call>,
    /// The user of the running call, or of the last one.
    user: Option<Box<str>>,
}

/// The running call.
struct Call {
    serial: u64,
    simulated_at: Option<NodeId>,
    puts_as: TaskId,
    program: NodeId,
    depth: u16,
    priority: Priority,
    gang: u32,
    /// Number of its threads that wait.
    waiting: u32,
    /// True if its program wants its output.
    wants_output: bool,
    output: CallOutput,
}

fn worker() -> MutexGuard<'static, Worker> {
    WORKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process a worker, with this socket to its server and these queues of messages.
pub(super) fn attach(
    socket: BorrowedFd<'_>,
    outbox: Arc<Mutex<Outbox>>,
    incoming: Arc<Mutex<Incoming>>,
) -> std::io::Result<()> {
    let mut worker = worker();
    worker.line = Some((Arc::new(socket.try_clone_to_owned()?), outbox));
    worker.incoming = Some(incoming);
    PID.store(pid(), Ordering::Relaxed);
    Ok(())
}

/// Drops, from now on, all output that programs do not take: the program would show the server's log.
pub fn drop_excess_output() {
    DROPS.store(true, Ordering::Relaxed);
}

/// Reports whether this process is a fork of a worker. Then it must neither reply nor read messages for the worker.
pub fn is_forked() -> bool {
    let worker = PID.load(Ordering::Relaxed);
    worker != 0 && worker != pid()
}

/// Registers a call, which ends when the guard is dropped: threads that it leaves behind send nothing more.
pub(super) fn begin(run: &Run) -> CallGuard {
    let rest = if DROPS.load(Ordering::Relaxed) { ExcessOutput::Dropped } else { ExcessOutput::Log };
    let speech = CallOutput::new(Instant::now(), rest);
    let Run { serial, simulated_at, puts_as, program, depth, priority, gang, wants_output, .. } = *run;
    let mut worker = worker();
    let (waiting, output) = (0, speech);
    worker.call =
        Some(Call { serial, simulated_at, puts_as, program, depth, priority, gang, waiting, wants_output, output });
    if worker.user.as_ref() != Some(&run.user) {
        worker.user = Some(run.user.clone());
    }
    CallGuard
}

/// Guard of a running call.
pub(super) struct CallGuard;

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut worker = worker();
        let Some(Call { serial, output: mut speech, .. }) = worker.call.take() else { return };
        for saying in speech.rest() {
            worker.tell(&FromWorker::Output { serial, saying });
        }
    }
}

/// Prints text of the running call to standard output or standard error. The server keeps the last lines, and forwards
/// those that the program wants. Returns false if the text must go to the server's log, because the program does not
/// want it or it exceeds the limit.
pub fn print(is_error: bool, text: &str) -> bool {
    !is_forked() && print_of(serial(), is_error, text)
}

/// Like [`fn@print`], for this call. Returns false if the call has ended.
pub(super) fn print_of(call: Option<u64>, is_error: bool, text: &str) -> bool {
    let mut worker = worker();
    let running = worker.call.as_mut().filter(|running| Some(running.serial) == call);
    let Some(Call { serial, wants_output: tells, output: speech, .. }) = running else { return false };
    let (serial, printed) = (*serial, speech.print(Instant::now(), is_error, text));
    let is_taken = *tells && printed.is_ok() || DROPS.load(Ordering::Relaxed);
    if let Ok(Some(saying)) | Err(Some(saying)) = printed {
        worker.tell(&FromWorker::Output { serial, saying });
    }
    is_taken
}

/// Reports the progress of the running call: `done` of `total`. Does nothing in a process that runs no call.
pub fn progress(done: f64, total: Option<f64>) {
    if is_forked() {
        return;
    }
    let mut worker = worker();
    let Some(Call { serial, wants_output: true, output: speech, .. }) = &mut worker.call else { return };
    let serial = *serial;
    if let Some(saying) = speech.progress(Instant::now(), done, total) {
        worker.tell(&FromWorker::Output { serial, saying });
    }
}

/// Returns the program that made the outermost call, if this process is a worker; `None` in a program.
pub fn program() -> Option<NodeId> {
    worker().call.as_ref().map(|call| call.program)
}

/// Returns the user to whom the running call belongs, or else the last one. So threads that a call leaves behind act for the
/// user of the call that runs now. `None` in a process that has run no call.
pub fn user() -> Option<Box<str>> {
    worker().user.clone()
}

/// Returns the nesting depth of the calls that this process makes now: 0 in a program.
pub fn depth() -> u16 {
    worker().call.as_ref().map_or(0, |call| call.depth.saturating_add(1))
}

/// Returns the priority of the running call, which the calls that it makes inherit. The default in a program.
pub fn priority() -> Priority {
    worker().call.as_ref().map_or(Priority::default(), |call| call.priority)
}

/// Returns the serial of the call that this worker runs; `None` in a process that runs none.
pub(super) fn serial() -> Option<u64> {
    worker().call.as_ref().map(|call| call.serial)
}

/// Returns the number of slots that the running call has as a gang; 0 if it is not a gang.
pub(super) fn gang() -> u32 {
    worker().call.as_ref().map_or(0, |call| call.gang)
}

/// Returns the client that made the running call; `None` in a process that runs none.
pub fn client() -> Option<NodeId> {
    worker().call.as_ref().map(|call| call.puts_as.client)
}

/// Returns the server that runs the call in a simulation; `None` for a real grid, and in a process that runs none.
pub fn simulated_at() -> Option<NodeId> {
    worker().call.as_ref().and_then(|call| call.simulated_at)
}

/// Sends a request of the running call to its session in a simulation, with the bytes of a value, and waits for the answer.
///
/// # Errors
/// If no call of a simulation runs here, or the simulation has ended.
pub fn request(request: SessionRequest, bytes: &[u8]) -> io::Result<(SessionAnswer, Payload)> {
    let (serial, socket, outbox, incoming) = {
        let worker = worker();
        let call = worker.call.as_ref().filter(|call| call.simulated_at.is_some() && !is_forked());
        let (Some(call), Some((socket, outbox)), Some(incoming)) = (call, &worker.line, &worker.incoming) else {
            return Err(io::Error::other("a session in a simulation can be used only while its function runs"));
        };
        (call.serial, socket.clone(), outbox.clone(), incoming.clone())
    };
    // The lock is held until the answer has arrived, so that threads do not take one another's answers.
    let mut incoming = incoming.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, inline) = outbox.push_bytes(bytes)?;
        outbox.push(&FromWorker::Session { serial, request, bytes }, inline.into_iter())?;
        outbox.send(socket.as_fd(), true)?;
    }
    let (answer, bytes, inline) = incoming.await_reply(socket.as_fd(), |message, inline| match message {
        ToWorker::Session { serial: of, answer, bytes } if of == serial => Ok((answer, bytes, inline.to_vec())),
        other => Err(other),
    })?;
    let payload = match bytes {
        Location::File { size_bytes } => Payload::segment(Pool::new(0).adopt(incoming.inbox.take_fd()?, size_bytes)?),
        _ => Payload::Inline(inline.into()),
    };
    Ok((answer, payload))
}

/// Returns the call under which the running function puts data; `None` in a process that runs none.
pub fn puts_as() -> Option<TaskId> {
    worker().call.as_ref().map(|call| call.puts_as)
}

/// Reports that a thread of the running call waits, until the guard is dropped. Returns `None` in a process that runs no call.
pub fn wait() -> Option<WaitGuard> {
    let mut worker = worker();
    let call = worker.call.as_mut()?;
    call.waiting += 1;
    let (serial, is_first) = (call.serial, call.waiting == 1);
    if is_first {
        worker.tell(&FromWorker::WaitsForCalls { serial, waits: true });
    }
    Some(WaitGuard { serial })
}

/// Guard of a waiting thread of a call.
pub struct WaitGuard {
    serial: u64,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut worker = worker();
        let Some(call) = worker.call.as_mut().filter(|call| call.serial == self.serial) else { return };
        call.waiting -= 1;
        if call.waiting == 0 {
            worker.tell(&FromWorker::WaitsForCalls { serial: self.serial, waits: false });
        }
    }
}

impl Worker {
    /// Sends a message. Replies of earlier calls that were held back to be sent together are sent now, because their
    /// programs may be waiting for them.
    fn tell(&self, what: &FromWorker) {
        let Some((socket, outbox)) = self.line.as_ref().filter(|_| !is_forked()) else { return };
        let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that has ended takes its workers with it.
        let _ = outbox.push(what, std::iter::empty()).and_then(|()| outbox.send(socket.as_fd(), true));
    }
}
