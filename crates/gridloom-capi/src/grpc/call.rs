//! A call: found its function, sent, under way, and collected.
//!
//! It goes by itself, or as a group of one if it reads or makes remote data, or as a call of a mapped block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridloom::data::{Datum, Ties};
use gridloom::{Arg, CallEnd, Error, Function, Grid, Pending, Submitted, Watch};
use gridloom_base::TaskId;

use super::arguments::{CallerArguments, Gathered, Item, Survey, gather, survey};
use super::client::Client;
use super::code::{Failed, GRPC_TIMEOUT_NP, Outcome};
use super::deliver::{Destination, deliver};
use super::handles::Bound;

/// A call with its function found.
pub(super) struct Call {
    client: Arc<Client>,
    bound: Arc<Bound>,
    /// The handle's address in the program, and its number.
    handle: usize,
    number: u64,
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

impl Call {
    /// Through the handle of that number, which is at that address; both are 0 without one.
    pub(super) fn new(client: Arc<Client>, bound: Arc<Bound>, handle: usize, number: u64) -> Call {
        Call { client, bound, handle, number }
    }

    /// How its arguments are read.
    pub(super) fn reads(&self) -> &[u8] {
        &self.bound.plan.reads
    }

    pub(super) fn function(&self) -> &Function {
        &self.bound.function
    }

    /// The time that it may take.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.bound.limit()
    }

    /// Name of the server that the program has chosen.
    pub(super) fn server(&self) -> Option<&str> {
        self.bound.server.as_deref()
    }

    /// A session through this handle that begins now.
    pub(super) fn origin(&self) -> Origin {
        Origin { handle: self.handle, number: self.number, begun_s: self.client.grid.now() }
    }

    /// What its arguments are. `is_here` says whether an address has the value that the program means there.
    ///
    /// # Safety
    /// What was passed is as the signature says (`memory`).
    pub(super) unsafe fn survey<'a>(
        &'a self,
        given: CallerArguments<'_>,
        is_here: impl Fn(usize) -> bool,
    ) -> Outcome<Survey<'a>> {
        let Bound { function, plan, .. } = &*self.bound;
        if given.len() != plan.reads.len() {
            let (name, needed) = (function.name(), plan.reads.len());
            return Err(Failed::other(format!("{name}: {} arguments given, expected {needed}", given.len())));
        }
        let is_here = |address| is_here(address) && !self.client.staying.is_there(address);
        // SAFETY: promised by the caller.
        unsafe { survey(&self.client.remotes, function.signature(), plan, given, is_here) }
    }

    /// Sends the call by itself. `known` gives what stands for memory that need not be read.
    ///
    /// # Safety
    /// What was passed is as the signature says (`memory`).
    pub(super) unsafe fn send(
        &self,
        survey: Survey<'_>,
        known: impl FnMut(&Item<'_>) -> Outcome<Option<Arg>>,
    ) -> Outcome<Work> {
        let function = &self.bound.function;
        // SAFETY: promised by the caller.
        let places = unsafe { self.client.places() };
        let ties = match survey.items.iter().any(|item| item.remote.is_some()) {
            true => Ties::new(&places, function, function.server(), survey.items.iter().filter_map(Item::as_use))?,
            false => Ties::default(),
        };
        let function = &ties.server().map_or_else(|| function.clone(), |server| function.clone().bound_to(server));
        // SAFETY: promised by the caller.
        let Gathered { args, named, destinations, is_remote } =
            unsafe { gather(&places, function.signature(), survey.items, known) }?;
        // Those run at most once, and are no tasks of a group.
        let is_plain = survey.callee.is_some() || function.is_method();
        if is_plain && destinations.iter().any(|destination| destination.remote().is_some()) {
            let what = if function.is_method() { "a method" } else { "a function with callbacks" };
            return Err(Failed::other(format!("{}: the results of {what} cannot stay remote", function.name())));
        }
        if is_remote && !is_plain {
            let call = function.submit_kept(None, &args, &named)?;
            ties.sent();
            for (result, destination) in call.results().iter().zip(&destinations) {
                if let Some((remote, meta)) = destination.remote_as() {
                    remote.set_result(result, meta, &call);
                }
                if destination.is_wanted() || destination.remote().is_some_and(Datum::is_put_here) {
                    result.prefetch()?;
                }
            }
            let limited = Limited::new(&self.client.grid, call, self.limit());
            return Ok(Work::Grouped(Arc::new(limited), destinations));
        }
        let pending = match survey.callee {
            Some(callee) => function.submit_calling(None, &args, &named, self.limit(), callee),
            None => function.submit(&args, &named, self.limit()),
        };
        let pending = pending?;
        ties.sent();
        Ok(Work::Plain(pending, destinations))
    }

    /// Sends a call that is of no mapped block.
    ///
    /// # Safety
    /// What was passed is as the signature says (`memory`).
    pub(super) unsafe fn send_plain(&self, survey: Survey<'_>) -> Outcome<Work> {
        for (start, bytes) in survey.items.iter().filter(|item| item.is_part()).map(Item::range) {
            // SAFETY: memory of the program, as the header asks.
            unsafe { self.client.staying.bring_there(start, bytes) }?;
        }
        // SAFETY: promised by the caller.
        unsafe { self.send(survey, |item| self.client.staying.known(item)) }
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

impl Client {
    /// Calls wrote these results to memory: what stayed remote of that memory is there no more. (After a failed call it
    /// still is.)
    fn forget_written(&self, destinations: &[Destination]) {
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
    pub(super) unsafe fn collect(self, client: &Client) -> Outcome<()> {
        match self {
            Work::Plain(pending, destinations) => {
                let values = pending.wait()?;
                // SAFETY: promised by the caller.
                unsafe { deliver(&values, &destinations) }?;
                client.forget_written(&destinations);
                Ok(())
            }
            Work::Grouped(limited, destinations) => {
                limited.await_end(&client.grid)?;
                let wanted = || limited.call.results().iter().zip(&destinations).filter(|(_, to)| to.is_wanted());
                let values = wanted().map(|(result, _)| result.get()).collect::<Result<Vec<_>, _>>();
                let coming: Vec<Destination> = wanted().map(|(_, to)| to.clone()).collect();
                // SAFETY: promised by the caller.
                unsafe { deliver(&values.map_err(Failed::from)?, &coming) }?;
                client.forget_written(&coming);
                // SAFETY: as above.
                let places = unsafe { client.places() };
                let mut remotes = destinations.iter().filter_map(Destination::remote);
                Ok(remotes.try_for_each(|remote| remote.write_outputs(&places))?)
            }
        }
    }
}
