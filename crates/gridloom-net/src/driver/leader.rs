//! Which thread drives a node.
//!
//! One thread at a time is the *leader*: it waits in epoll, without the lock, and then handles what
//! came, with it. A server's or agent's main thread leads from `run`. On a client the thread that waits for
//! an event leads, so a call takes no change of thread. While no thread waits, a thread in the background leads; it
//! steps aside when a waiter comes, and takes over again only when no thread has waited for [`TAKE_OVER`], so that a program
//! that calls in a loop does not pay for it. A thread that only looks, without waiting, leads for one turn.
//!
//! ```text
//!  command ─▶ machine ─▶ effects: written ─▶ (returns)
//!  wait ─▶ leader? ── yes: epoll ─▶ inputs ─▶ machine ─▶ effects, events ─▶ is it what I wait for? ─▶ (returns)
//!              └── no: sleeps until the leader has events or leaves
//! ```
//! **Invariant:** one thread at most is the leader; a thread that stops leading wakes those that sleep, so that a node with a
//! waiter always has a leader.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::{NodeId, Time};
use mio::{Events, Poll};

use super::core::Core;
use crate::store::Store;
use crate::transport::notice::Inbox;

/// The background leads again when no thread has waited for so long.
const TAKE_OVER: Duration = Duration::from_millis(2);
/// After something happened, the leader looks again for so long before it sleeps: the answer of a short call is on its
/// way, and waking a processor that has gone to sleep takes longer than the call. It yields between looks, so that
/// others of this host run meanwhile.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// After so many looks at which a waiter led, the background stops looking and asks to be told. It steps aside when other
/// threads looked so often during one of its turns.
const LOOKS_MAX: u32 = 50;

/// What the threads of a node share.
pub(super) struct Shared {
    pub(super) id: NodeId,
    pub(super) address: String,
    pub(super) store: Arc<Store>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) state: Mutex<State>,
    /// Waiters that do not lead.
    pub(super) changed: Condvar,
    /// The thread in the background.
    pub(super) idle: Condvar,
    /// Used by the leader alone.
    pub(super) poll: Mutex<(Poll, Events)>,
    /// There are other processors on which an answer can be made while a thread looks for it.
    pub(super) may_spin: bool,
}

/// What changes, under the lock.
pub(super) struct State {
    pub(super) core: Core,
    pub(super) leader: Leader,
    /// Waiters that sleep.
    pub(super) followers: usize,
    /// Counts the times a waiter led, so that the background sees whether one did lately.
    pub(super) led: u64,
    /// Counts the times a thread looked without waiting since the background's turn began.
    pub(super) looks: u32,
    pub(super) background_asleep: bool,
    /// When the leader that is in epoll turns at the latest; `None` if no thread is.
    pub(super) polling_until: Option<Time>,
    pub(super) closed: bool,
    /// The leader looks without sleeping until then.
    pub(super) spin_until: Instant,
}

/// Which thread leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leader {
    None,
    Waiter,
    Background,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            // A bug of ours: the thread that met it reported its panic. The others get an end rather than a hang.
            let mut state = poisoned.into_inner();
            state.core.exit.get_or_insert_with(|| "it panicked".into());
            state.closed = true;
            self.changed.notify_all();
            state
        })
    }

    /// One turn of the leader: waits without the lock, then handles what came.
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
                // Other threads that want this processor go first.
                thread::yield_now();
            }
            match poll.poll(events, if spins { Some(Duration::ZERO) } else { timeout }) {
                Ok(()) => {}
                // A signal: the waiting program may want to look at it, and nothing is lost by turning.
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
            self.finish(&mut state);
        }
        state
    }

    /// To be called after each change of the state: writes, and wakes threads that sleep.
    pub(super) fn finish(&self, state: &mut State) {
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

    /// Takes in what has come, without waiting. A thread that looks in a loop must not depend on the background getting a
    /// processor beside it, so it leads for one turn; if another thread leads, it gives way to that one.
    pub(super) fn look<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.leader == Leader::None {
            state.led += 1;
            state.leader = Leader::Waiter;
            state = self.turn(state, Time::ZERO);
            self.stop_leading(&mut state);
            return state;
        }
        state.looks += 1;
        drop(state);
        thread::yield_now();
        self.lock()
    }

    /// Sleeps until something changed that concerns waiters.
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
                while !state.closed && state.followers == 0 && state.looks < LOOKS_MAX {
                    state.looks = 0;
                    state = self.turn(state, Time::NEVER);
                }
                state.looks = 0;
                self.stop_leading(&mut state);
            }
            looks = if state.led == led { looks + 1 } else { 0 };
            led = state.led;
            if looks > LOOKS_MAX && state.leader == Leader::Waiter {
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
