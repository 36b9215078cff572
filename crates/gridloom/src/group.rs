//! Groups: calls that are recorded, then mapped and run together.

mod declared;
mod kept;
mod loops;

use std::sync::{Arc, MutexGuard};

use gridloom_base::limits::GROUP_TASKS_MAX;
use gridloom_base::{DatumId, GroupId, Meta, Priority};
use gridloom_core::graph::Source;
use gridloom_core::node::Command;

use crate::Error;
use crate::call::{Arg, Function, Handle, IntoArgs, Prepared, Results};
use crate::launch::{Made, Mapping, Recorder, Recording, ValueKey, launch, plan};
use crate::plan::PlanRecord;
use crate::report::{GroupProgress, Report};
use crate::session::Session;
use declared::Declared;
pub use declared::GraphOptions;
pub(crate) use declared::{declared, plan_of};
pub use loops::Loop;

/// Calls that are mapped together.
#[derive(Clone)]
pub struct Group {
    session: Session,
    recorder: Arc<Recorder>,
    /// Set if the calls were declared beforehand, and run as they are made.
    declared: Option<Arc<Declared>>,
    /// The priority of its calls; `None` for that of the session.
    priority: Option<Priority>,
}

impl Group {
    pub(crate) fn new(session: &Session, mapping: Mapping) -> Group {
        Group {
            session: session.clone(),
            recorder: Recorder::new(session, mapping, None),
            declared: None,
            priority: None,
        }
    }

    /// Returns the group with calls of that priority, except those of functions with a priority of their own: see
    /// [`Function::with_priority`].
    pub fn with_priority(self, priority: Priority) -> Group {
        Group { priority: Some(priority), ..self }
    }

    /// Records a call. Its results can be passed to further calls immediately.
    ///
    /// # Errors
    /// If the arguments do not fit; nothing is recorded then.
    pub fn call(&self, function: &Function, args: impl IntoArgs) -> Result<Results<Handle>, Error> {
        self.record(function, &args.into_args(), &[])
    }

    /// Records a call with arguments by name.
    ///
    /// # Errors
    /// If the arguments do not fit; nothing is recorded then.
    pub fn call_named(
        &self,
        function: &Function,
        args: impl IntoArgs,
        with_call_name: &[(String, Arg)],
    ) -> Result<Results<Handle>, Error> {
        self.record(function, &args.into_args(), with_call_name)
    }

    fn record(&self, function: &Function, args: &[Arg], named: &[(String, Arg)]) -> Result<Results<Handle>, Error> {
        args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of).try_for_each(Handle::check)?;
        let with_priority = self.priority.filter(|_| function.priority().is_none());
        let with_priority = with_priority.map(|priority| function.clone().with_priority(priority));
        let function = with_priority.as_ref().unwrap_or(function);
        if let Some(declared) = &self.declared {
            let call = self.call_declared(declared, function, args, named)?;
            return Ok(Results::new(function.shared_signature(), call.results().to_vec()));
        }
        if let Some(held) = &self.recorder.held {
            // Delayed bodies wait for nothing but each other, so no two loops or groups wait for each other.
            let read = args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of);
            read.filter(|handle| !held.may_read(handle.made(), &self.recorder)).try_for_each(Handle::launch)?;
        }
        let mut known: Vec<(ValueKey, DatumId)> = Vec::new();
        let prepared = function.prepare(args, named, |value| {
            let Some((address, size)) = value.identity() else { return (self.session.new_datum(), value.clone()) };
            let key = (address, size, value.meta.to_string());
            if let Some(held) = &self.recorder.held {
                return (held.name(key, value), value.clone());
            }
            let recorded = self.recording().values.get(&key).map(|(datum, _)| *datum);
            let fresh = known.iter().find(|(other, _)| *other == key).map(|(_, datum)| *datum);
            let datum = recorded.or(fresh).unwrap_or_else(|| self.session.new_datum());
            known.push((key, datum));
            (datum, value.clone())
        })?;
        let Prepared { task, values, outputs } = prepared;
        let mut recording = self.recording();
        if recording.tasks.len() >= GROUP_TASKS_MAX {
            let why = format!("a group holds at most {GROUP_TASKS_MAX} calls; launch it and open another");
            return Err(Error::Usage(why));
        }
        for (datum, value) in values {
            if recording.sources.contains_key(&datum) {
                continue;
            }
            recording.sources.insert(datum, Source { meta: value.meta.clone(), at: vec![self.session.client()] });
            if self.recorder.held.is_some() && value.identity().is_some() {
                // The loop has put it into the store.
                recording.kept.insert(datum);
                continue;
            }
            self.session.put(datum, &value);
            if let Some((address, size)) = value.identity() {
                recording.values.insert((address, size, value.meta.to_string()), (datum, value));
            }
        }
        for handle in args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of) {
            let datum = handle.datum();
            recording.handles.push(handle.made().clone());
            if !recording.made.contains_key(&datum) {
                // The client's machine knows where it is.
                recording
                    .sources
                    .entry(datum)
                    .or_insert_with(|| Source { meta: handle.made().meta.clone(), at: Vec::new() });
            }
        }
        if self.recorder.held.is_some() {
            self.recorder.parts.tasks().push(task.id);
        }
        recording.read.extend(task.inputs());
        recording.tasks.push(task);
        let handles = self.handles(function, outputs);
        for handle in &handles {
            recording.made.insert(handle.datum(), Arc::downgrade(handle.made()));
        }
        Ok(Results::new(function.shared_signature(), handles))
    }

    fn handles(&self, function: &Function, outputs: Vec<(DatumId, Meta)>) -> Vec<Handle> {
        let signature = function.shared_signature();
        let made = |output| Made::by_call(&self.session, &self.recorder, signature, output);
        outputs.into_iter().map(|output| Handle::new(made(output))).collect()
    }

    /// Number of calls recorded and not yet launched.
    pub fn recorded(&self) -> usize {
        self.recording().tasks.len()
    }

    /// Maps and runs the recorded calls. Does not wait for their end.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn launch(&self) -> Result<(), Error> {
        launch(&self.session, Some(&self.recorder.parts), |batch| batch.group(&self.recorder)).map(drop)
    }

    /// Discards recorded calls that are not launched. Their handles then return [`Error::Discarded`].
    pub fn discard(&self) {
        self.discard_because("its group was discarded before it was launched");
    }

    /// Like [`Group::discard`], with a reason that completes "the call never ran: ".
    pub fn discard_because(&self, why: &str) {
        self.end_plan();
        self.recorder.discard(why);
    }

    /// Returns the agent's plan for the calls recorded so far, mapped with `mapping` as for [`Grid::group`](crate::Grid::group); nothing is run.
    ///
    /// # Errors
    /// If they cannot be mapped, or all recorded calls were launched.
    pub fn plan(&self, mapping: impl Into<Mapping>) -> Result<PlanRecord, Error> {
        // The body of a loop has its own list of tasks; they are taken together at its end.
        let has_more = !self.recorder.parts.all().is_empty() || !self.recorder.parts.tasks().is_empty();
        if self.recorded() == 0 && has_more {
            return Err(Error::Usage(NO_CALLS_LEFT.into()));
        }
        let group = self.recording().group(self.session.new_group());
        let by = mapping.into().to_send(&self.session, &group)?;
        plan(&self.session, group, by)
    }

    /// Waits until all launched calls have ended.
    ///
    /// # Errors
    /// The error of the first call that failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.launch()?;
        let parts = self.recorder.parts.ids();
        let wait = |part: &GroupId| {
            self.await_part(*part)?;
            self.session.state().groups.first_error(*part).map_or(Ok(()), |error| Err(error.into()))
        };
        let waited = parts.iter().try_for_each(wait);
        if waited.is_err() {
            self.session.state().groups.note_failures_read(&parts);
        }
        waited
    }

    /// Cancels all calls that have not ended.
    pub fn cancel(&self) {
        match &self.recorder.held {
            // Its parts contain tasks of other bodies.
            Some(_) => {
                let tasks = self.recorder.parts.tasks().clone();
                self.session.command(Command::Cancel { tasks });
            }
            None => {
                for part in self.recorder.parts.ids() {
                    let tasks = self.session.state().groups.unfinished(part);
                    self.session.command(Command::Cancel { tasks });
                }
            }
        }
    }

    /// Returns predicted and measured times. Waits for the end of the launched calls.
    ///
    /// # Errors
    /// If the session is closed. Failed calls are in the report.
    pub fn report(&self) -> Result<Report, Error> {
        self.launch()?;
        let parts = self.recorder.parts.ids();
        for part in &parts {
            self.await_part(*part)?;
        }
        self.session.state().groups.note_failures_read(&parts);
        let (session, heuristic) = (&self.session, self.recorder.mapping.to_string());
        let report = session.state_now().report(&heuristic, &parts, session.client(), session.is_simulated());
        let together = self.recorder.parts.all().iter().map(|part| part.together).max().unwrap_or(1);
        Ok(Report { differences: self.differences(), together, ..report })
    }

    /// Returns the progress of the launched calls, without waiting for anything.
    pub fn progress(&self) -> GroupProgress {
        let parts = self.recorder.parts.ids();
        // Other bodies may have been launched with them.
        let own = self.recorder.held.as_ref().map(|_| self.recorder.parts.tasks().clone());
        self.session.state_now().groups.progress(&parts, own.as_deref())
    }

    /// Waits until the tasks of a part have completed or failed.
    fn await_part(&self, part: GroupId) -> Result<(), Error> {
        self.session.wait_unless_interrupted(None, |state| state.groups.has_ended(part).then_some(()))
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recorder.recording()
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group(by {}, {} calls recorded)", self.recorder.mapping, self.recorded())
    }
}

/// The error if a plan is requested too late.
const NO_CALLS_LEFT: &str = "the group has no calls left to plan: they were launched at the end of its block, by \
     launch(), or because a result was requested; request the plan before that, or see the executed plans in \
     the group's report";

fn handle_of(arg: &Arg) -> Option<&Handle> {
    match arg {
        Arg::Handle(handle) => Some(handle),
        Arg::Value(_) => None,
    }
}
