//! A call that was begun: by itself, or as a call of a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridloom::{CallEnd, Error, Grid, Pending, Submitted, Watch};
use gridloom_core::base::TaskId;

use super::code::{Failed, GRPC_TIMEOUT_NP, Outcome};
use super::deliver::{Destination, deliver};
use super::library::Library;

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

    /// Its time is over: it is cancelled, and ends as such.
    pub(super) fn expire(&self) {
        if self.call.end().is_none() {
            self.is_expired.store(true, Ordering::Release);
            self.call.cancel();
        }
    }

    /// Why it was ended, if that was for its time, or ended only after that.
    pub(super) fn expired(&self) -> Option<Failed> {
        let (at_s, seconds) = self.limit?;
        let is_late = || self.call.end().is_some_and(|end| end.ended_s > at_s && end.error.is_none());
        let is_expired = self.is_expired.load(Ordering::Acquire) || is_late();
        is_expired.then(|| Failed::new(GRPC_TIMEOUT_NP, format!("not done within {seconds} s")))
    }
}

/// Asks for a call to be cancelled, without the lock that its delivery holds.
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

impl Library {
    /// What stayed remote of the memory that results are in now is no longer what is there. Of a call that failed it still is.
    fn is_written(&self, destinations: &[Destination]) {
        let ranges = destinations.iter().filter_map(Destination::range);
        ranges.for_each(|(start, bytes)| self.staying.forget(start, bytes));
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

    /// Cancels it, for who does not have it.
    pub(super) fn canceller(&self) -> Canceller {
        match self {
            Work::Plain(pending, _) => Canceller::Plain(pending.watch()),
            Work::Grouped(limited, _) => Canceller::Grouped(limited.clone()),
        }
    }

    /// When it has to have ended, if that is seen to here.
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
    pub(super) unsafe fn collect(self, library: &Library) -> Outcome<()> {
        match self {
            Work::Plain(pending, destinations) => {
                let values = pending.wait()?;
                // SAFETY: promised by the caller.
                unsafe { deliver(&values, &destinations) }?;
                library.is_written(&destinations);
                Ok(())
            }
            Work::Grouped(limited, destinations) => {
                limited.await_end(&library.grid)?;
                let wanted = || limited.call.results().iter().zip(&destinations).filter(|(_, to)| to.is_wanted());
                let values = wanted().map(|(result, _)| result.get()).collect::<Result<Vec<_>, _>>();
                let coming: Vec<Destination> = wanted().map(|(_, to)| to.clone()).collect();
                // SAFETY: promised by the caller.
                unsafe { deliver(&values.map_err(Failed::from)?, &coming) }?;
                library.is_written(&coming);
                let mut remotes = destinations.iter().filter_map(Destination::remote);
                // SAFETY: as above.
                remotes.try_for_each(|remote| unsafe { remote.put_elsewhere(library) })
            }
        }
    }
}
