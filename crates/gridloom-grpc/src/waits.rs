//! Waits for sessions and probes them.
//!
//! Each time that something has happened, a waiting thread looks at the table of sessions under the grid's lock. The
//! thread to which the grid reports an end records it in the table, and all waiting threads look again.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gridloom::Error;

use super::callbacks::callback_task;
use super::code::{Failed, GRPC_NO_ERROR, GRPC_SESSION_FAILED, Outcome};
use super::library::Library;
use super::session::{GroupCall, Record, Session};
use super::sessions::{Table, no_session};

/// `GRPC_SESSIONID_VOID`.
pub const VOID: c_int = -1;

/// Called with the call of each session that is settled.
static SETTLED: OnceLock<fn(&Arc<GroupCall>)> = OnceLock::new();

/// Lets the library call `settled` for each call of a group that the program has waited for or probed, on the program's thread.
pub(crate) fn on_settled(settled: fn(&Arc<GroupCall>)) {
    SETTLED.get_or_init(|| settled);
}

/// Virtual time that a probe takes: otherwise a loop of probes would never end.
const PROBE_S: f64 = 1e-6;

impl Library {
    /// Waits until `look` returns a value for the sessions.
    pub(crate) fn await_sessions<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&mut Table) -> Option<R>,
    ) -> Result<R, Error> {
        let until_s = limit.map(|limit| self.grid.now() + limit.as_secs_f64());
        loop {
            let deadline_s = self.sessions.lock().next_deadline_s();
            let left_s = deadline_s.into_iter().chain(until_s).reduce(f64::min).map(|at| at - self.grid.now());
            let left = left_s.map(|left| Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX));
            let found = self.grid.await_ends(left, |ended| {
                let mut table = self.sessions.lock();
                table.note(ended);
                look(&mut table)
            });
            match (&found, deadline_s) {
                (Err(Error::TimedOut { .. }), Some(deadline)) if until_s.is_none_or(|until| deadline < until) => {
                    self.sessions.expire(deadline);
                }
                _ => return found,
            }
        }
    }

    /// Returns the value of `look` for the sessions now; if it is `None` because nothing has ended, this takes a
    /// little time in simulation.
    pub(crate) fn probe_sessions<R>(&self, look: impl FnMut(&mut Table) -> Option<R>) -> Outcome<Option<R>> {
        match self.await_sessions(Some(Duration::ZERO), look) {
            Ok(found) => Ok(Some(found)),
            Err(Error::TimedOut { .. }) => {
                self.pass_time_of_a_probe();
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Passes a little time in simulation, for a probe that finds nothing.
    pub(crate) fn pass_time_of_a_probe(&self) {
        if self.grid.is_simulated() {
            self.grid.advance(PROBE_S);
        }
    }

    /// Writes the results of a session that has ended, if no thread has.
    pub(crate) fn settle(&self, session: &Session) -> Record {
        // SAFETY: memory that the program described is as described until the program removes the description, as the
        // header requires.
        let record = session.write_results(&unsafe { self.places() }, &self.staying);
        if let (Some(limited), Some(settled)) = (session.group_call(), SETTLED.get()) {
            settled(limited);
        }
        record
    }

    /// Waits for a session and collects it.
    pub(crate) fn wait_for(&self, id: c_int) -> Outcome<()> {
        self.refuse_own(|own| own == id)?;
        match self.await_sessions(None, |table| table.take_ended(id).transpose())? {
            Ok(session) => self.collected(&session),
            Err(failed) => {
                self.await_other(id);
                Err(failed)
            }
        }
    }

    /// Waits for the end of a session, and for its results; it stays outstanding.
    pub(crate) fn await_ended(&self, session: &Arc<Session>) -> Outcome<()> {
        self.await_sessions(None, |table| {
            let is_open = table.open(session.id).is_ok_and(|open| Arc::ptr_eq(open, session));
            (!is_open || table.has_ended(session)).then_some(())
        })?;
        let Record { code, text, .. } = self.settle(session);
        if code == GRPC_NO_ERROR { Ok(()) } else { Err(Failed::new(code, text)) }
    }

    /// Waits until the results of a session that another thread collects are written. Returns how it ended, if that is known.
    pub(crate) fn await_other(&self, id: c_int) -> Option<Record> {
        let taken = self.sessions.lock().taken(id);
        match taken {
            Some(session) => Some(self.settle(&session)),
            None => self.sessions.lock().known(id).ok().cloned(),
        }
    }

    /// Makes a session whose results are written no longer outstanding, and remembers it.
    fn collected(&self, session: &Arc<Session>) -> Outcome<()> {
        let record = self.settle(session);
        let outcome = outcome_of(session.id, &record);
        self.sessions.lock().remember(session.id, record);
        outcome
    }

    /// Waits for all of these. Returns the first failure, after all have ended.
    pub(crate) fn wait_for_all(&self, ids: impl Iterator<Item = c_int>, may_be_gone: bool) -> Outcome<()> {
        let mut outcome = Ok(());
        for id in ids {
            match self.wait_for(id) {
                Err(failed) if failed.code == GRPC_SESSION_FAILED => outcome = outcome.and(Err(failed)),
                // Another thread waited for it: its outcome counts all the same, and the others are waited for.
                Err(failed) if failed == no_session(id) => {
                    let ended = self.await_other(id).map_or(Ok(()), |record| outcome_of(id, &record));
                    outcome = outcome.and(if may_be_gone { ended } else { Err(failed) });
                }
                other => other?,
            }
        }
        outcome
    }

    /// Waits for one of these sessions, and passes it to `tell` before it is collected.
    pub(crate) fn wait_for_one(&self, ids: Vec<c_int>, tell: impl FnOnce(c_int)) -> Outcome<()> {
        self.refuse_own(|own| ids.contains(&own))?;
        let chosen = self.sessions.choose(ids)?;
        let session = self.await_sessions(None, |table| match table.first_of(&chosen) {
            Ok(found) => found.and_then(|id| table.take_ended(id).transpose()),
            Err(failed) => Some(Err(failed)),
        })??;
        tell(session.id);
        self.collected(&session)
    }

    /// The same for any outstanding session; `VOID` if there is none.
    pub(crate) fn wait_for_any(&self, tell: impl FnOnce(c_int)) -> Outcome<()> {
        self.refuse_own(|_| true)?;
        let before = self.sessions.lock().now();
        let session =
            self.await_sessions(None, |table| match (table.first_ended_before(before), table.has_before(before)) {
                (Some(id), _) => Some(table.take_ended(id)),
                (None, false) => Some(Ok(None)),
                (None, true) => None,
            })??;
        let Some(session) = session else {
            tell(VOID);
            return Ok(());
        };
        tell(session.id);
        self.collected(&session)
    }

    /// Refuses to wait in a callback for the session that waits for it.
    fn refuse_own(&self, waits_for: impl Fn(c_int) -> bool) -> Outcome<()> {
        let own = callback_task().and_then(|task| self.sessions.lock().of_task(task));
        match own.filter(|own| waits_for(*own)) {
            Some(own) => Err(Failed::other(format!("a callback of session {own} cannot wait for it to end"))),
            None => Ok(()),
        }
    }

    /// Refuses ids that belong to no outstanding session.
    pub(crate) fn check(&self, ids: &[c_int]) -> Outcome<()> {
        let table = self.sessions.lock();
        ids.iter().try_for_each(|id| table.open(*id).map(drop))
    }
}

fn outcome_of(id: c_int, record: &Record) -> Outcome<()> {
    if record.code == GRPC_NO_ERROR {
        return Ok(());
    }
    Err(Failed::new(GRPC_SESSION_FAILED, format!("session {id} failed: {}", record.text)))
}
