//! Calls that were begun: outstanding until they are waited for, then remembered for a while.
//!
//! ```text
//!  running ──the grid's event──▶ ended ──a probe, or the wait──▶ delivered ──the wait──▶ collected: remembered
//! ```
//!
//! **Invariants**
//! - Each end is told once by the grid ([`Grid::await_ends`](gridloom::Grid::await_ends)), to whoever looks first, and noted
//!   in the table; who waits finds it there.
//! - A session's results are written once, by who takes its [`Stage`] first; others wait for that at its lock. Who cancels
//!   does not need it.
//! - Who waits in vain for a session that another thread collects is told so only once its results are written: the program
//!   may give up their memory then. Until it is remembered it is among the *taken*.
//! - Ids are above 0 and are not given again while they are known.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom::Grid;
use gridloom_core::base::TaskId;
use gridloom_core::base::time::{ns_to_seconds, seconds_to_ns};

use super::choice::{Choice, Standing};
use super::code::{Failed, GRPC_INVALID_SESSION_ID, GRPC_NO_ERROR, Outcome};
use super::library::Library;
use super::work::{Canceller, Work};

/// Failed sessions that are kept until somebody asks for them.
const FAILED_MAX: usize = 1 << 20;
/// Bytes of texts of those that are kept for that alone.
const AGED_TEXT_BYTES_MAX: usize = 4 << 20;
/// Arrays of ids that are kept for the next wait: as many as threads that wait for one of many at a time usually are.
const IDLE_MAX: usize = 4;

/// A session that is outstanding.
pub(super) struct Session {
    pub(super) id: c_int,
    /// Its place among all that were begun.
    order: u64,
    origin: Origin,
    canceller: Canceller,
    stage: Mutex<Stage>,
}

/// From where a session was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The handle's address in the program, and its number.
    pub(super) handle: usize,
    pub(super) number: u64,
    /// By the grid's clock.
    pub(super) begun_s: f64,
}

enum Stage {
    /// Its results are not written.
    Begun(Work),
    Delivered(Record),
}

/// What is known of a session that has ended.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// `GRPC_NO_ERROR` if it ended well.
    pub(super) code: c_int,
    /// Empty if it ended well.
    pub(super) text: String,
    pub(super) server: String,
    pub(super) run_s: f64,
    pub(super) total_s: f64,
    pub(super) origin: Origin,
}

impl Session {
    /// Writes its results, if nobody has; it must have ended.
    pub(super) fn settle(&self, library: &Library) -> Record {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Delivered(record) = &*stage {
            return record.clone();
        }
        let record = self.record(&library.grid, &stage);
        let Stage::Begun(work) = std::mem::replace(&mut *stage, Stage::Delivered(record)) else {
            unreachable!("looked at above, under the lock");
        };
        // SAFETY: the pointers of the call are valid until its session is waited for, as the header asks.
        let written = unsafe { work.collect(library) };
        let Stage::Delivered(record) = &mut *stage else { unreachable!("put there above, under the lock") };
        if let Err(failed) = self.expired().map_or(written, Err) {
            (record.code, record.text) = (failed.code, failed.text);
        }
        record.clone()
    }

    /// What can be said of it now, without its results being written.
    pub(super) fn peek(&self, grid: &Grid) -> Option<Record> {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::Delivered(record) => Some(record.clone()),
            Stage::Begun(work) => work.is_done().then(|| self.record(grid, &stage)),
        }
    }

    fn record(&self, grid: &Grid, stage: &Stage) -> Record {
        let end = match stage {
            Stage::Begun(work) => work.end(),
            Stage::Delivered(_) => None,
        };
        let failed = self.expired().or_else(|| end.as_ref().and_then(|end| end.error.clone()).map(Failed::from));
        let (code, text) = failed.map_or((GRPC_NO_ERROR, String::new()), |failed| (failed.code, failed.text));
        Record {
            code,
            text,
            server: end.as_ref().and_then(|end| end.server.clone()).unwrap_or_default(),
            run_s: end.as_ref().map_or(-1.0, |end| end.run_s),
            total_s: end.map_or_else(|| grid.now(), |end| end.ended_s) - self.origin.begun_s,
            origin: self.origin,
        }
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Its time is over: it is cancelled, and ends as such.
    fn expire(&self) {
        if let Canceller::Grouped(limited) = &self.canceller {
            limited.expire();
        }
    }

    /// Why it was ended, if that was for its time.
    fn expired(&self) -> Option<Failed> {
        match &self.canceller {
            Canceller::Grouped(limited) => limited.expired(),
            Canceller::Plain(_) => None,
        }
    }
}

/// The sessions of a program.
pub(super) struct Sessions(Mutex<Table>);

/// An array of ids, of which one is to be chosen.
pub(super) struct Chosen<'a> {
    sessions: &'a Sessions,
    number: u64,
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        let mut table = self.sessions.lock();
        match table.idle.len() < IDLE_MAX {
            // The next array is presumably much like this one.
            true => table.idle.push(self.number),
            false => drop(table.choices.remove(&self.number)),
        }
    }
}

/// What is known of them, under the lock.
pub(super) struct Table {
    open: HashMap<c_int, Arc<Session>>,
    /// No longer outstanding, and not yet remembered.
    taken: HashMap<c_int, Arc<Session>>,
    /// Those that have not ended as far as is known here.
    by_task: HashMap<TaskId, c_int>,
    /// In the order in which they were begun: those that a wait for any or all finds, and those that have ended.
    listed: BTreeMap<u64, c_int>,
    ended: BTreeSet<(u64, c_int)>,
    /// Calls of groups that have time limits, by when these run out, in nanoseconds, and id.
    limited: BTreeMap<(u64, c_int), Arc<Session>>,
    next_id: c_int,
    next_order: u64,
    known: HashMap<c_int, Remembered>,
    recent: VecDeque<c_int>,
    failed: VecDeque<c_int>,
    /// Failed ones that are kept for that alone, as they became so, and the bytes of their texts.
    aged: VecDeque<c_int>,
    aged_bytes: usize,
    /// Arrays that a thread waits for one of, and some that one did.
    choices: HashMap<u64, Choice>,
    idle: Vec<u64>,
    next_choice: u64,
    /// How many are remembered; `None` for all.
    recent_max: Option<usize>,
}

/// A session that was collected, and for what it is kept.
struct Remembered {
    record: Record,
    is_recent: bool,
    is_untold: bool,
}

impl Sessions {
    /// `save_session_info` is how many are remembered; negative for all.
    pub(super) fn new(save_session_info: i64) -> Sessions {
        Sessions(Mutex::new(Table {
            open: HashMap::new(),
            taken: HashMap::new(),
            by_task: HashMap::new(),
            listed: BTreeMap::new(),
            ended: BTreeSet::new(),
            limited: BTreeMap::new(),
            next_id: 1,
            next_order: 0,
            known: HashMap::new(),
            recent: VecDeque::new(),
            failed: VecDeque::new(),
            aged: VecDeque::new(),
            aged_bytes: 0,
            choices: HashMap::new(),
            idle: Vec::new(),
            next_choice: 0,
            recent_max: usize::try_from(save_session_info).ok(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session for a call.
    pub(super) fn begin(&self, work: Work, origin: Origin) -> Arc<Session> {
        let (task, deadline_s, canceller) = (work.task(), work.deadline_s(), work.canceller());
        let stage = Mutex::new(Stage::Begun(work));
        let mut table = self.lock();
        let (id, order) = (table.free_id(), table.next_order);
        table.next_order += 1;
        let session = Arc::new(Session { id, order, origin, canceller, stage });
        table.limited.extend(deadline_s.map(|at| ((seconds_to_ns(at), id), session.clone())));
        table.open.insert(id, session.clone());
        table.by_task.insert(task, id);
        drop(table);
        // Its end is told from now on, when it can be found in the table.
        if let Stage::Begun(work) = &*session.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            work.note_end();
        }
        let mut table = self.lock();
        if table.open.contains_key(&id) {
            table.listed.insert(order, id);
        }
        drop(table);
        session
    }

    /// Ends those whose limit has run out.
    pub(super) fn expire(&self, now_s: f64) {
        let expired = self.lock().take_expired(now_s);
        expired.iter().for_each(|session| session.expire());
    }

    /// Takes an array of which one is to be chosen.
    ///
    /// # Errors
    /// If an id is of no session that is outstanding.
    pub(super) fn choose(&self, ids: Vec<c_int>) -> Outcome<Chosen<'_>> {
        let mut table = self.lock();
        let number = table.choose(ids);
        let stranger = table.choices[&number].stranger();
        drop(table);
        let chosen = Chosen { sessions: self, number };
        stranger.map_or(Ok(chosen), |id| Err(no_session(id)))
    }

    /// Asks for all that are outstanding to be cancelled.
    pub(super) fn cancel_all(&self) {
        let all: Vec<Arc<Session>> = self.lock().open.values().cloned().collect();
        all.iter().for_each(|session| session.cancel());
    }
}

impl Table {
    /// Notes ends that the grid told.
    pub(super) fn note(&mut self, ended: &[TaskId]) {
        for task in ended {
            if let Some(id) = self.by_task.remove(task) {
                let order = self.open[&id].order;
                self.ended.insert((order, id));
                self.choices.values_mut().for_each(|choice| choice.turned(id, Standing::Ended));
            }
        }
    }

    /// When the next limit of a call of a group runs out.
    pub(super) fn next_deadline_s(&mut self) -> Option<f64> {
        while let Some(first) = self.limited.first_entry() {
            let (at_ns, id) = *first.key();
            if self.open.contains_key(&id) {
                return Some(ns_to_seconds(at_ns));
            }
            first.remove();
        }
        None
    }

    /// Those whose limit has run out.
    pub(super) fn take_expired(&mut self, now_s: f64) -> Vec<Arc<Session>> {
        let later = self.limited.split_off(&(seconds_to_ns(now_s) + 1, 0));
        std::mem::replace(&mut self.limited, later).into_values().collect()
    }

    /// Whether it is a session's, and has not ended as far as is known here.
    pub(super) fn is_running(&self, task: TaskId) -> bool {
        self.by_task.contains_key(&task)
    }

    /// The outstanding session of that id.
    pub(super) fn open(&self, id: c_int) -> Outcome<&Arc<Session>> {
        self.open.get(&id).ok_or_else(|| no_session(id))
    }

    pub(super) fn has_ended(&self, session: &Session) -> bool {
        self.ended.contains(&(session.order, session.id))
    }

    /// The session, no longer outstanding if it has ended; `None` if it runs.
    pub(super) fn take_ended(&mut self, id: c_int) -> Outcome<Option<Arc<Session>>> {
        let session = self.open(id)?;
        if !self.has_ended(session) {
            return Ok(None);
        }
        let session = self.open.remove(&id).expect("found above");
        self.taken.insert(id, session.clone());
        self.ended.remove(&(session.order, id));
        self.listed.remove(&session.order);
        self.choices.values_mut().for_each(|choice| choice.turned(id, Standing::Gone));
        Ok(Some(session))
    }

    /// A session that another thread collects now.
    pub(super) fn taken(&self, id: c_int) -> Option<Arc<Session>> {
        self.taken.get(&id).cloned()
    }

    /// The session of a task that runs.
    pub(super) fn of_task(&self, task: TaskId) -> Option<c_int> {
        self.by_task.get(&task).copied()
    }

    /// Ids of all that are outstanding, in the order in which they were begun.
    pub(super) fn all(&self) -> Vec<c_int> {
        self.listed.values().copied().collect()
    }

    /// The place of the next session: all that are outstanding now are before it.
    pub(super) fn now(&self) -> u64 {
        self.next_order
    }

    /// Whether there is one that was begun before.
    pub(super) fn has_before(&self, order: u64) -> bool {
        self.listed.first_key_value().is_some_and(|(first, _)| *first < order)
    }

    /// The first of them that has ended.
    pub(super) fn first_ended_before(&self, order: u64) -> Option<c_int> {
        self.ended.first().filter(|(first, _)| *first < order).map(|(_, id)| *id)
    }

    /// Remembers a session that was collected.
    pub(super) fn remember(&mut self, id: c_int, record: Record) {
        self.taken.remove(&id);
        let is_untold = record.code != GRPC_NO_ERROR;
        if is_untold {
            self.failed.push_back(id);
            if self.failed.len() > FAILED_MAX {
                self.take_failed();
            }
        }
        self.known.insert(id, Remembered { record, is_recent: true, is_untold });
        self.recent.push_back(id);
        if self.recent_max.is_some_and(|most| self.recent.len() > most)
            && let Some(old) = self.recent.pop_front()
        {
            self.forget_if(old, |known| known.is_recent = false);
        }
    }

    /// Takes the failed session that was waited for first.
    pub(super) fn take_failed(&mut self) -> Option<c_int> {
        while let Some(id) = self.failed.pop_front() {
            if self.forget_if(id, |known| known.is_untold = false) {
                return Some(id);
            }
        }
        None
    }

    /// What is remembered of a session.
    pub(super) fn known(&self, id: c_int) -> Outcome<&Record> {
        self.known.get(&id).map(|known| &known.record).ok_or_else(|| no_session(id))
    }

    /// A session is kept until somebody asks for failed ones: of too many, the oldest lose their texts.
    fn age(&mut self, id: c_int, text_bytes: usize) {
        self.aged_bytes += text_bytes;
        self.aged.push_back(id);
        while self.aged_bytes > AGED_TEXT_BYTES_MAX
            && let Some(oldest) = self.aged.pop_front()
        {
            if let Some(known) = self.known.get_mut(&oldest) {
                self.aged_bytes -= known.record.text.len();
                (known.record.text, known.record.server) = Default::default();
            }
        }
    }

    /// It is not kept for that any more.
    fn rejuvenate(&mut self, text_bytes: usize) {
        self.aged_bytes -= text_bytes;
        while self.aged.front().is_some_and(|oldest| !self.known.contains_key(oldest)) {
            self.aged.pop_front();
        }
    }

    /// Forgets a session that was collected.
    pub(super) fn forget(&mut self, id: c_int) -> Outcome<()> {
        let known = self.known.remove(&id).ok_or_else(|| no_session(id))?;
        if !known.is_recent {
            self.rejuvenate(known.record.text.len());
        }
        self.recent.retain(|known| *known != id);
        self.failed.retain(|known| *known != id);
        Ok(())
    }

    /// A session is kept for one reason less; whether it was known.
    fn forget_if(&mut self, id: c_int, less: impl FnOnce(&mut Remembered)) -> bool {
        let Some(known) = self.known.get_mut(&id) else { return false };
        let was_aged = !known.is_recent;
        less(known);
        let (is_recent, is_untold, text_bytes) = (known.is_recent, known.is_untold, known.record.text.len());
        if !is_recent && !is_untold {
            self.known.remove(&id);
        }
        match (was_aged, is_recent, is_untold) {
            (true, ..) => self.rejuvenate(text_bytes),
            (false, false, true) => self.age(id, text_bytes),
            (false, ..) => {}
        }
        true
    }

    /// Begins to choose one of these.
    fn choose(&mut self, ids: Vec<c_int>) -> u64 {
        let number = self.idle.pop().unwrap_or_else(|| {
            self.next_choice += 1;
            self.next_choice
        });
        let mut choice = self.choices.remove(&number).unwrap_or_default();
        choice.turn_to(ids, |id| match self.open.get(&id) {
            None => Standing::Gone,
            Some(session) if self.has_ended(session) => Standing::Ended,
            Some(_) => Standing::Running,
        });
        self.choices.insert(number, choice);
        number
    }

    /// The first of the array that has ended, `None` if none has; an error if one is no longer outstanding.
    pub(super) fn first_of(&self, chosen: &Chosen<'_>) -> Outcome<Option<c_int>> {
        self.choices[&chosen.number].first().map_err(no_session)
    }

    /// An id that is of no session that is known.
    pub(super) fn free_id(&mut self) -> c_int {
        loop {
            let id = self.next_id;
            self.next_id = if id == c_int::MAX { 1 } else { id + 1 };
            let is_known = self.open.contains_key(&id) || self.taken.contains_key(&id) || self.known.contains_key(&id);
            if !is_known {
                return id;
            }
        }
    }
}

pub(super) fn no_session(id: c_int) -> Failed {
    let text = format!("{id} is the id of no session that is known: it was waited for, or none was given it");
    Failed::new(GRPC_INVALID_SESSION_ID, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: c_int) -> Record {
        let origin = Origin { handle: 0, number: 0, begun_s: 0.0 };
        Record { code, text: String::new(), server: String::new(), run_s: 0.0, total_s: 0.0, origin }
    }

    #[test]
    fn the_last_are_remembered_and_failed_ones_until_they_are_told() {
        let sessions = Sessions::new(2);
        let mut table = sessions.lock();
        for (id, code) in [(1, 0), (2, 11), (3, 0), (4, 0), (5, 17)] {
            table.remember(id, record(code));
        }
        let known = |table: &Table| (1..=5).filter(|id| table.known(*id).is_ok()).collect::<Vec<c_int>>();
        assert_eq!(known(&table), [2, 4, 5]);
        assert_eq!(table.take_failed(), Some(2));
        assert_eq!(known(&table), [4, 5]);
        assert_eq!(table.take_failed(), Some(5));
        assert_eq!(table.take_failed(), None);
        assert_eq!(known(&table), [4, 5]);
        table.forget(5).unwrap();
        assert_eq!(known(&table), [4]);
        assert_eq!(table.forget(5).unwrap_err().code, GRPC_INVALID_SESSION_ID);
    }

    #[test]
    fn texts_of_very_many_failed_ones_are_bounded() {
        let sessions = Sessions::new(2);
        let mut table = sessions.lock();
        let long = "x".repeat(AGED_TEXT_BYTES_MAX / 4);
        for id in 1..=10 {
            table.remember(id, Record { text: long.clone(), ..record(11) });
        }
        let kept = |table: &Table| table.known.values().map(|known| known.record.text.len()).sum::<usize>();
        // Four that are kept for their failure, and the last two.
        assert_eq!((kept(&table), table.aged_bytes), (6 * long.len(), 4 * long.len()));
        assert!(table.known(1).unwrap().text.is_empty() && table.known(5).unwrap().text == long);
        table.forget(5).unwrap();
        assert_eq!((1..=9).filter(|_| table.take_failed().is_some()).count(), 9);
        assert_eq!((kept(&table), table.aged_bytes, table.aged.len()), (2 * long.len(), 0, 0));
    }

    #[test]
    fn none_or_all_are_remembered_if_that_is_said() {
        for (said, left) in [(0, 1), (-1, 1000)] {
            let sessions = Sessions::new(said);
            let mut table = sessions.lock();
            table.remember(1000, record(11));
            (1..1000).for_each(|id| table.remember(id, record(0)));
            assert_eq!(table.known.len(), left);
        }
    }

    #[test]
    fn ids_go_round_and_leave_out_what_is_known() {
        let sessions = Sessions::new(-1);
        let mut table = sessions.lock();
        table.remember(1, record(0));
        table.next_id = c_int::MAX;
        assert_eq!([table.free_id(), table.free_id(), table.free_id()], [c_int::MAX, 2, 3]);
    }
}
