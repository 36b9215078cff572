//! Probes, waits, cancelling, and errors of sessions.
//!
//! A wait looks at the table of sessions under the grid's lock, each time that something has happened: whoever is told of
//! an end notes it there, and all who wait look again.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use gridloom::Error;

use super::callbacks::asking;
use super::code::{
    Failed, GRPC_INVALID_FUNCTION_HANDLE, GRPC_NO_ERROR, GRPC_NONE_COMPLETED, GRPC_NOT_COMPLETED, GRPC_SESSION_FAILED,
    Outcome, run,
};
use super::handles::CFunctionHandle;
use super::library::{Library, library};
use super::map;
use super::memory::{self, Place};
use super::sessions::{Origin, Record, Session, Table, no_session};

/// `GRPC_SESSIONID_VOID`.
pub(super) const VOID: c_int = -1;

/// Virtual time passes while a program only probes, or its loop of probes would never end.
const PROBE_S: f64 = 1e-6;

/// The text of a session that failed before very many others did.
const DROPPED: &str = "its text was dropped, as very many sessions failed since; ask for texts earlier";

impl Library {
    /// Waits until `look` finds what it looks for among the sessions.
    pub(super) fn await_sessions<R>(
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

    /// What `look` finds among the sessions now; `None` if nothing has ended, which takes a little time in simulation.
    fn probe_sessions<R>(&self, look: impl FnMut(&mut Table) -> Option<R>) -> Outcome<Option<R>> {
        match self.await_sessions(Some(Duration::ZERO), look) {
            Ok(found) => Ok(Some(found)),
            Err(Error::TimedOut { .. }) => {
                if self.grid.is_simulated() {
                    self.grid.advance(PROBE_S);
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a session and collects it.
    fn wait_for(&self, id: c_int) -> Outcome<()> {
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
    pub(super) fn await_ended(&self, session: &Arc<Session>) -> Outcome<()> {
        self.await_sessions(None, |table| {
            let is_open = table.open(session.id).is_ok_and(|open| Arc::ptr_eq(open, session));
            (!is_open || table.has_ended(session)).then_some(())
        })?;
        let Record { code, text, .. } = session.settle(self);
        if code == GRPC_NO_ERROR { Ok(()) } else { Err(Failed::new(code, text)) }
    }

    /// Waits until the results of a session that another thread collects are written; how it ended, if that is known.
    fn await_other(&self, id: c_int) -> Option<Record> {
        let taken = self.sessions.lock().taken(id);
        match taken {
            Some(session) => Some(session.settle(self)),
            None => self.sessions.lock().known(id).ok().cloned(),
        }
    }

    /// A session that is no longer outstanding: its results are written, and it is remembered.
    fn collected(&self, session: &Arc<Session>) -> Outcome<()> {
        let record = session.settle(self);
        let outcome = outcome_of(session.id, &record);
        self.sessions.lock().remember(session.id, record);
        outcome
    }

    /// Waits for all of these; the first failure, after all have ended.
    fn wait_for_all(&self, ids: impl Iterator<Item = c_int>, may_be_gone: bool) -> Outcome<()> {
        let mut outcome = Ok(());
        for id in ids {
            match self.wait_for(id) {
                Err(failed) if failed.code == GRPC_SESSION_FAILED => outcome = outcome.and(Err(failed)),
                // Another thread waited for it: how it ended counts all the same, and the others are waited for.
                Err(failed) if failed == no_session(id) => {
                    let ended = self.await_other(id).map_or(Ok(()), |record| outcome_of(id, &record));
                    outcome = outcome.and(if may_be_gone { ended } else { Err(failed) });
                }
                other => other?,
            }
        }
        outcome
    }

    /// Waits for one of these sessions, which `tell` is told before it is collected.
    fn wait_for_one(&self, ids: Vec<c_int>, tell: impl FnOnce(c_int)) -> Outcome<()> {
        self.refuse_own(|own| ids.contains(&own))?;
        let chosen = self.sessions.choose(ids)?;
        let session = self.await_sessions(None, |table| match table.first_of(&chosen) {
            Ok(found) => found.and_then(|id| table.take_ended(id).transpose()),
            Err(failed) => Some(Err(failed)),
        })??;
        tell(session.id);
        self.collected(&session)
    }

    /// The same for any that is outstanding; `VOID` if none is.
    fn wait_for_any(&self, tell: impl FnOnce(c_int)) -> Outcome<()> {
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
        let own = asking().and_then(|task| self.sessions.lock().of_task(task));
        match own.filter(|own| waits_for(*own)) {
            Some(own) => Err(Failed::other(format!("a callback of session {own} cannot wait for it to end"))),
            None => Ok(()),
        }
    }

    /// Refuses ids that are of no outstanding session.
    fn check(&self, ids: &[c_int]) -> Outcome<()> {
        let table = self.sessions.lock();
        ids.iter().try_for_each(|id| table.open(*id).map(drop))
    }

    pub(super) fn error_of(&self, id: c_int) -> Outcome<(c_int, String)> {
        if map::discovering(|run, _| run.origin(id)).flatten().is_some() {
            return Ok((GRPC_NO_ERROR, String::new()));
        }
        let table = self.sessions.lock();
        let open = table.open(id).ok().cloned().or_else(|| table.taken(id));
        drop(table);
        if let Some(session) = open {
            let record = session.peek(&self.grid);
            return Ok(record.map_or((GRPC_NO_ERROR, String::new()), |record| (record.code, record.text)));
        }
        let (code, text) = self.sessions.lock().known(id).map(|record| (record.code, record.text.clone()))?;
        let is_dropped = code != GRPC_NO_ERROR && text.is_empty();
        Ok((code, if is_dropped { DROPPED.to_string() } else { text }))
    }
}

/// Waits for sessions of a block that is being discovered; `None` if none is.
fn wait_if_discovering(ids: &[c_int]) -> Option<Outcome<()>> {
    map::discovering(|run, library| {
        run.check(ids, library)?;
        run.wait(ids);
        Ok(())
    })
}

fn outcome_of(id: c_int, record: &Record) -> Outcome<()> {
    if record.code == GRPC_NO_ERROR {
        return Ok(());
    }
    Err(Failed::new(GRPC_SESSION_FAILED, format!("session {id} failed: {}", record.text)))
}

/// A program's ids, copied, since the place for one of them may be among them.
///
/// # Safety
/// As of [`memory::array`].
unsafe fn ids_and_place(ids: *const c_int, length: usize, place: *mut c_int) -> Outcome<(Vec<c_int>, Place<c_int>)> {
    // SAFETY: the caller's.
    let ids = unsafe { memory::array(ids, length, "the array of ids") }?;
    Ok((ids, memory::place(place, "the place for the id")?))
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_probe(session_id: c_int) -> c_int {
    run(|| {
        if let Some(found) = map::discovering(|run, library| run.check(&[session_id], library)) {
            return found;
        }
        let library = library()?;
        let session = library.probe_sessions(|table| match table.open(session_id).cloned() {
            Ok(session) => table.has_ended(&session).then_some(Ok(session)),
            Err(failed) => Some(Err(failed)),
        })?;
        match session.ok_or_else(|| Failed::new(GRPC_NOT_COMPLETED, ""))? {
            Ok(session) => drop(session.settle(&library)),
            Err(failed) => {
                library.await_other(session_id);
                return Err(failed);
            }
        }
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_probe_or(
    session_ids: *const c_int,
    length: usize,
    session_id: *mut c_int,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let (ids, place) = unsafe { ids_and_place(session_ids, length, session_id) }?;
        let found = map::discovering(|run, library| {
            run.check(&ids, library)?;
            ids.first().copied().ok_or_else(|| Failed::new(GRPC_NONE_COMPLETED, ""))
        });
        if let Some(found) = found {
            // SAFETY: as the header asks.
            unsafe { place.write(found.as_ref().copied().unwrap_or(VOID)) };
            return found.map(drop);
        }
        let chosen = library.sessions.choose(ids)?;
        let session = library.probe_sessions(|table| match table.first_of(&chosen) {
            Ok(found) => found.map(|id| table.open(id).cloned()),
            Err(failed) => Some(Err(failed)),
        })?;
        drop(chosen);
        let Some(session) = session else {
            // SAFETY: as the header asks.
            unsafe { place.write(VOID) };
            return Err(Failed::new(GRPC_NONE_COMPLETED, ""));
        };
        let session = session?;
        session.settle(&library);
        // SAFETY: as the header asks.
        unsafe { place.write(session.id) };
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_cancel(session_id: c_int) -> c_int {
    run(|| {
        if let Some(found) = map::discovering(|run, library| run.check(&[session_id], library)) {
            return found;
        }
        let library = library()?;
        let session = library.sessions.lock().open(session_id)?.clone();
        session.cancel();
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_cancel_all() -> c_int {
    run(|| {
        if map::discovering(|_, _| ()).is_some() {
            return Ok(());
        }
        library()?.sessions.cancel_all();
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_wait(session_id: c_int) -> c_int {
    run(|| {
        let library = library()?;
        wait_if_discovering(&[session_id]).unwrap_or_else(|| library.wait_for(session_id))
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn mynetslwt(session_id: c_int) -> c_int {
    grpc_wait(session_id)
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_wait_and(session_ids: *const c_int, length: usize) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let ids = unsafe { memory::array(session_ids, length, "the array of ids") }?;
        if let Some(waited) = wait_if_discovering(&ids) {
            return waited;
        }
        library.check(&ids)?;
        // One that stands twice counts once.
        let mut seen = BTreeSet::new();
        library.wait_for_all(ids.iter().copied().filter(|id| seen.insert(*id)), false)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_wait_or(
    session_ids: *const c_int,
    length: usize,
    session_id: *mut c_int,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let (ids, place) = unsafe { ids_and_place(session_ids, length, session_id) }?;
        // SAFETY: as the header asks.
        let tell = |id| unsafe { place.write(id) };
        if ids.is_empty() {
            tell(VOID);
            return Ok(());
        }
        let found = map::discovering(|run, library| {
            run.check(&ids, library)?;
            run.wait(&ids[..1]);
            Outcome::Ok(ids[0])
        });
        if let Some(found) = found {
            tell(found?);
            return Ok(());
        }
        library.wait_for_one(ids, tell)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_wait_all() -> c_int {
    run(|| {
        let library = library()?;
        let is_discovering = map::discovering(|run, library| {
            let all = run.outstanding(library);
            run.wait(&all);
        });
        if is_discovering.is_some() {
            return Ok(());
        }
        let all = library.sessions.lock().all();
        library.wait_for_all(all.into_iter(), true)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_wait_any(session_id: *mut c_int) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(session_id, "the place for the id")?;
        // SAFETY: as the header asks.
        let tell = |id| unsafe { place.write(id) };
        let found = map::discovering(|run, library| {
            let first = run.outstanding(library).first().copied();
            run.wait(first.as_slice());
            first.unwrap_or(VOID)
        });
        match found {
            Some(id) => tell(id),
            None => library.wait_for_any(tell)?,
        }
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_failed_sessionid(session_id: *mut c_int) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(session_id, "the place for the id")?;
        let is_discovering = map::discovering(|_, _| ()).is_some();
        let failed = if is_discovering { None } else { library.sessions.lock().take_failed() };
        let failed = failed.unwrap_or(VOID);
        // SAFETY: as the header asks.
        unsafe { place.write(failed) };
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_get_error(session_id: c_int) -> c_int {
    let mut code = GRPC_NO_ERROR;
    let asked = run(|| {
        (code, _) = library()?.error_of(session_id)?;
        Ok(())
    });
    if asked == GRPC_NO_ERROR { code } else { asked }
}

impl Library {
    /// Through which handle a session was begun.
    pub(super) fn origin_of(&self, session_id: c_int) -> Outcome<Origin> {
        let discovered = map::discovering(|run, _| run.origin(session_id)).flatten();
        let table = self.sessions.lock();
        let open = discovered.map_or_else(|| table.open(session_id).map(|session| session.origin()), Ok);
        let origin = open.or_else(|failed| table.taken(session_id).map(|session| session.origin()).ok_or(failed));
        origin.or_else(|_| table.known(session_id).map(|record| record.origin))
    }
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_handle(handle: *mut *mut CFunctionHandle, session_id: c_int) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(handle, "the place for the handle")?;
        let origin = library.origin_of(session_id)?;
        if !library.handles.has(origin.number) {
            let text = format!("the handle through which session {session_id} was begun has ended");
            return Err(Failed::new(GRPC_INVALID_FUNCTION_HANDLE, text));
        }
        // SAFETY: as the header asks.
        unsafe { place.write(std::ptr::with_exposed_provenance_mut(origin.handle)) };
        Ok(())
    })
}
