//! The pool of worker processes: starts, watches, writes to and reaps them. The slots (`super`) decide which task goes
//! to which worker; the pool does not know about slots.
//!
//! **Lifecycle of a worker** (its contract is documented at [`gridloom_core::node::WorkerEvent`]): *spawn* starts the
//! process; [`Pool::write`] writes what is pushed to its link; [`Pool::ask_to_end`] lets an idle worker end by itself
//! and kills it after [`END_GRACE`]; [`Pool::reap`] returns each ended worker once, whatever the reason, together with
//! its tasks.

use std::collections::btree_map::ValuesMut;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::call_clock::FirstCall;
use super::kind::Kind;
use super::link::{self, Death, WaitReason, Worker};
use super::watch::{Excess, MeasuredWorker};
use super::{JobsConfig, Registration, RunAs, WorkerToken, WorkerUser};
use crate::worker::protocol::Progress;

/// Time for an idle worker to end by itself before it is killed.
const END_GRACE: Duration = Duration::from_millis(500);
/// Time for a function that checks for cancellation to end by itself before its worker is killed.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// Maximum time between the moment an exiting process closes its socket and its end, in milliseconds.
const EXIT_MS_MAX: i64 = 50;

/// The workers of a server.
pub(super) struct Pool {
    config: Arc<JobsConfig>,
    links: BTreeMap<WorkerToken, Worker>,
    /// Workers that were asked to end.
    ending: BTreeSet<WorkerToken>,
    /// Tasks that know that they are cancelled, with the time since when.
    canceled: Vec<(WorkerToken, u64, Instant)>,
    next_token: u64,
    registrations: Vec<Registration>,
}

impl Pool {
    /// Creates a pool without workers.
    pub(super) fn new(config: Arc<JobsConfig>) -> Pool {
        let (links, ending, canceled, registrations) = Default::default();
        Pool { config, links, ending, canceled, next_token: 0, registrations }
    }

    /// Starts a worker, as a user of the system or that of this process. `user`: the user of the grid whom it serves, if it
    /// serves one.
    ///
    /// # Errors
    /// If the system cannot start a process.
    pub(super) fn spawn(
        &mut self,
        kind: Kind,
        run_as: Option<Arc<RunAs>>,
        user: Option<&WorkerUser>,
    ) -> io::Result<WorkerToken> {
        let link = Worker::start(kind, &self.config, run_as.as_deref(), user)?;
        self.next_token += 1;
        let token = WorkerToken(self.next_token);
        self.registrations.extend(link.fds().map(|fd| Registration::Add(fd, token)));
        self.links.insert(token, link);
        Ok(token)
    }

    /// Returns a worker that has not been reaped.
    pub(super) fn link(&self, token: WorkerToken) -> &Worker {
        self.links.get(&token).expect("a worker that has a place is in the pool until it is reaped")
    }

    pub(super) fn get(&self, token: WorkerToken) -> Option<&Worker> {
        self.links.get(&token)
    }

    pub(super) fn get_mut(&mut self, token: WorkerToken) -> Option<&mut Worker> {
        self.links.get_mut(&token)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerToken, &Worker)> {
        self.links.iter().map(|(token, link)| (*token, link))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (WorkerToken, &mut Worker)> {
        self.links.iter_mut().map(|(token, link)| (*token, link))
    }

    pub(super) fn links_mut(&mut self) -> ValuesMut<'_, WorkerToken, Worker> {
        self.links.values_mut()
    }

    /// Returns the pids of the live workers.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.links.values().filter_map(Worker::pid).collect()
    }

    pub(super) fn has_tasks(&self) -> bool {
        self.links.values().any(|link| !link.tasks.is_empty())
    }

    /// Returns the live workers, for the measurement of their memory and processes.
    pub(super) fn measured(&self) -> Vec<MeasuredWorker> {
        let of = |link: &Worker| {
            let pid = link.pid()?.as_raw_nonzero().get();
            Some(MeasuredWorker { pid, running: link.tasks.front().map(|sent| sent.serial) })
        };
        self.links.values().filter_map(of).collect()
    }

    /// Lets an idle worker end by itself.
    pub(super) fn ask_to_end(&mut self, token: WorkerToken) {
        if let Some(link) = self.links.get_mut(&token) {
            link.end.since = Some(Instant::now());
            link.close_if_idle();
            self.ending.insert(token);
        }
    }

    /// Records that a task knows that it is cancelled; it has [`CANCEL_GRACE`] to end by itself.
    pub(super) fn kill_after_grace(&mut self, token: WorkerToken, serial: u64) {
        self.canceled.push((token, serial, Instant::now()));
    }

    /// Writes each worker's batched messages. Kills workers that were asked to end and did not, and workers whose
    /// cancelled task keeps running.
    pub(super) fn flush(&mut self) {
        let links = &mut self.links;
        self.canceled.retain(|(token, serial, since)| {
            let Some(link) = links.get_mut(token) else { return false };
            let runs_on = link.tasks.iter().any(|sent| sent.serial == *serial);
            let is_slow = since.elapsed() >= CANCEL_GRACE;
            if runs_on && is_slow {
                link.kill();
            }
            runs_on && !is_slow
        });
        self.ending.retain(|token| {
            let Some(link) = links.get_mut(token) else { return false };
            let is_slow = link.end.since.is_some_and(|since| since.elapsed() >= END_GRACE);
            if is_slow {
                link.kill();
            }
            !is_slow
        });
        let tokens: Vec<WorkerToken> = self.links.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.write(token));
    }

    /// Kills these workers, which exceed their limits.
    pub(super) fn kill_exceeding(&mut self, exceeding: Vec<(MeasuredWorker, Excess)>) {
        for (worker, excess) in exceeding {
            let is_it = |link: &&mut Worker| link.pid().is_some_and(|own| own.as_raw_nonzero().get() == worker.pid);
            if let Some(link) = self.links.values_mut().find(is_it) {
                link.end.excess = Some(excess);
                link.kill();
            }
        }
    }

    /// Kills the workers whose calls have computed longer than the limit.
    pub(super) fn kill_slow_calls(&mut self, now: Instant, limit: Duration) {
        for link in self.links.values_mut().filter(|link| !link.end.dying) {
            let first = link.tasks.front().filter(|_| link.ready).map(|sent| FirstCall {
                serial: sent.serial,
                has_begun: link.board().progress(sent.serial) == Progress::Running,
                waits: (link.pause != WaitReason::None).then(|| link.processor_time()),
            });
            if link.clock.read(now, first) > limit {
                link.end.excess = Some(Excess::CallTime);
                link.kill();
            }
        }
    }

    /// Writes a worker's batched messages, as far as its socket accepts them.
    pub(super) fn write(&mut self, token: WorkerToken) {
        let Some(link) = self.links.get_mut(&token) else { return };
        if link.end.dying {
            return;
        }
        let sent = link.forget_destroyed().and_then(|()| match link.outbox.is_empty() {
            true => Ok(true),
            false => link.outbox.send(link.socket.as_fd(), false),
        });
        // A broken socket means that the worker died; the end of its process explains why.
        let blocked = matches!(sent, Ok(false));
        if blocked != link.watched_for_writing {
            link.watched_for_writing = blocked;
            self.registrations.push(Registration::Writable(link.fds()[0], token, blocked));
        }
    }

    /// Removes an ended worker from the pool; returns its link and how it ended. A worker whose socket is `closed`
    /// although it was not asked to end is killed.
    pub(super) fn reap(&mut self, token: WorkerToken, closed: bool) -> Option<(Worker, Death)> {
        let link = self.links.get_mut(&token)?;
        let death = match link.try_wait() {
            Ok(Some(status)) => link::describe(status, &link.end),
            Ok(None) => {
                if closed && !link.end.closed {
                    // The worker is ending, or has closed its socket for its own reasons. Its exit will be noticed.
                    link.end.closed = true;
                    if link.end.since.is_none() {
                        link.end.cut_off = !link.ends_within(EXIT_MS_MAX);
                        link.kill();
                    }
                    self.registrations.push(Registration::Remove(link.fds()[0], token));
                }
                return None;
            }
            Err(error) => Death { how: format!("its exit status cannot be read: {error}"), was_killed: false },
        };
        let link = self.links.remove(&token)?;
        let [socket, process] = link.fds();
        if !link.end.closed {
            self.registrations.push(Registration::Remove(socket, token));
        }
        self.registrations.push(Registration::Remove(process, token));
        Some((link, death))
    }

    /// Returns the changes to the watched descriptors, in order.
    pub(super) fn take_registrations(&mut self) -> Vec<Registration> {
        std::mem::take(&mut self.registrations)
    }

    /// Applies these changes to an epoll; a worker's events carry the value that `data` returns for its token.
    ///
    /// # Errors
    /// If the epoll rejects a descriptor.
    pub(super) fn register_with(&mut self, epoll: BorrowedFd<'_>, data: impl Fn(WorkerToken) -> u64) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, add, delete, modify};
        for change in self.take_registrations() {
            let (Registration::Add(fd, token) | Registration::Writable(fd, token, _) | Registration::Remove(fd, token)) =
                change;
            // The descriptors of a reaped worker are closed, which removed them from the epoll.
            let Some(link) = self.links.get(&token) else { continue };
            let source = if link.fds()[0] == fd { link.socket.as_fd() } else { link.process.as_fd() };
            let data = EventData::new_u64(data(token));
            match change {
                Registration::Add(..) => add(epoll, source, data, EventFlags::IN)?,
                Registration::Writable(_, _, true) => modify(epoll, source, data, EventFlags::IN | EventFlags::OUT)?,
                Registration::Writable(_, _, false) => modify(epoll, source, data, EventFlags::IN)?,
                Registration::Remove(..) => delete(epoll, source)?,
            }
        }
        Ok(())
    }

    /// Ends and reaps all workers. Idle workers end by themselves, the others are killed.
    pub(super) fn shut_down(&mut self) {
        self.links.values().for_each(Worker::close_if_idle);
        let until = Instant::now() + END_GRACE;
        let left_ms = || until.saturating_duration_since(Instant::now()).as_millis() as i64;
        std::mem::take(&mut self.links).into_values().for_each(|link| link.end(left_ms()));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        std::mem::take(&mut self.links).into_values().for_each(|link| link.end(0));
    }
}
