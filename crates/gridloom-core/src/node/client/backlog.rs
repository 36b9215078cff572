//! Calls that wait in the client until a server has a free slot for them.
//!
//! A program may make many more calls than the servers have slots. Calls in the backlog can be cancelled, held back and
//! overtaken without a message, and a server is chosen only when one is free. As many calls are sent as the servers have
//! slots, and some more while calls are so short that the network's latency counts. A call that waits for the results of
//! others occupies no slot. Calls with lower priority numbers are sent first.
//!
//! A call that prefers certain servers, because it has failed on others or is bound to one, waits for a slot of its own
//! server, and calls behind it may overtake it.
//!
//! If a server refuses a call because too many calls of the user wait there, the call returns to the backlog. The client sends
//! no more calls until one has ended, or until the next heartbeat, since the others may be those of other programs.

use std::collections::{BTreeMap, BTreeSet};

use crate::call::{Deadlines, Request};
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_base::{NodeId, Priority, TaskId, Time};

/// Calls per slot that are sent in addition while calls are short. This hides the latency of the network, and few calls
/// wait behind a long one.
const AHEAD_PER_SLOT: usize = 2;
/// Calls are short if they take less than this on average, from when they are sent until they end ...
const SHORT_NS: u64 = 2 * MILLISECOND_NS;
/// ... and if one has ended within this time.
const RECENT_NS: u64 = 10 * MILLISECOND_NS;
/// Weight of the newest call in the mean duration.
const NEWEST_WEIGHT: f64 = 0.2;
/// Number of calls that wait for their own server and are passed over in a search for the next call.
const PASSED_MAX: usize = 64;

/// The server for which a call in the backlog waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// Any of those that offer its function, which have that many slots.
    Any { slots: usize },
    /// This one, which has that many slots.
    Only { server: NodeId, slots: usize },
}

/// A call that was sent and has not ended.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    /// The server for which it has waited, if it was not any.
    only: Option<NodeId>,
    is_paused: bool,
}

/// The priority of a call, and its number among the calls of this priority.
type Position = (Priority, i64);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Calls that wait, in the order in which they are sent.
    waiting: BTreeMap<Position, Request>,
    /// Positions of the calls in `waiting`.
    positions: BTreeMap<TaskId, Position>,
    /// Calls that are held back.
    held: BTreeMap<TaskId, Request>,
    deadlines: Deadlines,
    sent: BTreeMap<TaskId, Sent>,
    /// Number of sent calls that occupy a slot of any server, and of those at the server for which they have waited.
    any: usize,
    only: BTreeMap<NodeId, usize>,
    /// Mean duration of calls in nanoseconds, if one has ended.
    mean_ns: Option<f64>,
    ended_at: Option<Time>,
    /// True if a call may have become sendable since the last search.
    has_changed: bool,
    /// Calls that a server has refused because too many calls of the user wait there.
    refused: BTreeSet<TaskId>,
    /// No call is sent until one has ended, or until the next heartbeat.
    is_throttled: bool,
}

impl Backlog {
    /// Adds a call after the others of its priority, or before them.
    pub(super) fn add(&mut self, request: Request, goes_first: bool) {
        let priority = request.task.options.priority;
        let mut others = self.waiting.range((priority, i64::MIN)..=(priority, i64::MAX));
        let number = match goes_first {
            true => others.next().map_or(0, |((_, first), _)| first - 1),
            false => others.next_back().map_or(0, |((_, last), _)| last + 1),
        };
        let position = (priority, number);
        self.deadlines.add(request.deadline, request.task.id);
        self.positions.insert(request.task.id, position);
        self.waiting.insert(position, request);
        self.has_changed = true;
    }

    /// Removes a call that was not sent.
    pub(super) fn take(&mut self, id: TaskId) -> Option<Request> {
        let request = match self.positions.remove(&id) {
            Some(position) => self.waiting.remove(&position)?,
            None => self.held.remove(&id)?,
        };
        self.deadlines.remove(request.deadline, id);
        self.refused.remove(&id);
        Some(request)
    }

    /// Takes a call back that a server has refused because too many calls of the user wait there.
    ///
    /// # Errors
    /// The call, if it never was in the backlog.
    pub(super) fn take_back(&mut self, request: Request) -> Result<(), Request> {
        let id = request.task.id;
        let Some(Sent { only, is_paused, .. }) = self.sent.remove(&id) else { return Err(request) };
        if !is_paused {
            self.release_slot(only);
        }
        self.refused.insert(id);
        self.add(request, true);
        self.is_throttled = true;
        Ok(())
    }

    /// Lets calls be sent again although none has ended.
    pub(super) fn resume(&mut self) {
        self.is_throttled = false;
    }

    /// Returns whether a server had refused this call, and forgets the refusal.
    pub(super) fn was_refused(&mut self, id: TaskId) -> bool {
        self.refused.remove(&id)
    }

    /// Holds calls back that were not sent, or lets them wait for a server again, before the others and in the given order.
    pub(super) fn hold(&mut self, tasks: &[TaskId], is_held: bool) {
        match is_held {
            true => {
                for id in tasks {
                    if let Some(position) = self.positions.remove(id) {
                        let request = self.waiting.remove(&position).expect("its position is known");
                        self.held.insert(*id, request);
                    }
                }
            }
            false => {
                for id in tasks.iter().rev() {
                    if let Some(request) = self.held.remove(id) {
                        self.add(request, true);
                    }
                }
            }
        }
    }

    /// Records that servers may have joined or left.
    pub(super) fn servers_changed(&mut self) {
        self.has_changed = true;
    }

    /// Removes and returns the next call that can be sent now, if one can. `target` returns the server for which a call
    /// waits.
    pub(super) fn take_next(&mut self, now: Time, target: impl Fn(&Request) -> Target) -> Option<Request> {
        if !self.has_changed || self.is_throttled {
            return None;
        }
        for (position, request) in self.waiting.iter().take(PASSED_MAX + 1) {
            let only = match target(request) {
                Target::Any { slots } if self.any < self.most(now, slots) => None,
                Target::Any { .. } => break,
                Target::Only { server, slots } if self.only.get(&server).is_none_or(|sent| *sent < slots) => {
                    Some(server)
                }
                Target::Only { .. } => continue,
            };
            let (position, id) = (*position, request.task.id);
            let request = self.waiting.remove(&position).expect("found above");
            self.positions.remove(&id);
            self.deadlines.remove(request.deadline, id);
            self.sent.insert(id, Sent { at: now, only, is_paused: false });
            *self.occupied(only) += 1;
            return Some(request);
        }
        self.has_changed = false;
        None
    }

    /// Returns how many calls may be at servers with that many slots. At least one: a lost server may return.
    fn most(&self, now: Time, slots: usize) -> usize {
        let is_recent = self.ended_at.is_some_and(|ended| now < ended + RECENT_NS);
        let are_short = is_recent && self.mean_ns.is_some_and(|mean_ns| mean_ns < SHORT_NS as f64);
        slots.max(1) * if are_short { 1 + AHEAD_PER_SLOT } else { 1 }
    }

    /// The number of slots that sent calls occupy at any server, or at that one.
    fn occupied(&mut self, only: Option<NodeId>) -> &mut usize {
        match only {
            None => &mut self.any,
            Some(server) => self.only.entry(server).or_default(),
        }
    }

    /// Records that a sent call waits for results of others and occupies no slot, or that it resumes.
    pub(super) fn paused(&mut self, task: TaskId, is_paused: bool) {
        let Some(sent) = self.sent.get_mut(&task).filter(|sent| sent.is_paused != is_paused) else { return };
        sent.is_paused = is_paused;
        let only = sent.only;
        match is_paused {
            true => self.release_slot(only),
            false => *self.occupied(only) += 1,
        }
    }

    fn release_slot(&mut self, only: Option<NodeId>) {
        let occupied = self.occupied(only);
        *occupied -= 1;
        if let (0, Some(server)) = (*occupied, only) {
            self.only.remove(&server);
        }
        self.has_changed = true;
    }

    /// Records the end of a call.
    pub(super) fn ended(&mut self, now: Time, task: TaskId) {
        let Some(Sent { at, only, is_paused }) = self.sent.remove(&task) else { return };
        self.is_throttled = false;
        if !is_paused {
            self.release_slot(only);
        }
        // The first call counts in full against one second, so that a single fast call does not make all of them short.
        let mean_ns = self.mean_ns.get_or_insert(SECOND_NS as f64);
        *mean_ns += NEWEST_WEIGHT * (now.since(at) as f64 - *mean_ns);
        self.ended_at = Some(now);
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// Removes the calls whose limits have expired.
    pub(super) fn take_expired(&mut self, now: Time) -> Vec<Request> {
        self.deadlines.past(now).into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Returns the numbers of calls that were not sent, and of calls that were sent and have not ended.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.waiting.len() + self.held.len(), self.sent.len())
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert_eq!(self.waiting.len(), self.positions.len(), "calls in the backlog, and their positions");
        let is_known =
            |id: &TaskId| self.positions.contains_key(id) || self.held.contains_key(id) || self.sent.contains_key(id);
        assert!(self.refused.iter().all(is_known), "a refused call waits, or was just sent again");
        for (id, position) in &self.positions {
            assert_eq!(self.waiting[position].task.id, *id);
        }
        let occupied =
            |only: Option<NodeId>| self.sent.values().filter(|sent| sent.only == only && !sent.is_paused).count();
        assert_eq!(self.any, occupied(None), "slots of calls that any server runs");
        for (server, count) in &self.only {
            assert_eq!(*count, occupied(Some(*server)), "slots of calls for {server}");
        }
        for id in self.deadlines.past(Time::NEVER) {
            assert!(
                self.positions.contains_key(&id) || self.held.contains_key(&id),
                "{id} has a limit and was not sent"
            );
        }
    }
}

#[cfg(test)]
mod tests;
