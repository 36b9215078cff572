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
use super::memory;
use super::sessions::{Record, Session, Table, no_session};

/// `GRPC_SESSIONID_VOID`.
pub(super) const VOID: c_int = -1;

/// Virtual time passes while a program only probes, or its loop of probes would never end.
const PROBE_S: f64 = 1e-6;

impl Library {
    /// Waits until `look` finds what it looks for among the sessions.
    fn await_sessions<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&mut Table) -> Option<R>,
    ) -> Result<R, Error> {
        self.grid.await_ends(limit, |ended| {
            let mut table = self.sessions.lock();
            table.note(ended);
            look(&mut table)
        })
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

    /// Waits until the results of a session that another thread collects are written; how it ended, if that is known.
    fn await_other(&self, id: c_int) -> Option<Record> {
        let taken = self.sessions.lock().taken(id);
        match taken {
            Some(session) => Some(session.settle(&self.grid)),
            None => self.sessions.lock().known(id).ok().cloned(),
        }
    }

    /// A session that is no longer outstanding: its results are written, and it is remembered.
    fn collected(&self, session: &Arc<Session>) -> Outcome<()> {
        let record = session.settle(&self.grid);
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

    fn wait_for_one(&self, ids: &[c_int], place: &mut c_int) -> Outcome<()> {
        self.refuse_own(|own| ids.contains(&own))?;
        let session = self.await_sessions(None, |table| match first_ended(table, ids) {
            Ok(found) => found.and_then(|id| table.take_ended(id).transpose()),
            Err(failed) => Some(Err(failed)),
        })??;
        *place = session.id;
        self.collected(&session)
    }

    fn wait_for_any(&self, place: &mut c_int) -> Outcome<()> {
        self.refuse_own(|_| true)?;
        let before = self.sessions.lock().now();
        let session =
            self.await_sessions(None, |table| match (table.first_ended_before(before), table.has_before(before)) {
                (Some(id), _) => Some(table.take_ended(id)),
                (None, false) => Some(Ok(None)),
                (None, true) => None,
            })??;
        let Some(session) = session else {
            *place = VOID;
            return Ok(());
        };
        *place = session.id;
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
        let table = self.sessions.lock();
        let open = table.open(id).ok().cloned().or_else(|| table.taken(id));
        drop(table);
        if let Some(session) = open {
            let record = session.peek(&self.grid);
            return Ok(record.map_or((GRPC_NO_ERROR, String::new()), |record| (record.code, record.text)));
        }
        self.sessions.lock().known(id).map(|record| (record.code, record.text.clone()))
    }
}

fn outcome_of(id: c_int, record: &Record) -> Outcome<()> {
    if record.code == GRPC_NO_ERROR {
        return Ok(());
    }
    Err(Failed::new(GRPC_SESSION_FAILED, format!("session {id} failed: {}", record.text)))
}

/// The first of these that has ended, `None` if none has; an error if one is no longer outstanding.
fn first_ended(table: &Table, ids: &[c_int]) -> Outcome<Option<c_int>> {
    for id in ids {
        if table.has_ended(table.open(*id)?) {
            return Ok(Some(*id));
        }
    }
    Ok(None)
}

/// A program's ids, copied, since the place for one of them may be among them.
///
/// # Safety
/// As of [`memory::array`] and [`memory::place`].
unsafe fn ids_and_place<'a>(
    ids: *const c_int,
    length: usize,
    place: *mut c_int,
) -> Outcome<(Vec<c_int>, &'a mut c_int)> {
    // SAFETY: the caller's, for both.
    unsafe {
        Ok((memory::array(ids, length, "the array of ids")?.to_vec(), memory::place(place, "the place for the id")?))
    }
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_probe(session_id: c_int) -> c_int {
    run(|| {
        let library = library()?;
        let session = library.probe_sessions(|table| match table.open(session_id).cloned() {
            Ok(session) => table.has_ended(&session).then_some(Ok(session)),
            Err(failed) => Some(Err(failed)),
        })?;
        match session.ok_or_else(|| Failed::new(GRPC_NOT_COMPLETED, ""))? {
            Ok(session) => drop(session.settle(&library.grid)),
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
        library.check(&ids)?;
        let session = library.probe_sessions(|table| match first_ended(table, &ids) {
            Ok(found) => found.map(|id| table.open(id).cloned()),
            Err(failed) => Some(Err(failed)),
        })?;
        let Some(session) = session else {
            *place = VOID;
            return Err(Failed::new(GRPC_NONE_COMPLETED, ""));
        };
        let session = session?;
        session.settle(&library.grid);
        *place = session.id;
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_cancel(session_id: c_int) -> c_int {
    run(|| {
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
        library()?.sessions.cancel_all();
        Ok(())
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_wait(session_id: c_int) -> c_int {
    run(|| library()?.wait_for(session_id))
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_wait_and(session_ids: *const c_int, length: usize) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let ids = unsafe { memory::array(session_ids, length, "the array of ids") }?;
        library.check(ids)?;
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
        library.check(&ids)?;
        if ids.is_empty() {
            *place = VOID;
            return Ok(());
        }
        library.wait_for_one(&ids, place)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_wait_all() -> c_int {
    run(|| {
        let library = library()?;
        let all = library.sessions.lock().all();
        library.wait_for_all(all.into_iter(), true)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_wait_any(session_id: *mut c_int) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        library.wait_for_any(unsafe { memory::place(session_id, "the place for the id") }?)
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_failed_sessionid(session_id: *mut c_int) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let place = unsafe { memory::place(session_id, "the place for the id") }?;
        *place = library.sessions.lock().take_failed().unwrap_or(VOID);
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

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_handle(handle: *mut *mut CFunctionHandle, session_id: c_int) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let place = unsafe { memory::place(handle, "the place for the handle") }?;
        let table = library.sessions.lock();
        let open = table.open(session_id).map(|session| session.origin());
        let origin = open.or_else(|failed| table.taken(session_id).map(|session| session.origin()).ok_or(failed));
        let origin = origin.or_else(|_| table.known(session_id).map(|record| record.origin))?;
        drop(table);
        if !library.handles.has(origin.number) {
            let text = format!("the handle through which session {session_id} was begun has ended");
            return Err(Failed::new(GRPC_INVALID_FUNCTION_HANDLE, text));
        }
        *place = std::ptr::with_exposed_provenance_mut(origin.handle);
        Ok(())
    })
}
