//! A call that was begun: under way, then ended, then with its results written.
//!
//! **Invariant:** one thread writes a session's results, the one that takes its [`Stage`] first. Others wait at its lock; a
//! thread that cancels does not need it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gridloom::data::Places;
use gridloom::{CallEnd, Error, Grid, Pending, Submitted, Value, Watch};
use gridloom_base::TaskId;

use super::arguments::Destination;
use super::code::{Failed, GRPC_NO_ERROR, GRPC_TIMEOUT_NP, Outcome};
use super::deliver::deliver;
use super::elsewhere::Staying;

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

/// Where a session was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The handle's address in the program, and its number.
    pub(super) handle: usize,
    pub(super) number: u64,
    /// By the grid's clock.
    pub(super) begun_s: f64,
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

    /// Writes its results, if no thread has; it must have ended.
    pub(super) fn settle(&self, places: &Places<'_>, staying: &Staying) -> Record {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Delivered(record) = &*stage {
            return record.clone();
        }
        let record = self.record(places.grid, &stage);
        let Stage::Begun(work) = std::mem::replace(&mut *stage, Stage::Delivered(record)) else {
            unreachable!("looked at above, under the lock");
        };
        // SAFETY: the pointers of the call are valid until its session is waited for, as the header asks.
        let written = unsafe { work.collect(places, staying) };
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

/// What a session is of.
pub(super) enum Work {
    /// A call by itself, and where its results go.
    Plain(Pending, Vec<Destination>),
    /// One that reads or makes remote data, and where its other results go; or one of a mapped block, which sees to all of them.
    Grouped(Arc<Limited>, Vec<Destination>),
}

/// A call of a group, and when it has to have ended.
pub(super) struct Limited {
    pub(super) call: Submitted,
    /// By the grid's clock; what the limit was, in seconds.
    limit: Option<(f64, f64)>,
    is_expired: AtomicBool,
}

impl Limited {
    /// A call that was just made.
    pub(super) fn new(grid: &Grid, call: Submitted, limit: Option<Duration>) -> Limited {
        let limit = limit.map(|limit| (grid.now() + limit.as_secs_f64(), limit.as_secs_f64()));
        Limited { call, limit, is_expired: AtomicBool::new(false) }
    }

    /// When it has to have ended, by the grid's clock.
    pub(super) fn deadline_s(&self) -> Option<f64> {
        self.limit.map(|(at, _)| at)
    }

    /// Waits for its end, no longer than its limit.
    pub(super) fn await_end(&self, grid: &Grid) -> Outcome<()> {
        let left = self.deadline_s().map(|at| Duration::from_secs_f64((at - grid.now()).max(0.0)));
        match self.call.wait_within(left) {
            Err(Error::TimedOut { .. }) => self.expire(),
            other => other?,
        }
        let ended = self.call.wait();
        self.expired().map_or(ended.map_err(Failed::from), Err)
    }

    /// Cancels it, since its time is over.
    pub(super) fn expire(&self) {
        if self.call.end().is_none() {
            self.is_expired.store(true, Ordering::Release);
            self.call.cancel();
        }
    }

    /// The error, if its time ran out before it ended.
    pub(super) fn expired(&self) -> Option<Failed> {
        let (at_s, seconds) = self.limit?;
        let is_late = || self.call.end().is_some_and(|end| end.ended_s > at_s && end.error.is_none());
        let is_expired = self.is_expired.load(Ordering::Acquire) || is_late();
        is_expired.then(|| Failed::new(GRPC_TIMEOUT_NP, format!("not done within {seconds} s")))
    }
}

/// Cancels a call without the lock that its delivery holds.
pub(super) enum Canceller {
    Plain(Watch),
    Grouped(Arc<Limited>),
}

impl Canceller {
    /// Unless it has ended.
    pub(super) fn cancel(&self) {
        match self {
            Canceller::Plain(watch) => watch.cancel(),
            Canceller::Grouped(limited) => limited.call.cancel(),
        }
    }
}

impl Work {
    pub(super) fn task(&self) -> TaskId {
        match self {
            Work::Plain(pending, _) => pending.task(),
            Work::Grouped(limited, _) => limited.call.task(),
        }
    }

    pub(super) fn note_end(&self) {
        match self {
            Work::Plain(pending, _) => pending.note_end(),
            Work::Grouped(limited, _) => limited.call.note_end(),
        }
    }

    pub(super) fn end(&self) -> Option<CallEnd> {
        match self {
            Work::Plain(pending, _) => pending.end(),
            Work::Grouped(limited, _) => limited.call.end(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self {
            Work::Plain(pending, _) => pending.is_done(),
            Work::Grouped(..) => self.end().is_some(),
        }
    }

    /// Cancels it, for threads that do not have it.
    pub(super) fn canceller(&self) -> Canceller {
        match self {
            Work::Plain(pending, _) => Canceller::Plain(pending.watch()),
            Work::Grouped(limited, _) => Canceller::Grouped(limited.clone()),
        }
    }

    /// When it has to have ended, if the session sees to that.
    pub(super) fn deadline_s(&self) -> Option<f64> {
        match self {
            Work::Plain(..) => None,
            Work::Grouped(limited, _) => limited.deadline_s(),
        }
    }

    /// Waits for its end and writes its results where they go.
    ///
    /// # Safety
    /// The pointers of the call still lead to what the signature says.
    pub(super) unsafe fn collect(self, places: &Places<'_>, staying: &Staying) -> Outcome<()> {
        // What stayed remote of memory that is written is there no more. (After a failed call it still is.)
        let deliver = |values: &[Value], destinations: &[Destination]| {
            // SAFETY: promised by the caller.
            unsafe { deliver(values, destinations) }?;
            let ranges = destinations.iter().filter_map(Destination::range);
            ranges.for_each(|(start, bytes)| staying.forget(start, bytes));
            Outcome::Ok(())
        };
        match self {
            Work::Plain(pending, destinations) => deliver(&pending.wait()?, &destinations),
            Work::Grouped(limited, destinations) => {
                limited.await_end(places.grid)?;
                let wanted = || limited.call.results().iter().zip(&destinations).filter(|(_, to)| to.is_wanted());
                let values = wanted().map(|(result, _)| result.get()).collect::<Result<Vec<_>, _>>();
                let coming: Vec<Destination> = wanted().map(|(_, to)| to.clone()).collect();
                deliver(&values.map_err(Failed::from)?, &coming)?;
                let mut remotes = destinations.iter().filter_map(Destination::remote);
                Ok(remotes.try_for_each(|remote| remote.write_outputs(places))?)
            }
        }
    }
}
