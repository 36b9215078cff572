//! A call of the program until it is sent: by itself, or as a group of one if it reads or makes remote data. Mapped
//! blocks send their calls themselves.

use std::sync::Arc;
use std::time::Duration;

use gridloom::data::{Datum, SingleCopyData};
use gridloom::{Arg, Function};

use super::arguments::{CallInputs, CallSurvey, Item, gather, survey};
use super::code::{Failed, Outcome};
use super::handles::{BoundFunction, CallerArguments};
use super::library::Library;
use super::limits::Limits;
use super::session::{GroupCall, Origin, Work};

/// A call whose function has been found.
pub struct Call {
    pub(crate) library: Arc<Library>,
    pub(crate) bound: Arc<BoundFunction>,
    /// The handle's address in the program, and its number; both are 0 without a handle.
    pub(crate) handle: usize,
    pub(crate) number: u64,
    /// Its time limits, if they differ from those of the handle.
    pub(crate) own_limits: Option<Limits>,
}

impl Call {
    pub fn function(&self) -> &Function {
        &self.bound.function
    }

    /// Returns the server to which its handle is bound.
    pub fn server(&self) -> Option<&str> {
        self.bound.server.as_deref()
    }

    /// Checks that its server exists; without a server, that any exists.
    ///
    /// # Errors
    /// If the server has left.
    pub fn check_server(&self) -> Outcome<()> {
        self.library.check_server(self.function().server())
    }

    /// Returns the same call with time limits of its own.
    pub fn within(self, limits: Limits) -> Call {
        Call { own_limits: Some(limits), ..self }
    }

    /// Returns its time limits.
    pub fn limits(&self) -> Limits {
        self.own_limits.unwrap_or_else(|| self.bound.limits())
    }

    /// Returns the limit of its total time.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limits().whole
    }

    /// Returns the origin of a session that starts through this handle now.
    pub(crate) fn origin(&self) -> Origin {
        Origin { handle: self.handle, number: self.number, begun_s: self.library.grid.now() }
    }

    /// Reads the arguments, except arrays. `is_here` returns whether the memory at an address has the value that the
    /// program expects there.
    ///
    /// # Safety
    /// The arguments match the signature (`memory`).
    pub(crate) unsafe fn survey<'a>(
        &'a self,
        given: CallerArguments<'_>,
        is_here: impl Fn(usize) -> bool,
    ) -> Outcome<CallSurvey<'a>> {
        let BoundFunction { function, plan, .. } = &*self.bound;
        if given.len() != plan.reads.len() {
            let (name, needed) = (function.name(), plan.reads.len());
            return Err(Failed::other(format!("{name}: {} arguments given, expected {needed}", given.len())));
        }
        let is_here = |address| is_here(address) && !self.library.staying.is_there(address);
        // SAFETY: promised by the caller.
        unsafe { survey(&self.library.remotes, function.signature(), plan, given, is_here) }
    }

    /// Sends the call by itself. `known` returns the replacement for memory that need not be read.
    ///
    /// # Safety
    /// The arguments match the signature (`memory`).
    pub(crate) unsafe fn send(
        &self,
        survey: CallSurvey<'_>,
        known: impl FnMut(&Item<'_>) -> Outcome<Option<Arg>>,
    ) -> Outcome<Work> {
        let function = &self.bound.function;
        // SAFETY: promised by the caller.
        let places = unsafe { self.library.places() };
        let ties = match survey.items.iter().any(|item| item.remote.is_some()) {
            true => {
                SingleCopyData::new(&places, function, function.server(), survey.items.iter().filter_map(Item::as_use))?
            }
            false => SingleCopyData::default(),
        };
        let function = &ties.server().map_or_else(|| function.clone(), |server| function.clone().bound_to(server));
        // SAFETY: promised by the caller.
        let CallInputs { args, named, destinations, is_remote, unwanted_files } =
            unsafe { gather(&places, function.signature(), survey.items, known) }?;
        let transfers = self.limits().transfers;
        let function = function.clone().without_files(unwanted_files).with_transfer_limits(transfers);
        let function = &match self.bound.priority() {
            Some(priority) => function.with_priority(priority),
            None => function,
        };
        // Such calls run at most once, and are not tasks of a group.
        let is_plain = survey.callee.is_some() || function.is_method();
        if is_plain && destinations.iter().any(|destination| destination.remote().is_some()) {
            let what = if function.is_method() { "a method" } else { "a function with callbacks" };
            return Err(Failed::other(format!("{}: the results of {what} cannot stay remote", function.name())));
        }
        if is_remote && !is_plain {
            let call = function.submit_remote(None, args, &named)?;
            ties.sent();
            for (result, destination) in call.results().iter().zip(&destinations) {
                if let Some((remote, meta)) = destination.remote_as() {
                    remote.set_result(result, meta, &call);
                }
                if destination.is_wanted() || destination.remote().is_some_and(Datum::is_put_here) {
                    result.prefetch()?;
                }
            }
            let limited = GroupCall::new(&self.library.grid, call, self.limit());
            return Ok(Work::Grouped(Arc::new(limited), destinations));
        }
        let pending = match survey.callee {
            Some(callee) => function.submit_calling(None, args, &named, self.limit(), callee),
            None => function.submit(args, &named, self.limit()),
        };
        let pending = pending?;
        ties.sent();
        Ok(Work::Plain(pending, destinations))
    }

    /// Registers this call of a module's `Initialize`, which each worker runs before other calls of the module.
    ///
    /// # Safety
    /// The arguments match the signature (`memory`).
    pub(crate) unsafe fn initialize_module(&self, survey: CallSurvey<'_>) -> Outcome<()> {
        let function = &self.bound.function;
        // SAFETY: promised by the caller.
        let CallInputs { args, .. } =
            unsafe { gather(&self.library.places(), function.signature(), survey.items, |_| Ok(None)) }?;
        let (module, _) = function.name().rsplit_once('/').unwrap_or_default();
        Ok(self.library.grid.initialize_module(module, &args, &[])?)
    }

    /// Sends a call that does not belong to a mapped block.
    ///
    /// # Safety
    /// The arguments match the signature (`memory`).
    pub(crate) unsafe fn send_plain(&self, survey: CallSurvey<'_>) -> Outcome<Work> {
        for (start, bytes) in survey.items.iter().filter(|item| item.is_part()).map(Item::range) {
            // SAFETY: memory of the program, as the header requires.
            unsafe { self.library.staying.fetch_range(start, bytes) }?;
        }
        // SAFETY: promised by the caller.
        unsafe { self.send(survey, |item| self.library.staying.known(item)) }
    }
}
