//! A call that was begun: under way, then ended, then with its results written.
//!
//! **Invariant:** one thread writes a session's results, the one that takes its [`Stage`] first. Others wait at its lock; a
//! thread that cancels does not need it.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use gridloom::Grid;

use super::call::{Canceller, Origin, Work};
use super::client::Client;
use super::code::{Failed, GRPC_NO_ERROR};

/// A session that is outstanding.
pub(super) struct Session {
    pub(super) id: c_int,
    /// Its place among all that were begun.
    pub(super) order: u64,
    origin: Origin,
    canceller: Canceller,
    stage: Mutex<Stage>,
}

enum Stage {
    /// Its results are not written.
    Begun(Work),
    Delivered(Record),
}

/// How a session ended.
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
    /// The session of a call that has just begun.
    pub(super) fn new(id: c_int, order: u64, origin: Origin, work: Work) -> Session {
        let canceller = work.canceller();
        Session { id, order, origin, canceller, stage: Mutex::new(Stage::Begun(work)) }
    }

    /// Has the grid tell of its end, at once if it has ended.
    pub(super) fn note_end(&self) {
        if let Stage::Begun(work) = &*self.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            work.note_end();
        }
    }

    /// Writes its results, if nobody has; it must have ended.
    pub(super) fn settle(&self, client: &Client) -> Record {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Delivered(record) = &*stage {
            return record.clone();
        }
        let record = self.record(&client.grid, &stage);
        let Stage::Begun(work) = std::mem::replace(&mut *stage, Stage::Delivered(record)) else {
            unreachable!("looked at above, under the lock");
        };
        // SAFETY: the pointers of the call are valid until its session is waited for, as the header asks.
        let written = unsafe { work.collect(client) };
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
    pub(super) fn expire(&self) {
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
