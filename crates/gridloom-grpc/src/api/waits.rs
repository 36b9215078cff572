//! Probes, waits, cancellation, and errors of sessions. In the first run of a block, all sessions end at once.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};

use super::super::code::{
    Failed, GRPC_INVALID_FUNCTION_HANDLE, GRPC_NO_ERROR, GRPC_NONE_COMPLETED, GRPC_NOT_COMPLETED, Outcome, name_of, run,
};
use super::super::handles::{CFunctionHandle, CHandle, Handles};
use super::super::library::{Library, library};
use super::super::map;
use super::super::memory;
use super::super::session::Origin;
use super::super::waits::VOID;

/// The text for a session that failed before very many others did.
const DROPPED: &str = "its text was dropped, because very many sessions have failed since; request texts earlier";

impl Library {
    /// Returns code and text of a session's error.
    pub(super) fn error_of(&self, id: c_int) -> Outcome<(c_int, String)> {
        if map::discovering(|run, _| run.origin(id)).flatten().is_some() {
            return Ok((GRPC_NO_ERROR, String::new()));
        }
        let table = self.sessions.lock();
        let open = table.open(id).ok().cloned().or_else(|| table.taken(id));
        drop(table);
        if let Some(session) = open {
            let record = session.current_record(&self.grid);
            return Ok(record.map_or((GRPC_NO_ERROR, String::new()), |record| (record.code, record.text)));
        }
        let (code, text) = self.sessions.lock().known(id).map(|record| (record.code, record.text.clone()))?;
        let is_dropped = code != GRPC_NO_ERROR && text.is_empty();
        Ok((code, if is_dropped { DROPPED.to_string() } else { text }))
    }

    /// Returns the handle through which a session was started.
    pub(super) fn origin_of(&self, session_id: c_int) -> Outcome<Origin> {
        let discovered = map::discovering(|run, _| run.origin(session_id)).flatten();
        let table = self.sessions.lock();
        let open = discovered.map_or_else(|| table.open(session_id).map(|session| session.origin()), Ok);
        let origin = open.or_else(|failed| table.taken(session_id).map(|session| session.origin()).ok_or(failed));
        origin.or_else(|_| table.known(session_id).map(|record| record.origin))
    }
}

/// Waits for sessions of a block that is being discovered, if all of them are outstanding; returns `None` if the
/// thread is in no such block.
fn wait_if_discovering(ids: &[c_int], waited: &[c_int]) -> Option<Outcome<()>> {
    map::discovering(|run, library| {
        run.check(ids, library)?;
        run.wait(waited);
        Ok(())
    })
}

/// Copies a program's ids, because the memory for one of them may be inside the array.
///
/// # Safety
/// As for [`memory::array`].
unsafe fn copy_of(ids: *const c_int, length: usize) -> Outcome<Vec<c_int>> {
    // SAFETY: promised by the caller.
    unsafe { memory::array(ids, length, "the array of ids") }
}

/// Runs the body of a function that returns an id; the body gets a function that writes the id to the program's memory.
///
/// # Safety
/// Null, or memory for an id.
unsafe fn with_id_output(place: *mut c_int, body: impl FnOnce(&Library, &dyn Fn(c_int)) -> Outcome<()>) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::program_memory(place, "the pointer for the id")?;
        // SAFETY: promised by the caller.
        body(&library, &|id| unsafe { place.write(id) })
    })
}

/// Writes the address of the handle through which a session was started.
///
/// # Safety
/// Null, or memory for the address.
pub(super) unsafe fn write_handle<T, const KIND: u64>(
    handle: *mut *mut CHandle<KIND>,
    session_id: c_int,
    all: impl FnOnce(&Library) -> &Handles<T, KIND>,
    gone: impl FnOnce() -> Failed,
) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::program_memory(handle, "the pointer for the handle")?;
        let origin = library.origin_of(session_id)?;
        if !all(&library).has(origin.number) {
            return Err(gone());
        }
        // SAFETY: promised by the caller.
        unsafe { place.write(std::ptr::with_exposed_provenance_mut(origin.handle)) };
        Ok(())
    })
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
            Ok(session) => drop(library.settle(&session)),
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
    let probe = |library: &Library, tell: &dyn Fn(c_int)| {
        // SAFETY: required by the header.
        let ids = unsafe { copy_of(session_ids, length) }?;
        let discovered = map::discovering(|run, library| {
            run.check(&ids, library)?;
            Outcome::Ok(ids.first().copied())
        });
        let found = discovered.unwrap_or_else(|| {
            let chosen = library.sessions.choose(ids)?;
            let session = library.probe_sessions(|table| match table.first_of(&chosen) {
                Ok(found) => found.map(|id| table.open(id).cloned()),
                Err(failed) => Some(Err(failed)),
            })?;
            let session = session.transpose()?;
            Ok(session.map(|session| {
                library.settle(&session);
                session.id
            }))
        })?;
        tell(found.unwrap_or(VOID));
        found.map(drop).ok_or_else(|| Failed::new(GRPC_NONE_COMPLETED, ""))
    };
    // SAFETY: required by the header.
    unsafe { with_id_output(session_id, probe) }
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
        wait_if_discovering(&[session_id], &[session_id]).unwrap_or_else(|| library.wait_for(session_id))
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn netslpr(request: c_int) -> c_int {
    -grpc_probe(request)
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn netslwt(request: c_int) -> c_int {
    -grpc_wait(request)
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn netslerr(status: c_int) {
    let code = status.checked_neg().unwrap_or(c_int::MAX);
    gridloom_base::stderr_line!("netsl: {}", name_of(code).to_string_lossy());
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
        // SAFETY: required by the header.
        let ids = unsafe { copy_of(session_ids, length) }?;
        if let Some(waited) = wait_if_discovering(&ids, &ids) {
            return waited;
        }
        library.check(&ids)?;
        // An id that occurs twice counts once.
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
    let wait = |library: &Library, tell: &dyn Fn(c_int)| {
        // SAFETY: required by the header.
        let ids = unsafe { copy_of(session_ids, length) }?;
        let Some(first) = ids.first().copied() else {
            tell(VOID);
            return Ok(());
        };
        match wait_if_discovering(&ids, &[first]) {
            Some(waited) => waited.map(|()| tell(first)),
            None => library.wait_for_one(ids, tell),
        }
    };
    // SAFETY: required by the header.
    unsafe { with_id_output(session_id, wait) }
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
    let wait = |library: &Library, tell: &dyn Fn(c_int)| {
        let found = map::discovering(|run, library| {
            let first = run.outstanding(library).first().copied();
            run.wait(first.as_slice());
            first.unwrap_or(VOID)
        });
        let Some(id) = found else { return library.wait_for_any(tell) };
        tell(id);
        Ok(())
    };
    // SAFETY: required by the header.
    unsafe { with_id_output(session_id, wait) }
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_failed_sessionid(session_id: *mut c_int) -> c_int {
    let take = |library: &Library, tell: &dyn Fn(c_int)| {
        let is_discovering = map::discovering(|_, _| ()).is_some();
        let failed = if is_discovering { None } else { library.sessions.lock().remembered.take_failed() };
        tell(failed.unwrap_or(VOID));
        Ok(())
    };
    // SAFETY: required by the header.
    unsafe { with_id_output(session_id, take) }
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
    let gone = || {
        let text = format!("the handle through which session {session_id} was started has ended");
        Failed::new(GRPC_INVALID_FUNCTION_HANDLE, text)
    };
    // SAFETY: required by the header.
    unsafe { write_handle(handle, session_id, |library| &library.handles, gone) }
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_error_string(error_code: c_int) -> *mut c_char {
    name_of(error_code).as_ptr().cast_mut()
}
