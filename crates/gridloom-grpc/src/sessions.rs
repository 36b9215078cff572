//! The table of sessions: outstanding until they are waited for, then remembered for a while.
//!
//! ```text
//!  running ──the grid's event──▶ ended ──a probe, or the wait──▶ delivered ──the wait──▶ collected: remembered
//! ```
//!
//! **Invariants**
//! - The grid reports each end once ([`Grid::await_ends`](gridloom::Grid::await_ends)), to the thread that looks
//!   first. That thread records it in the table, where waiting threads find it.
//! - A thread may wait for a session which another thread collects. It is notified only once the results are written,
//!   since the program may then free their memory. Until it is remembered, such a session is among the *taken*.
//! - Ids are above 0 and are not reused while they are known.
//! - Ids are above 0 and are not given again while they are known.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::TaskId;
use gridloom_base::time::{ns_to_seconds, seconds_to_ns};
use rustc_hash::FxHashMap;

use super::choice::{IdArray, SessionState};
use super::code::{Failed, GRPC_INVALID_SESSION_ID, Outcome};
use super::session::{Canceller, Origin, Record, Session, Work};
use super::session_records::SessionRecords;

/// Number of arrays of ids that are kept for the next wait: about the usual number of threads that wait for one of many at a time.
const IDLE_MAX: usize = 4;

pub(crate) struct Sessions(Mutex<Table>);

/// An array of ids, one of which will be chosen.
pub(crate) struct RegisteredArray<'a> {
    sessions: &'a Sessions,
    number: u64,
}

impl Drop for RegisteredArray<'_> {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        match table.idle.len() < IDLE_MAX {
            // The next array is probably similar to this one.
            true => table.idle.push(self.number),
            false => drop(table.choices.remove(&self.number)),
        }
    }
}

/// The state of the sessions, under the lock.
pub(crate) struct Table {
    open: FxHashMap<c_int, Arc<Session>>,
    /// Sessions that are no longer outstanding, and not yet remembered.
    taken: FxHashMap<c_int, Arc<Session>>,
    /// Sessions that have not ended as far as is known here.
    by_task: FxHashMap<TaskId, c_int>,
    /// Ids in the order in which the sessions were started: those that a wait for any or all finds, and those that have ended.
    listed: BTreeMap<u64, c_int>,
    ended: BTreeSet<(u64, c_int)>,
    /// Calls of groups with time limits, by their deadlines in nanoseconds and their ids.
    limited: BTreeMap<(u64, c_int), Arc<Session>>,
    next_id: c_int,
    next_order: u64,
    pub(crate) remembered: SessionRecords,
    /// Arrays for one of whose sessions a thread waits, and some for which one did.
    choices: FxHashMap<u64, IdArray>,
    idle: Vec<u64>,
    next_choice: u64,
    /// Calls for which threads wait within grpc_call, by ascending numbers.
    blocking: Vec<(u64, Arc<Canceller>)>,
}

impl Sessions {
    /// `save_session_info` is the number of remembered sessions; negative for all.
    pub(crate) fn new(save_session_info: i64) -> Sessions {
        Sessions(Mutex::new(Table {
            open: FxHashMap::default(),
            taken: FxHashMap::default(),
            by_task: FxHashMap::default(),
            listed: BTreeMap::new(),
            ended: BTreeSet::new(),
            limited: BTreeMap::new(),
            next_id: 1,
            next_order: 0,
            remembered: SessionRecords::new(save_session_info),
            choices: FxHashMap::default(),
            idle: Vec::new(),
            next_choice: 0,
            blocking: Vec::new(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, work: Work, origin: Origin) -> Arc<Session> {
        let (task, deadline_s) = (work.task(), work.deadline_s());
        let mut table = self.lock();
        let (id, order) = (table.free_id(), table.next_order);
        table.next_order += 1;
        let session = Arc::new(Session::new(id, order, origin, work));
        table.limited.extend(deadline_s.map(|at| ((seconds_to_ns(at), id), session.clone())));
        table.open.insert(id, session.clone());
        table.by_task.insert(task, id);
        drop(table);
        // Its end is reported from now on, when it can be found in the table.
        session.request_end();
        let mut table = self.lock();
        if table.open.contains_key(&id) {
            table.listed.insert(order, id);
        }
        drop(table);
        session
    }

    /// Ends the sessions that are past their time limit.
    pub(crate) fn expire(&self, now_s: f64) {
        let expired = self.lock().take_expired(now_s);
        expired.iter().for_each(|session| session.expire());
    }

    /// Takes an array of which one session will be chosen.
    ///
    /// # Errors
    /// If an id belongs to no outstanding session.
    pub(crate) fn choose(&self, ids: Vec<c_int>) -> Outcome<RegisteredArray<'_>> {
        let mut table = self.lock();
        let number = table.choose(ids);
        let stranger = table.choices[&number].invalid_id();
        drop(table);
        let chosen = RegisteredArray { sessions: self, number };
        stranger.map_or(Ok(chosen), |id| Err(no_session(id)))
    }

    /// Requests the cancellation of all outstanding sessions, and of calls for which threads wait.
    pub(crate) fn cancel_all(&self) {
        let table = self.lock();
        let all: Vec<Arc<Session>> = table.open.values().cloned().collect();
        let calls: Vec<Arc<Canceller>> = table.blocking.iter().map(|(_, call)| call.clone()).collect();
        drop(table);
        all.iter().for_each(|session| session.cancel());
        calls.iter().for_each(|call| call.cancel());
    }

    /// Registers a call for which a thread waits, as long as the result exists.
    pub(crate) fn blocking(&self, canceller: Canceller) -> BlockingCall<'_> {
        let mut table = self.lock();
        let number = table.blocking.last().map_or(0, |(number, _)| number + 1);
        table.blocking.push((number, Arc::new(canceller)));
        BlockingCall { sessions: self, number }
    }
}

/// A call for which a thread waits.
pub(crate) struct BlockingCall<'a> {
    sessions: &'a Sessions,
    number: u64,
}

impl Drop for BlockingCall<'_> {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        let place = table.blocking.iter().position(|(number, _)| *number == self.number);
        let ended = place.map(|place| table.blocking.remove(place));
        drop(table);
        drop(ended);
    }
}

impl Table {
    /// Records ends that the grid has reported.
    pub(crate) fn note(&mut self, ended: &[TaskId]) {
        for task in ended {
            if let Some(id) = self.by_task.remove(task) {
                let order = self.open[&id].order;
                self.ended.insert((order, id));
                self.choices.values_mut().for_each(|choice| choice.update(id, SessionState::Ended));
            }
        }
    }

    /// Returns the next deadline of a call of a group.
    pub(crate) fn next_deadline_s(&mut self) -> Option<f64> {
        while let Some(first) = self.limited.first_entry() {
            let (at_ns, id) = *first.key();
            if self.open.contains_key(&id) {
                return Some(ns_to_seconds(at_ns));
            }
            first.remove();
        }
        None
    }

    /// Takes the sessions that are past their time limit.
    pub(crate) fn take_expired(&mut self, now_s: f64) -> Vec<Arc<Session>> {
        let later = self.limited.split_off(&(seconds_to_ns(now_s) + 1, 0));
        std::mem::replace(&mut self.limited, later).into_values().collect()
    }

    /// True if the task belongs to a session that has not ended as far as is known here.
    pub(crate) fn is_running(&self, task: TaskId) -> bool {
        self.by_task.contains_key(&task)
    }

    /// Returns the outstanding session of that id.
    pub(crate) fn open(&self, id: c_int) -> Outcome<&Arc<Session>> {
        self.open.get(&id).ok_or_else(|| no_session(id))
    }

    pub(crate) fn has_ended(&self, session: &Session) -> bool {
        self.ended.contains(&(session.order, session.id))
    }

    /// Returns the session, which is no longer outstanding if it has ended; `None` if it runs.
    pub(crate) fn take_ended(&mut self, id: c_int) -> Outcome<Option<Arc<Session>>> {
        let session = self.open(id)?;
        if !self.has_ended(session) {
            return Ok(None);
        }
        let session = self.open.remove(&id).expect("found above");
        self.taken.insert(id, session.clone());
        self.ended.remove(&(session.order, id));
        self.listed.remove(&session.order);
        self.choices.values_mut().for_each(|choice| choice.update(id, SessionState::Gone));
        Ok(Some(session))
    }

    /// Returns a session that another thread is collecting.
    pub(crate) fn taken(&self, id: c_int) -> Option<Arc<Session>> {
        self.taken.get(&id).cloned()
    }

    /// Returns the session of a running task.
    pub(crate) fn of_task(&self, task: TaskId) -> Option<c_int> {
        self.by_task.get(&task).copied()
    }

    /// Returns the ids of all outstanding sessions, in the order in which they were started.
    pub(crate) fn all(&self) -> Vec<c_int> {
        self.listed.values().copied().collect()
    }

    /// Returns the position of the next session: all that are outstanding now are before it.
    pub(crate) fn now(&self) -> u64 {
        self.next_order
    }

    /// True if there is a session before that position.
    pub(crate) fn has_before(&self, order: u64) -> bool {
        self.listed.first_key_value().is_some_and(|(first, _)| *first < order)
    }

    /// Returns the first of them that has ended.
    pub(crate) fn first_ended_before(&self, order: u64) -> Option<c_int> {
        self.ended.first().filter(|(first, _)| *first < order).map(|(_, id)| *id)
    }

    /// Remembers a session that was collected.
    pub(crate) fn remember(&mut self, id: c_int, record: Record) {
        self.taken.remove(&id);
        self.remembered.add(id, record);
    }

    /// Returns the record of a session.
    pub(crate) fn known(&self, id: c_int) -> Outcome<&Record> {
        self.remembered.find(id).ok_or_else(|| no_session(id))
    }

    /// Begins to choose one of these.
    fn choose(&mut self, ids: Vec<c_int>) -> u64 {
        let number = self.idle.pop().unwrap_or_else(|| {
            self.next_choice += 1;
            self.next_choice
        });
        let mut choice = self.choices.remove(&number).unwrap_or_default();
        choice.replace(ids, |id| match self.open.get(&id) {
            None => SessionState::Gone,
            Some(session) if self.has_ended(session) => SessionState::Ended,
            Some(_) => SessionState::Running,
        });
        self.choices.insert(number, choice);
        number
    }

    /// Returns the first session of the array that has ended, or `None`; an error if one is no longer outstanding.
    pub(crate) fn first_of(&self, chosen: &RegisteredArray<'_>) -> Outcome<Option<c_int>> {
        self.choices[&chosen.number].first().map_err(no_session)
    }

    /// Returns an id that no known session has.
    pub(crate) fn free_id(&mut self) -> c_int {
        loop {
            let id = self.next_id;
            self.next_id = if id == c_int::MAX { 1 } else { id + 1 };
            let is_known =
                self.open.contains_key(&id) || self.taken.contains_key(&id) || self.remembered.find(id).is_some();
            if !is_known {
                return id;
            }
        }
    }
}

pub fn no_session(id: c_int) -> Failed {
    let text = format!("{id} is not the id of a known session: it was waited for, or never assigned");
    Failed::new(GRPC_INVALID_SESSION_ID, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let origin = Origin { handle: 0, number: 0, begun_s: 0.0 };
        Record { code: 0, text: String::new(), server: String::new(), run_s: 0.0, total_s: 0.0, origin }
    }

    #[test]
    fn ids_go_round_and_leave_out_what_is_known() {
        let sessions = Sessions::new(-1);
        let mut table = sessions.lock();
        table.remember(1, record());
        table.next_id = c_int::MAX;
        assert_eq!([table.free_id(), table.free_id(), table.free_id()], [c_int::MAX, 2, 3]);
    }
}
