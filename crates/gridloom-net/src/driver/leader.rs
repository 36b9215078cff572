//! Election of the thread that drives a node.
//!
//! One thread at a time is the *leader*: it waits in epoll without the lock, then takes the lock and handles what
//! arrived. The main thread of a server or agent leads from `run`. On a client, the thread that waits for an event
//! leads, so a call needs no switch between threads. While no thread waits, a background thread leads. It steps aside
//! when a waiter arrives, and takes over again only after no thread has waited for [`TAKE_OVER`], so that a program
//! that calls in a loop does not pay for the switch. A thread that only polls, without waiting, leads for one turn.
//!
//! ```text
//!  command ─▶ machine ─▶ effects: written ─▶ (returns)
//!  wait ─▶ leader? ── yes: epoll ─▶ inputs ─▶ machine ─▶ effects, events ─▶ is it what I wait for? ─▶ (returns)
//!              └── no: sleeps until the leader has events or leaves
//! ```
//! **Invariant:** at most one thread is the leader. A thread that stops leading wakes the sleeping ones, so that a
//! node with a waiter always has a leader.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::{NodeId, Time};
use mio::{Events, Poll};

use super::core::Core;
use crate::store::Store;
use crate::transport::notice::Inbox;

/// Time without a waiting thread after which the background thread leads again.
const TAKE_OVER: Duration = Duration::from_millis(2);
/// Time for which the leader polls after an event before it sleeps. The answer of a short call is about to arrive, and
/// waking a sleeping processor takes longer than the call. The leader yields between polls so that other processes of
/// this host run meanwhile.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// After this many polls in which a waiter led, the background thread stops polling and asks to be woken. It steps
/// aside when other threads polled this often during one of its turns.
const POLLS_MAX: u32 = 50;

/// State shared by the threads of a node.
pub(super) struct Shared {
    pub(super) id: NodeId,
    pub(super) address: String,
    pub(super) store: Arc<Store>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) state: Mutex<State>,
    /// Wakes waiters that do not lead.
    pub(super) changed: Condvar,
    /// Wakes the background thread.
    pub(super) idle: Condvar,
    /// Used by the leader only.
    pub(super) poll: Mutex<(Poll, Events)>,
    /// True if other processors can compute an answer while this thread polls for it.
    pub(super) may_spin: bool,
}

/// Mutable state, protected by the lock.
pub(super) struct State {
    pub(super) core: Core,
    pub(super) leader: Leader,
    /// Number of sleeping waiters.
    pub(super) followers: usize,
    /// Number of times that a waiter led, so that the background thread sees whether one did recently.
    pub(super) led: u64,
    /// Number of times that a thread polled without waiting since the background thread's turn began.
    pub(super) polls: u32,
    pub(super) background_asleep: bool,
    /// Latest time at which the leader in epoll turns; `None` if no thread is in epoll.
    pub(super) polling_until: Option<Time>,
    pub(super) closed: bool,
    /// Time until which the leader polls without sleeping.
    pub(super) spin_until: Instant,
}

/// The current leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leader {
    None,
    Waiter,
    Background,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            // A bug in this program: the thread that panicked has reported it. The other threads get an end of the
            // node instead of a hang.
            let mut state = poisoned.into_inner();
            state.core.exit.get_or_insert_with(|| "it panicked".into());
            state.closed = true;
            self.changed.notify_all();
            state
        })
    }

    /// Runs one turn of the leader: waits without the lock, then handles what arrived.
    pub(super) fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>, until: Time) -> MutexGuard<'a, State> {
        let until = until.min(state.core.wake_at());
        let timeout = match until {
            Time::NEVER => None,
            until => Some(Duration::from_nanos(until.since(state.core.clock.now()))),
        };
        state.polling_until = Some(until);
        let spin_until = state.spin_until;
        drop(state);
        let mut poll = self.poll.lock().unwrap_or_else(PoisonError::into_inner);
        let (poll, events) = &mut *poll;
        let may_spin = self.may_spin && timeout.is_none_or(|timeout| timeout > SPIN);
        loop {
            let spins = may_spin && Instant::now() < spin_until;
            if spins {
                // Let other threads that want this processor run first.
                thread::yield_now();
            }
            match poll.poll(events, if spins { Some(Duration::ZERO) } else { timeout }) {
                Ok(()) => {}
                // A signal arrived: the waiting program may want to handle it, and an extra turn does no harm.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                Err(error) => panic!("epoll of this process's own descriptors failed: {error}"),
            }
            if !events.is_empty() || !spins {
                break;
            }
        }
        let mut state = self.lock();
        state.polling_until = None;
        if !state.closed {
            if !events.is_empty() {
                state.spin_until = Instant::now() + SPIN;
            }
            state.core.on_ready(events);
            self.flush_and_wake(&mut state);
        }
        state
    }

    /// Writes and wakes sleeping threads. Must be called after each change of the state.
    pub(super) fn flush_and_wake(&self, state: &mut State) {
        if state.closed {
            return;
        }
        state.core.flush();
        if state.core.exit.is_some() {
            state.core.shut_down();
            state.closed = true;
            self.changed.notify_all();
            self.idle.notify_all();
        } else if state.followers > 0 && !state.core.events.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Handles what has arrived, without waiting. A thread that polls in a loop must not depend on the background
    /// thread getting a processor at the same time, so it leads for one turn. If another thread leads, it leaves the
    /// work to that one.
    pub(super) fn poll_once<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.leader == Leader::None {
            state.led += 1;
            state.leader = Leader::Waiter;
            state = self.turn(state, Time::ZERO);
            self.stop_leading(&mut state);
            return state;
        }
        state.polls += 1;
        drop(state);
        thread::yield_now();
        self.lock()
    }

    /// Sleeps until a change that concerns waiters.
    pub(super) fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        state.followers += 1;
        if state.leader == Leader::Background && state.polling_until.is_some() {
            self.inbox.wake();
        }
        let mut state = match deadline {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let patience = deadline.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.followers -= 1;
        state
    }

    pub(super) fn stop_leading(&self, state: &mut State) {
        state.leader = Leader::None;
        if state.followers > 0 {
            self.changed.notify_all();
        }
        if state.background_asleep {
            state.background_asleep = false;
            self.idle.notify_all();
        }
    }

    pub(super) fn run_background(&self) {
        let mut state = self.lock();
        let mut led = state.led;
        let mut looks = 0;
        while !state.closed {
            if state.leader == Leader::None && state.followers == 0 && state.led == led {
                state.leader = Leader::Background;
                while !state.closed && state.followers == 0 && state.polls < POLLS_MAX {
                    state.polls = 0;
                    state = self.turn(state, Time::NEVER);
                }
                state.polls = 0;
                self.stop_leading(&mut state);
            }
            looks = if state.led == led { looks + 1 } else { 0 };
            led = state.led;
            if looks > POLLS_MAX && state.leader == Leader::Waiter {
                looks = 0;
                state.background_asleep = true;
                while state.background_asleep && !state.closed {
                    state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            } else if !state.closed {
                state = self.idle.wait_timeout(state, TAKE_OVER).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}
