//! The pool of worker processes: started, watched, written to, reaped. Which task goes to which worker is decided by the
//! slots (`super`), which the pool does not know.
//!
//! **The life of a worker** (the contract is stated once, at [`gridloom_core::call::Halt`]): *spawn* starts the process;
//! what is pushed to its link goes out with [`Pool::write`]; [`Pool::tell_to_end`] lets an idle one end by itself and kills
//! it after [`END_GRACE`]; a worker that has ended, for whatever reason, is given out once by [`Pool::reap`], with the tasks
//! that it had.

use std::collections::btree_map::ValuesMut;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::kind::Kind;
use super::link::{self, Death, Link};
use super::{JobsConfig, Registration, WorkerToken};

/// Time that an idle worker has to end by itself.
const END_GRACE: Duration = Duration::from_millis(500);
/// Time that a function which asks whether its call was cancelled has to end by itself.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// A process that exits closes its socket at most so long before it is gone, milliseconds.
const EXIT_MS_MAX: i64 = 50;

/// The workers of a server.
pub(super) struct Pool {
    config: Arc<JobsConfig>,
    links: BTreeMap<WorkerToken, Link>,
    /// Workers that were told to end.
    ending: BTreeSet<WorkerToken>,
    /// Tasks that know that they are cancelled, and since when.
    canceled: Vec<(WorkerToken, u64, Instant)>,
    next_token: u64,
    registrations: Vec<Registration>,
}

impl Pool {
    /// Without workers.
    pub(super) fn new(config: Arc<JobsConfig>) -> Pool {
        let (links, ending, canceled, registrations) = Default::default();
        Pool { config, links, ending, canceled, next_token: 0, registrations }
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn spawn(&mut self, kind: Kind) -> io::Result<WorkerToken> {
        let link = Link::start(kind, &self.config)?;
        self.next_token += 1;
        let token = WorkerToken(self.next_token);
        self.registrations.extend(link.fds().map(|fd| Registration::Add(fd, token)));
        self.links.insert(token, link);
        Ok(token)
    }

    /// A worker that has not been reaped.
    pub(super) fn link(&self, token: WorkerToken) -> &Link {
        self.links.get(&token).expect("a worker that has a place is in the pool until it is reaped")
    }

    pub(super) fn get(&self, token: WorkerToken) -> Option<&Link> {
        self.links.get(&token)
    }

    pub(super) fn get_mut(&mut self, token: WorkerToken) -> Option<&mut Link> {
        self.links.get_mut(&token)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerToken, &Link)> {
        self.links.iter().map(|(token, link)| (*token, link))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (WorkerToken, &mut Link)> {
        self.links.iter_mut().map(|(token, link)| (*token, link))
    }

    pub(super) fn links_mut(&mut self) -> ValuesMut<'_, WorkerToken, Link> {
        self.links.values_mut()
    }

    /// Process numbers of the workers that live.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.links.values().filter_map(Link::pid).collect()
    }

    /// Lets an idle worker end by itself.
    pub(super) fn tell_to_end(&mut self, token: WorkerToken) {
        if let Some(link) = self.links.get_mut(&token) {
            link.end.since = Some(Instant::now());
            link.hang_up();
            self.ending.insert(token);
        }
    }

    /// A task knows that it is cancelled, and has [`CANCEL_GRACE`] to end by itself.
    pub(super) fn end_if_it_lasts(&mut self, token: WorkerToken, serial: u64) {
        self.canceled.push((token, serial, Instant::now()));
    }

    /// Writes to every worker what has been batched for it, and kills those that were told to end and do not, or have a
    /// cancelled task that goes on.
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

    /// Writes to a worker what has been batched for it, as far as its socket takes it.
    pub(super) fn write(&mut self, token: WorkerToken) {
        let Some(link) = self.links.get_mut(&token) else { return };
        if link.end.dying {
            return;
        }
        let sent = link.forget_destroyed().and_then(|()| match link.outbox.is_empty() {
            true => Ok(true),
            false => link.outbox.send(link.socket.as_fd(), false),
        });
        // A socket that broke is that of a worker that died: its process tells how.
        let blocked = matches!(sent, Ok(false));
        if blocked != link.watched_for_writing {
            link.watched_for_writing = blocked;
            self.registrations.push(Registration::Writable(link.fds()[0], token, blocked));
        }
    }

    /// A worker that has ended leaves the pool: its link, and how it ended. A worker with a `closed` socket
    /// that was not told to end is made to.
    pub(super) fn reap(&mut self, token: WorkerToken, closed: bool) -> Option<(Link, Death)> {
        let link = self.links.get_mut(&token)?;
        let death = match link.try_wait() {
            Ok(Some(status)) => link::describe(status, &link.end),
            Ok(None) => {
                if closed && !link.end.closed {
                    // It is ending, or has closed its socket for reasons of its own. Its exit will be noticed.
                    link.end.closed = true;
                    if link.end.since.is_none() {
                        link.end.cut_off = !link.ends_within(EXIT_MS_MAX);
                        link.kill();
                    }
                    self.registrations.push(Registration::Remove(link.fds()[0], token));
                }
                return None;
            }
            Err(error) => Death { how: format!("its end was lost: {error}"), was_killed: false },
        };
        let link = self.links.remove(&token)?;
        let [socket, process] = link.fds();
        if !link.end.closed {
            self.registrations.push(Registration::Remove(socket, token));
        }
        self.registrations.push(Registration::Remove(process, token));
        Some((link, death))
    }

    /// Changes of what is to be watched, in order.
    pub(super) fn take_registrations(&mut self) -> Vec<Registration> {
        std::mem::take(&mut self.registrations)
    }

    /// Makes these changes in an epoll; an event of a worker carries what `data` makes of its token.
    ///
    /// # Errors
    /// If the epoll refuses a descriptor.
    pub(super) fn register_with(&mut self, epoll: BorrowedFd<'_>, data: impl Fn(WorkerToken) -> u64) -> io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, add, delete, modify};
        for change in self.take_registrations() {
            let (Registration::Add(fd, token) | Registration::Writable(fd, token, _) | Registration::Remove(fd, token)) =
                change;
            // The descriptors of a worker that is gone are closed, and have left the epoll by that.
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

    /// Ends and reaps all workers. Idle ones end by themselves, others are killed.
    pub(super) fn shut_down(&mut self) {
        self.links.values().for_each(Link::hang_up);
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
