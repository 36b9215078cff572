//! Calls that a function makes itself, through a session that it opens in its worker.
//!
//! A session asks here how deep its calls are nested, and says when a thread of it waits. The worker tells its server, which
//! gives the slot to another task meanwhile: what the function waits for may need it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::channel::Outbox;
use super::protocol::FromWorker;

static WORKER: Mutex<Worker> = Mutex::new(Worker { line: None, call: None });

struct Worker {
    /// To the server; `None` in a process that is no worker.
    line: Option<(OwnedFd, Arc<Mutex<Outbox>>)>,
    call: Option<Call>,
}

/// The call that runs.
struct Call {
    serial: u64,
    depth: u16,
    /// Threads of it that wait.
    waiting: u32,
}

fn worker() -> MutexGuard<'static, Worker> {
    WORKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process is a worker, with that socket to its server, and what is to be sent there.
pub(super) fn attach(socket: BorrowedFd<'_>, outbox: Arc<Mutex<Outbox>>) -> std::io::Result<()> {
    worker().line = Some((socket.try_clone_to_owned()?, outbox));
    Ok(())
}

/// A call begins. It has ended when the guard is dropped: threads that it leaves behind say nothing more.
pub(super) fn begin(serial: u64, depth: u16) -> Running {
    worker().call = Some(Call { serial, depth, waiting: 0 });
    Running
}

/// A call runs.
pub(super) struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        worker().call = None;
    }
}

/// How many calls a call is nested in that this process makes now: 0 in a program.
pub fn depth() -> u16 {
    worker().call.as_ref().map_or(0, |call| call.depth.saturating_add(1))
}

/// A thread of the call that this worker runs waits, until the guard is dropped. `None` in a process that runs no call.
pub fn wait() -> Option<Waiting> {
    let mut worker = worker();
    let call = worker.call.as_mut()?;
    call.waiting += 1;
    let (serial, is_first) = (call.serial, call.waiting == 1);
    if is_first {
        worker.tell(serial, true);
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
            worker.tell(self.serial, false);
        }
    }
}

impl Worker {
    /// Answers of calls before this one, which were to travel with others, go now: their programs may wait for them.
    fn tell(&self, serial: u64, waits: bool) {
        let Some((socket, outbox)) = &self.line else { return };
        let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that is gone ends its workers.
        let _ = outbox
            .push(&FromWorker::Calling { serial, waits }, std::iter::empty())
            .and_then(|()| outbox.send(socket.as_fd(), true));
    }
}
