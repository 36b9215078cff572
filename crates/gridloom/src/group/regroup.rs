//! Bodies of a loop, each a group, that are delayed and mapped together.
//!
//! Larger groups map better and need fewer requests to the agent; smaller ones start earlier and adapt sooner. Delayed bodies
//! are launched when there are enough, or as soon as the program requests a result of one. So no thread waits for a call
//! that never starts.
//!
//! **Invariant:** a value that a body reads stays in the client's store from its look-up until its launch. An unused
//! value is released only after [`KEPT_BATCHES`] launches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use gridloom_base::DatumId;
use gridloom_base::limits::{GROUP_TASKS_MAX, REGROUP_BODIES_MAX};

use super::launch::Taken;
use super::{Group, Handle, Part, Parts, Recorder, Recording};
use crate::{Error, Grid, Mapping, Value};

/// The number of loop bodies that are mapped together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regroup {
    /// A fixed number, from 1 to [`REGROUP_BODIES_MAX`].
    Fixed(usize),
    /// One at first, doubling each time up to [`REGROUP_BODIES_MAX`]. Halves when execution deviates from the plan
    /// ([`LEFT_PLAN`]), or when mapping takes a large part of the time ([`MAP_PART`]) and increasingly long for each body.
    Auto,
}

/// Execution has deviated from the plan if its makespan differs from the predicted one by more than this factor.
const LEFT_PLAN: f64 = 1.5;
/// Maximum mapping time as a fraction of the predicted makespan.
const MAP_PART: f64 = 0.1;
/// Number of launches for which a value is kept after its last use.
const KEPT_BATCHES: u64 = 2;

/// A loop with groups as its bodies. Dropping it launches the delayed bodies.
///
/// ```no_run
/// # use gridloom::{Error, Grid, Regroup, Value};
/// # fn body(grid: &Grid) -> Result<(), Error> {
/// let dgemm = grid.function("linalg/dgemm")?;
/// let rounds = grid.regrouped("auto", Regroup::Auto)?;
/// let a = Value::from_f64(&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
/// let mut results = Vec::new();
/// for _ in 0..100 {
///     let group = rounds.group();
///     results.extend(group.call(&dgemm, &[(&a).into(), (&a).into()])?);
///     group.finish()?;
/// }
/// results[99].get()?;
/// # Ok(())
/// # }
/// ```
pub struct Loop(Arc<Held>);

/// The delayed bodies of a loop.
pub(super) struct Held {
    grid: Grid,
    mapping: Mapping,
    regroup: Regroup,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    recording: Recording,
    /// Number of bodies in the recording. `groups` has their groups, and the groups of other bodies recorded in part.
    bodies: usize,
    groups: Vec<Arc<Parts>>,
    /// Bodies that are being recorded.
    open: Vec<Weak<Recorder>>,
    /// Number of bodies to launch together.
    size: usize,
    batch: u64,
    /// Values in the client's store, with the batch that last read them.
    values: BTreeMap<(usize, u64, String), (DatumId, Value, u64)>,
    /// The last full batch.
    last: Option<Arc<Part>>,
    /// Mapping time per body of the batch before, seconds.
    map_s: f64,
}

impl Grid {
    /// Creates a loop with groups as its bodies; several of them are mapped together.
    ///
    /// # Errors
    /// If `mapping` is a plan, which belongs to a single group, or the number of bodies is out of range.
    pub fn regrouped(&self, mapping: impl Into<Mapping>, regroup: Regroup) -> Result<Loop, Error> {
        let mapping = mapping.into();
        if mapping.is_plan() {
            let why = "a plan is for the calls of one group; name the heuristic that maps the bodies of the loop";
            return Err(Error::Usage(why.into()));
        }
        if let Regroup::Fixed(bodies) = regroup
            && !(1..=REGROUP_BODIES_MAX).contains(&bodies)
        {
            let why = format!("{bodies} bodies cannot be mapped together; give 1 to {REGROUP_BODIES_MAX}, or auto");
            return Err(Error::Usage(why));
        }
        let size = if let Regroup::Fixed(bodies) = regroup { bodies } else { 1 };
        let state = Mutex::new(State { size, ..State::default() });
        Ok(Loop(Arc::new(Held { grid: self.clone(), mapping, regroup, state })))
    }
}

impl Loop {
    /// Creates a group for the next body. [`Group::finish`] ends the body.
    pub fn group(&self) -> Group {
        let (grid, mapping, held) = (self.0.grid.clone(), self.0.mapping.clone(), Some(self.0.clone()));
        let (parts, recording) = (Parts::new(&grid), Mutex::default());
        let recorder = Arc::new(Recorder { mapping, recording, parts, matching: None, held });
        let mut state = self.0.state();
        state.open.retain(|open| open.strong_count() > 0);
        state.open.push(Arc::downgrade(&recorder));
        drop(state);
        Group { grid, recorder }
    }

    /// Launches the delayed bodies.
    ///
    /// # Errors
    /// If a custom heuristic cannot map them.
    pub fn launch(&self) -> Result<(), Error> {
        self.0.grid.launch(None, |batch| batch.held(&self.0)).map(drop)
    }

    /// Number of delayed bodies.
    pub fn held(&self) -> usize {
        self.0.state().bodies
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The handles report mapping errors.
        let _ = self.launch();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.state().values).into_values().map(|(datum, ..)| datum);
        values.for_each(|datum| self.grid.release_later(datum));
    }
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loop(by {}, {:?}, {} bodies delayed)", self.0.mapping, self.0.regroup, self.held())
    }
}

impl Group {
    /// Ends the body.
    pub(super) fn hold(&self) -> Result<(), Error> {
        let Some(held) = &self.recorder.held else { return Ok(()) };
        let mut is_full = false;
        let part = self.grid.launch(Some(&self.recorder.parts), |batch| {
            let recording = self.recorder.take();
            let is_too_large = held.state().recording.tasks.len() + recording.tasks.len() > GROUP_TASKS_MAX;
            if is_too_large {
                batch.held(held);
            }
            let mut state = held.state();
            state.open.retain(|open| !std::ptr::eq(open.as_ptr(), Arc::as_ptr(&self.recorder)));
            if !recording.tasks.is_empty() {
                state.add(recording, &self.recorder.parts);
            }
            state.bodies += 1;
            is_full = state.bodies >= state.size;
            drop(state);
            if is_full {
                batch.held(held);
            }
        })?;
        if is_full {
            held.adapt(part);
        }
        Ok(())
    }
}

impl State {
    fn add(&mut self, recording: Recording, group: &Arc<Parts>) {
        self.recording.append(recording);
        if !self.groups.iter().any(|known| Arc::ptr_eq(known, group)) {
            self.groups.push(group.clone());
        }
    }
}

impl Recording {
    /// Appends calls that were recorded later, which may read results of this recording.
    fn append(&mut self, later: Recording) {
        let made = &self.made;
        self.sources.extend(later.sources.into_iter().filter(|(datum, _)| !made.contains_key(datum)));
        self.made.extend(later.made);
        self.tasks.extend(later.tasks);
        self.read.extend(later.read);
        self.values.extend(later.values);
        self.kept.extend(later.kept);
        self.handles.extend(later.handles);
    }
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Returns the id of a value, and keeps the value in the client's store from now on.
    pub(super) fn name(&self, key: (usize, u64, String), value: &Value) -> DatumId {
        let mut state = self.state();
        let batch = state.batch;
        if let Some((datum, _, used)) = state.values.get_mut(&key) {
            *used = batch;
            return *datum;
        }
        let datum = self.grid.new_datum();
        self.grid.put(datum, value);
        state.values.insert(key, (datum, value.clone(), batch));
        datum
    }

    /// True if a body may read that result without launching its producer first: the producer is launched already,
    /// belongs to a body that has ended, or to this body.
    pub(super) fn may_read(&self, handle: &Handle, body: &Recorder) -> bool {
        let makes = |recorder: &Recorder| {
            recorder.recording.lock().expect("no panic while held").made.contains_key(&handle.datum())
        };
        if self.state().recording.made.contains_key(&handle.datum()) || makes(body) {
            return true;
        }
        match (handle.0.held.upgrade(), handle.0.group.upgrade()) {
            (Some(held), _) => !held.makes(handle.datum()),
            (None, Some(recorder)) => !makes(&recorder),
            (None, None) => true,
        }
    }

    /// True if calls of that body are not launched yet.
    pub(super) fn has(&self, body: &Recorder) -> bool {
        let is_held = self.state().groups.iter().any(|group| Arc::ptr_eq(group, &body.parts));
        is_held || body.is_recorded()
    }

    /// True if a call that is not launched yet makes that result.
    pub(super) fn makes(&self, datum: DatumId) -> bool {
        let state = self.state();
        let open: Vec<Arc<Recorder>> = state.open.iter().filter_map(Weak::upgrade).collect();
        let is_held = state.recording.made.contains_key(&datum);
        drop(state);
        is_held || open.iter().any(|body| body.recording.lock().expect("no panic while held").made.contains_key(&datum))
    }

    /// Takes the delayed bodies, and the recorded part of open ones.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = self.state();
        let open: Vec<Arc<Recorder>> = state.open.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        let begun: Vec<(Recording, &Arc<Parts>)> = open.iter().map(|body| (body.take(), &body.parts)).collect();
        state = self.state();
        for (recording, group) in begun {
            if !recording.tasks.is_empty() {
                state.add(recording, group);
            }
        }
        let recording = std::mem::take(&mut state.recording);
        let groups = std::mem::take(&mut state.groups);
        state.bodies = 0;
        if recording.tasks.is_empty() {
            return None;
        }
        state.batch += 1;
        let batch = state.batch;
        let unused = |used: u64| used + KEPT_BATCHES < batch;
        let given_up = state.values.values().filter(|(.., used)| unused(*used)).map(|(datum, ..)| *datum);
        given_up.for_each(|datum| self.grid.release_later(datum));
        state.values.retain(|_, (.., used)| !unused(*used));
        drop(state);
        let together = groups.len();
        Some(Taken { mapping: self.mapping.clone(), recording, groups, together })
    }

    /// After a full batch: adapts the number of bodies of the next one.
    fn adapt(&self, launched: Option<Arc<Part>>) {
        if self.regroup != Regroup::Auto {
            return;
        }
        let mut state = self.state();
        let last = match launched {
            Some(part) => state.last.replace(part),
            None => None,
        };
        let course = last.and_then(|part| Some((self.grid.course(part.id)?, part.together)));
        let is_worse = course.is_some_and(|(course, bodies)| {
            let map_s = course.map_s / bodies as f64;
            let costs_more = course.map_s > MAP_PART * course.predicted_s && map_s > state.map_s && state.map_s > 0.0;
            state.map_s = map_s;
            let has_left = course.measured_s.is_some_and(|measured_s| {
                measured_s > LEFT_PLAN * course.predicted_s || measured_s * LEFT_PLAN < course.predicted_s
            });
            costs_more || has_left
        });
        state.size = if is_worse { (state.size / 2).max(1) } else { (2 * state.size).min(REGROUP_BODIES_MAX) };
    }
}
