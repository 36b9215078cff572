//! A call that was started: outstanding, then ended, then with its results written.
//!
//! **Invariant:** one thread writes a session's results, the first one that takes its [`Stage`]. Others wait for its
//! lock; a thread that cancels does not need it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gridloom::data::DataPlaces;
use gridloom::{CallEnd, Error, Grid, PendingCall, Submitted, Value, Watch};
use gridloom_base::{TaskError, TaskId};

use super::arguments::Destination;
use super::code::{Failed, GRPC_NO_ERROR, GRPC_TIMEOUT_NP, Outcome};
use super::deliver::deliver;
use super::remote_results::RemainingResults;

/// A session that is outstanding.
pub(crate) struct Session {
    pub(crate) id: c_int,
    /// Its position among all sessions that were started.
    pub(crate) order: u64,
    origin: Origin,
    canceller: Canceller,
    stage: Mutex<Stage>,
}

enum Stage {
    /// Its results are not written yet.
    Begun(Work),
    Delivered(Record),
}

/// The origin of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The handle's address in the program, and its number.
    pub(crate) handle: usize,
    pub(crate) number: u64,
    /// Start time by the grid's clock.
    pub(crate) begun_s: f64,
}

/// How a session ended.
#[derive(Clone, Debug)]
pub struct Record {
    /// `GRPC_NO_ERROR` if it ended well.
    pub code: c_int,
    /// Empty if it ended well.
    pub text: String,
    pub server: String,
    pub run_s: f64,
    pub total_s: f64,
    pub(crate) origin: Origin,
}

impl Session {
    /// Returns the session of a call that has just started.
    pub(crate) fn new(id: c_int, order: u64, origin: Origin, work: Work) -> Session {
        let canceller = work.canceller();
        Session { id, order, origin, canceller, stage: Mutex::new(Stage::Begun(work)) }
    }

    /// Requests a notification of its end from the grid, at once if it has ended.
    pub(crate) fn request_end(&self) {
        if let Stage::Begun(work) = &*self.stage.lock().unwrap_or_else(PoisonError::into_inner) {
            work.note_end();
        }
    }

    /// Writes its results, if no thread has; it must have ended.
    pub(crate) fn write_results(&self, places: &DataPlaces<'_>, staying: &RemainingResults) -> Record {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Delivered(record) = &*stage {
            return record.clone();
        }
        let record = self.record(places.grid, &stage);
        let Stage::Begun(work) = std::mem::replace(&mut *stage, Stage::Delivered(record)) else {
            unreachable!("looked at above, under the lock");
        };
        // SAFETY: the pointers of the call are valid until its session is waited for, as the header requires.
        let written = unsafe { work.collect(places, staying) };
        let Stage::Delivered(record) = &mut *stage else { unreachable!("put there above, under the lock") };
        if let Err(failed) = self.expired().map_or(written, Err) {
            (record.code, record.text) = (failed.code, failed.text);
        }
        record.clone()
    }

    /// Returns its record at this time, without writing its results.
    pub(crate) fn current_record(&self, grid: &Grid) -> Option<Record> {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::Delivered(record) => Some(record.clone()),
            Stage::Begun(work) => work.is_done().then(|| self.record(grid, &stage)),
        }
    }

    fn record(&self, grid: &Grid, stage: &Stage) -> Record {
        let failed = |error: TaskError| match stage {
            Stage::Begun(work) => work.failed(error.into()),
            Stage::Delivered(_) => error.into(),
        };
        let end = match stage {
            Stage::Begun(work) => work.end(),
            Stage::Delivered(_) => None,
        };
        let failed = self.expired().or_else(|| end.as_ref().and_then(|end| end.error.clone()).map(failed));
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

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) fn cancel(&self) {
        self.canceller.cancel();
    }

    /// Returns the call of a group that it stands for.
    pub(crate) fn group_call(&self) -> Option<&Arc<GroupCall>> {
        match &self.canceller {
            Canceller::Grouped(limited) => Some(limited),
            Canceller::Plain(_) => None,
        }
    }

    /// Cancels it because its time limit is exceeded, and ends it with that error.
    pub(crate) fn expire(&self) {
        if let Canceller::Grouped(limited) = &self.canceller {
            limited.expire();
        }
    }

    /// Returns the error, if it was ended for its time limit.
    fn expired(&self) -> Option<Failed> {
        match &self.canceller {
            Canceller::Grouped(limited) => limited.expired(),
            Canceller::Plain(_) => None,
        }
    }
}

/// The work of a session.
pub(crate) enum Work {
    /// A call by itself, and the destinations of its results.
    Plain(PendingCall, Vec<Destination>),
    /// A call that reads or makes remote data, and the destinations of its other results; or a call of a mapped block,
    /// which handles all its results.
    Grouped(Arc<GroupCall>, Vec<Destination>),
}

/// A call of a group, and its deadline.
pub(crate) struct GroupCall {
    pub(crate) call: Submitted,
    /// Deadline by the grid's clock, and the limit in seconds.
    limit: Option<(f64, f64)>,
    is_expired: AtomicBool,
}

impl GroupCall {
    /// Returns a call that was just made.
    pub(crate) fn new(grid: &Grid, call: Submitted, limit: Option<Duration>) -> GroupCall {
        let limit = limit.map(|limit| (grid.now() + limit.as_secs_f64(), limit.as_secs_f64()));
        GroupCall { call, limit, is_expired: AtomicBool::new(false) }
    }

    /// Returns its deadline by the grid's clock.
    pub(crate) fn deadline_s(&self) -> Option<f64> {
        self.limit.map(|(at, _)| at)
    }

    /// Waits for its end, at most until its deadline.
    pub(crate) fn await_end(&self, grid: &Grid) -> Outcome<()> {
        let left = self.deadline_s().map(|at| Duration::from_secs_f64((at - grid.now()).max(0.0)));
        match self.call.wait_within(left) {
            Err(Error::TimedOut { .. }) => self.expire(),
            other => other?,
        }
        let ended = self.call.wait();
        self.expired().map_or(ended.map_err(Failed::from), Err)
    }

    /// Cancels it because its time limit is exceeded.
    pub(crate) fn expire(&self) {
        if self.call.end().is_none() {
            self.is_expired.store(true, Ordering::Release);
            self.call.cancel();
        }
    }

    /// Returns the error, if its time ran out before it ended.
    pub(crate) fn expired(&self) -> Option<Failed> {
        let (at_s, seconds) = self.limit?;
        let is_late = || self.call.end().is_some_and(|end| end.ended_s > at_s && end.error.is_none());
        let is_expired = self.is_expired.load(Ordering::Acquire) || is_late();
        is_expired.then(|| Failed::new(GRPC_TIMEOUT_NP, format!("not done within {seconds} s")))
    }
}

/// Cancels a call without the lock that its delivery holds.
pub(crate) enum Canceller {
    Plain(Watch),
    Grouped(Arc<GroupCall>),
}

impl Canceller {
    /// Cancels it, unless it has ended.
    pub(crate) fn cancel(&self) {
        match self {
            Canceller::Plain(watch) => watch.cancel(),
            Canceller::Grouped(limited) => limited.call.cancel(),
        }
    }
}

impl Work {
    pub(crate) fn task(&self) -> TaskId {
        match self {
            Work::Plain(pending, _) => pending.task(),
            Work::Grouped(limited, _) => limited.call.task(),
        }
    }

    pub(crate) fn note_end(&self) {
        match self {
            Work::Plain(pending, _) => pending.note_end(),
            Work::Grouped(limited, _) => limited.call.note_end(),
        }
    }

    pub(crate) fn end(&self) -> Option<CallEnd> {
        match self {
            Work::Plain(pending, _) => pending.end(),
            Work::Grouped(limited, _) => limited.call.end(),
        }
    }

    /// Returns the error to report if it failed.
    fn failed(&self, error: Error) -> Failed {
        match self {
            Work::Plain(pending, _) if pending.is_method() => Failed::of_method(error),
            Work::Plain(..) | Work::Grouped(..) => error.into(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        match self {
            Work::Plain(pending, _) => pending.is_done(),
            Work::Grouped(..) => self.end().is_some(),
        }
    }

    /// Returns an object by which threads that do not own it can cancel it.
    pub(crate) fn canceller(&self) -> Canceller {
        match self {
            Work::Plain(pending, _) => Canceller::Plain(pending.watch()),
            Work::Grouped(limited, _) => Canceller::Grouped(limited.clone()),
        }
    }

    /// Returns its deadline, if the session enforces it.
    pub(crate) fn deadline_s(&self) -> Option<f64> {
        match self {
            Work::Plain(..) => None,
            Work::Grouped(limited, _) => limited.deadline_s(),
        }
    }

    /// Waits for its end and writes its results to their destinations.
    ///
    /// # Safety
    /// The pointers of the call still match the signature.
    pub(crate) unsafe fn collect(self, places: &DataPlaces<'_>, staying: &RemainingResults) -> Outcome<()> {
        // Results that stayed remote for memory that is written are dropped. (After a failed call they are kept.)
        let deliver = |values: &[Value], destinations: &[Destination]| {
            // SAFETY: promised by the caller.
            unsafe { deliver(values, destinations) }?;
            let ranges = destinations.iter().filter_map(Destination::range);
            ranges.for_each(|(start, bytes)| staying.forget(start, bytes));
            Outcome::Ok(())
        };
        match self {
            Work::Plain(pending, destinations) => {
                let is_method = pending.is_method();
                let failed = |error| if is_method { Failed::of_method(error) } else { error.into() };
                deliver(&pending.wait().map_err(failed)?, &destinations)
            }
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
