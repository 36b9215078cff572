//! Groups: calls that are recorded, then mapped and run together.

mod declared;
mod launch;
mod placed;
mod regroup;
mod submitted;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use gridloom_base::limits::GROUP_TASKS_MAX;
use gridloom_base::{DatumId, GroupId, Meta, TaskError, TaskId};
use gridloom_core::graph::{self, Source, Task};
use gridloom_idl::Signature;
use gridloom_net::moving::OnTheWay;

use crate::call::{Prepared, gives_as};
use crate::declared::Matching;
use crate::{Arg, Error, Function, Grid, GroupProgress, Mapping, PlanRecord, Report, Value};
pub use declared::GraphOptions;
pub(crate) use launch::Launches;
use launch::drop_recording;
use regroup::Held;
pub use regroup::{Loop, Regroup};
pub use submitted::Submitted;

/// A result that is, or will be, on some server. Dropping the last clone releases it there.
#[derive(Clone)]
pub struct Handle(Arc<HandleInner>, Option<Arc<Meta>>);

struct HandleInner {
    grid: Grid,
    datum: DatumId,
    meta: Meta,
    signature: Arc<Signature>,
    group: Weak<Recorder>,
    /// The delayed bodies of the loop to which its group belongs.
    held: Weak<Held>,
    /// Why its call will never run, if it was discarded before launch.
    discarded: OnceLock<String>,
    /// Keeps the session's records of its group alive.
    parts: Arc<Parts>,
}

impl Handle {
    /// Returns the progress of its transfer to the client, if it is large and being transferred.
    pub fn moving(&self) -> Option<OnTheWay> {
        self.0.grid.moving().into_iter().find(|one| one.datum == self.0.datum && !one.is_sent)
    }

    /// The id of its datum.
    pub fn datum(&self) -> DatumId {
        self.0.datum
    }

    /// Its description, known before it is made (except for the length of a text).
    pub fn meta(&self) -> &Meta {
        self.1.as_deref().unwrap_or(&self.0.meta)
    }

    /// Returns the same array for calls that read it with another description: as many elements of the same type, in
    /// their order in memory. `None` if `meta` is not such an array, or if the memory order of this one is not known.
    pub fn read_as(&self, meta: &Meta) -> Option<Handle> {
        match &self.0.meta == meta {
            true => Some(self.clone()),
            false => gives_as(&self.0.signature, &self.0.meta, meta)
                .then(|| Handle(self.0.clone(), Some(Arc::new(meta.clone())))),
        }
    }

    /// Waits for the result and fetches it. If its group is still being recorded, the part recorded so far is mapped and
    /// run; recording continues with the next call.
    ///
    /// # Errors
    /// If its task, or one that it depends on, failed.
    pub fn get(&self) -> Result<Value, Error> {
        self.fetch(None)
    }

    /// Like [`Handle::get`], but waits no longer than `limit`. A timeout cancels nothing: a later `get` works.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it has not arrived by then; also as for [`Handle::get`].
    pub fn get_within(&self, limit: Duration) -> Result<Value, Error> {
        self.fetch(Some(limit))
    }

    /// Requests the value for the client as soon as it is made, and returns at once. If several results are wanted, each
    /// is transferred while others are still being made.
    ///
    /// # Errors
    /// If the recorded calls cannot be launched. [`Handle::get`] reports a failure of the call.
    pub fn prefetch(&self) -> Result<(), Error> {
        self.launch()?;
        self.0.grid.prefetch(self.0.datum);
        Ok(())
    }

    fn fetch(&self, limit: Option<Duration>) -> Result<Value, Error> {
        self.launch()?;
        self.0.grid.get(self.0.datum, limit).map_err(|error| self.named(error))
    }

    /// Makes sure that its call is launched.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        self.check()?;
        self.0.grid.launch(Some(&self.0.parts), |batch| batch.maker(self))?;
        self.check()
    }

    /// Checks that its call was not discarded.
    fn check(&self) -> Result<(), Error> {
        let Some(why) = self.0.discarded.get() else { return Ok(()) };
        Err(Error::Discarded { function: self.0.signature.name.clone(), why: why.clone() })
    }

    /// Rewrites an error to name the result's call instead of the datum's number.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Task(TaskError::DatumLost { datum, why }) if datum == self.0.datum => {
                let why = format!("the result of '{}': {why}", self.0.signature.name);
                TaskError::DatumLost { datum, why }.into()
            }
            other => other,
        }
    }
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        self.grid.release_later(self.datum);
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({}, {})", self.0.datum, self.meta())
    }
}

#[derive(Default)]
struct Recording {
    tasks: Vec<Task>,
    sources: BTreeMap<DatumId, Source>,
    made: BTreeMap<DatumId, Weak<HandleInner>>,
    read: BTreeSet<DatumId>,
    /// Values put into the store for this part, by identity of their bytes. They are kept alive so that the identity stays unique.
    values: BTreeMap<(usize, u64, String), (DatumId, Value)>,
    /// Values among the sources that stay in the store beyond this part.
    kept: BTreeSet<DatumId>,
    /// Handles read by this part: not released before it is launched.
    handles: Vec<Handle>,
}

struct Recorder {
    mapping: Mapping,
    recording: Mutex<Recording>,
    parts: Arc<Parts>,
    /// Set if the calls were declared beforehand, and run as they are made.
    matching: Option<Mutex<Matching>>,
    /// Set for a body of a loop, which is delayed at its end.
    held: Option<Arc<Held>>,
}

/// The launched parts of a group. They are forgotten with the last object that could query them: the group itself, its
/// handles, or other groups that were launched with them.
struct Parts {
    grid: Grid,
    all: Mutex<Vec<Arc<Part>>>,
    /// Its own tasks, if others may be launched with them.
    tasks: Mutex<Vec<TaskId>>,
}

/// Calls that were mapped together.
struct Part {
    grid: Grid,
    id: GroupId,
    /// Number of groups to which it belongs.
    together: usize,
}

impl Parts {
    fn new(grid: &Grid) -> Arc<Parts> {
        Arc::new(Parts { grid: grid.clone(), all: Mutex::default(), tasks: Mutex::default() })
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Part>>> {
        self.all.lock().expect("no panic while held")
    }

    fn add(&self, id: GroupId) {
        self.all().push(Arc::new(Part { grid: self.grid.clone(), id, together: 1 }));
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.tasks.lock().expect("no panic while held")
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parts({})", self.all().len())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.grid.forget_group_later(self.id);
    }
}

/// Calls that are mapped together.
#[derive(Clone)]
pub struct Group {
    grid: Grid,
    recorder: Arc<Recorder>,
}

impl Group {
    pub(crate) fn new(grid: Grid, mapping: Mapping) -> Group {
        let (parts, recording) = (Parts::new(&grid), Mutex::default());
        let recorder = Recorder { mapping, recording, parts, matching: None, held: None };
        Group { grid, recorder: Arc::new(recorder) }
    }

    /// Records a call. Its results can be passed to further calls immediately.
    ///
    /// # Errors
    /// If the arguments do not fit; nothing is recorded then.
    pub fn call(&self, function: &Function, args: &[Arg]) -> Result<Vec<Handle>, Error> {
        self.call_named(function, args, &[])
    }

    /// Records a call with arguments by name.
    ///
    /// # Errors
    /// If the arguments do not fit; nothing is recorded then.
    pub fn call_named(&self, function: &Function, args: &[Arg], named: &[(String, Arg)]) -> Result<Vec<Handle>, Error> {
        args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of).try_for_each(Handle::check)?;
        if let Some(matching) = &self.recorder.matching {
            return Ok(self.call_described(matching, function, args, named)?.results().to_vec());
        }
        if let Some(held) = &self.recorder.held {
            // Delayed bodies wait for nothing but each other, so no two loops or groups wait for each other.
            let read = args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of);
            read.filter(|handle| !held.may_read(handle, &self.recorder)).try_for_each(Handle::launch)?;
        }
        let mut known: Vec<((usize, u64, String), DatumId)> = Vec::new();
        let prepared = function.prepare(args, named, |value| {
            let Some((address, size)) = value.identity() else { return (self.grid.new_datum(), value.clone()) };
            let key = (address, size, value.meta.to_string());
            if let Some(held) = &self.recorder.held {
                return (held.name(key, value), value.clone());
            }
            let recorded = self.recording().values.get(&key).map(|(datum, _)| *datum);
            let fresh = known.iter().find(|(other, _)| *other == key).map(|(_, datum)| *datum);
            let datum = recorded.or(fresh).unwrap_or_else(|| self.grid.new_datum());
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
            recording.sources.insert(datum, Source { meta: value.meta.clone(), at: vec![self.grid.client()] });
            if self.recorder.held.is_some() && value.identity().is_some() {
                // The loop has put it into the store.
                recording.kept.insert(datum);
                continue;
            }
            self.grid.put(datum, &value);
            if let Some((address, size)) = value.identity() {
                recording.values.insert((address, size, value.meta.to_string()), (datum, value));
            }
        }
        for handle in args.iter().chain(named.iter().map(|(_, arg)| arg)).filter_map(handle_of) {
            let datum = handle.datum();
            recording.handles.push(handle.clone());
            if !recording.made.contains_key(&datum) {
                // The client's machine knows where it is.
                recording
                    .sources
                    .entry(datum)
                    .or_insert_with(|| Source { meta: handle.0.meta.clone(), at: Vec::new() });
            }
        }
        if self.recorder.held.is_some() {
            self.recorder.parts.tasks().push(task.id);
        }
        recording.read.extend(task.inputs());
        recording.tasks.push(task);
        let handles = self.handles(function, outputs);
        for handle in &handles {
            recording.made.insert(handle.datum(), Arc::downgrade(&handle.0));
        }
        Ok(handles)
    }

    fn handles(&self, function: &Function, outputs: Vec<(DatumId, Meta)>) -> Vec<Handle> {
        let handle = |(datum, meta)| {
            let (group, parts) = (Arc::downgrade(&self.recorder), self.recorder.parts.clone());
            let (grid, signature) = (self.grid.clone(), function.signature.clone());
            let (held, discarded) =
                (self.recorder.held.as_ref().map_or_else(Weak::new, Arc::downgrade), OnceLock::new());
            let inner = HandleInner { grid, datum, meta, signature, group, held, discarded, parts };
            Handle(Arc::new(inner), None)
        };
        outputs.into_iter().map(handle).collect()
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
        self.recorder.launch(&self.grid)
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

    /// Returns the agent's plan for the calls recorded so far, mapped with `mapping` as for [`Grid::group`]; nothing is run.
    ///
    /// # Errors
    /// If they cannot be mapped, or all recorded calls were launched.
    pub fn plan(&self, mapping: impl Into<Mapping>) -> Result<PlanRecord, Error> {
        // The body of a loop has its own list of tasks; they are taken together at its end.
        let has_more = !self.recorder.parts.all().is_empty() || !self.recorder.parts.tasks().is_empty();
        if self.recorded() == 0 && has_more {
            return Err(Error::Usage(NOTHING_LEFT.into()));
        }
        let group = self.recording().group(GroupId { client: self.grid.client(), serial: self.grid.next_serial() });
        let by = mapping.into().by(&self.grid, &group)?;
        self.grid.plan(group, by)
    }

    /// Waits until all launched calls have ended.
    ///
    /// # Errors
    /// The error of the first call that failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.launch()?;
        let parts = self.parts();
        let failed = parts.iter().find_map(|part| self.grid.wait_group(*part).err());
        match failed {
            None => Ok(()),
            Some(error) => {
                self.grid.told(&parts);
                Err(error)
            }
        }
    }

    /// Cancels all calls that have not ended.
    pub fn cancel(&self) {
        match &self.recorder.held {
            // Its parts contain tasks of other bodies.
            Some(_) => self.grid.cancel(self.recorder.parts.tasks().clone()),
            None => self.parts().into_iter().for_each(|part| self.grid.cancel_group(part)),
        }
    }

    /// Returns predicted and measured times. Waits for the end of the launched calls.
    ///
    /// # Errors
    /// If the session is closed. Failed calls are in the report.
    pub fn report(&self) -> Result<Report, Error> {
        self.launch()?;
        let parts = self.parts();
        for part in &parts {
            self.grid.await_group(*part)?;
        }
        self.grid.told(&parts);
        let report = self.grid.report(&self.recorder.mapping.to_string(), &parts);
        let together = self.recorder.parts.all().iter().map(|part| part.together).max().unwrap_or(1);
        Ok(Report { differences: self.differences(), together, ..report })
    }

    /// Returns the progress of the launched calls, without waiting for anything.
    pub fn progress(&self) -> GroupProgress {
        let parts = self.parts();
        // Other bodies may have been launched with them.
        let own = self.recorder.held.as_ref().map(|_| self.recorder.parts.tasks().clone());
        self.grid.progress(&parts, own.as_deref())
    }

    fn parts(&self) -> Vec<GroupId> {
        self.recorder.parts.all().iter().map(|part| part.id).collect()
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recorder.recording.lock().expect("no panic while held")
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group(by {}, {} calls recorded)", self.recorder.mapping, self.recorded())
    }
}

/// The error if a plan is requested too late.
const NOTHING_LEFT: &str = "the group has no calls left to plan: they were launched at the end of its block, by \
     launch(), or because a result was requested; request the plan before that, or see the executed plans in \
     the group's report";

fn handle_of(arg: &Arg) -> Option<&Handle> {
    match arg {
        Arg::Handle(handle) => Some(handle),
        Arg::Value(_) => None,
    }
}

impl Recording {
    fn group(&self, id: GroupId) -> graph::Group {
        // A result that nothing in the group reads, and that the program can still reach, is presumably wanted by the program.
        let wanted = self.made.iter().filter(|(datum, handle)| !self.read.contains(datum) && handle.strong_count() > 0);
        graph::Group {
            id,
            wanted: wanted.map(|(datum, _)| *datum).collect(),
            tasks: self.tasks.clone(),
            sources: self.sources.clone(),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.discard("its group was dropped before it was launched");
        if let Some(matching) = self.matching.take() {
            let mut matching = matching.into_inner().expect("no panic while held");
            self.parts.grid.end_plan_later(matching.group(), matching.take_values());
        }
    }
}

impl Recorder {
    fn discard(&self, why: &str) {
        drop_recording(&self.parts.grid, self.take(), why);
    }

    fn take(&self) -> Recording {
        std::mem::take(&mut *self.recording.lock().expect("no panic while held"))
    }

    fn is_recorded(&self) -> bool {
        !self.recording.lock().expect("no panic while held").tasks.is_empty()
    }

    fn launch(&self, grid: &Grid) -> Result<(), Error> {
        grid.launch(Some(&self.parts), |batch| batch.group(self)).map(drop)
    }
}
