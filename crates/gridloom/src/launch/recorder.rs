//! Calls that are recorded and not launched yet: those of a group, and those of a loop whose bodies are delayed.
//!
//! Results know the calls among which theirs is recorded, so that a program that requests one launches them; and recorded
//! calls know the results that they make and read.
//!
//! **Invariant:** a value that a body reads stays in the client's store from its look-up until its launch. An unused
//! value is released only after [`KEPT_BATCHES`] launches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use gridloom_base::limits::GROUP_TASKS_MAX;
use gridloom_base::{DatumId, GroupId, Meta};
use gridloom_core::graph::{self, Source, Task};
use gridloom_idl::Signature;

use super::groups::{Part, Parts};
use super::mapping::Mapping;
use super::sizing::{Regroup, Sizing};
use crate::Value;
use crate::session::Session;

/// Number of launches for which a value is kept after its last use.
const KEPT_BATCHES: u64 = 2;

/// Identity of a value's bytes, with its description.
pub(crate) type ValueKey = (usize, u64, String);

/// A result that is, or will be, on some server. It is released there when this is dropped.
pub(crate) struct Made {
    pub(crate) session: Session,
    pub(crate) datum: DatumId,
    pub(crate) meta: Meta,
    pub(crate) signature: Arc<Signature>,
    /// The group whose call makes it.
    group: Weak<Recorder>,
    /// The delayed bodies of the loop to which its group belongs.
    held: Weak<Delayed>,
    /// Why its call will never run, if it was discarded before launch.
    discarded: OnceLock<String>,
    /// Keeps the session's records of its group alive.
    pub(crate) parts: Arc<Parts>,
}

impl Made {
    /// Creates a result of a call that is recorded in the group.
    pub(crate) fn by_call(
        session: &Session,
        recorder: &Arc<Recorder>,
        signature: &Arc<Signature>,
        (datum, meta): (DatumId, Meta),
    ) -> Arc<Made> {
        Arc::new(Made {
            session: session.clone(),
            datum,
            meta,
            signature: signature.clone(),
            group: Arc::downgrade(recorder),
            held: recorder.held.as_ref().map_or_else(Weak::new, Arc::downgrade),
            discarded: OnceLock::new(),
            parts: recorder.parts.clone(),
        })
    }

    /// Creates the datum of a value that no call of the session makes.
    pub(crate) fn of_value(session: &Session, signature: Signature, datum: DatumId, meta: Meta) -> Arc<Made> {
        Arc::new(Made {
            session: session.clone(),
            datum,
            meta,
            signature: Arc::new(signature),
            group: Weak::new(),
            held: Weak::new(),
            discarded: OnceLock::new(),
            parts: Parts::new(session),
        })
    }

    /// Why its call will never run, if it was discarded before launch.
    pub(crate) fn discarded(&self) -> Option<&str> {
        self.discarded.get().map(String::as_str)
    }

    /// The calls that have to be launched for it.
    pub(super) fn origin(&self) -> Origin {
        match (self.held.upgrade(), self.group.upgrade()) {
            (Some(held), _) if held.makes(self.datum) => Origin::Loop(held),
            // Older results do not require launching younger bodies.
            (Some(_), _) | (None, None) => Origin::None,
            (None, Some(recorder)) => Origin::Group(recorder),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.session.release_later(self.datum);
    }
}

/// The recorded calls that may make a result.
pub(super) enum Origin {
    None,
    Group(Arc<Recorder>),
    Loop(Arc<Delayed>),
}

/// Recorded calls.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) tasks: Vec<Task>,
    pub(crate) sources: BTreeMap<DatumId, Source>,
    pub(crate) made: BTreeMap<DatumId, Weak<Made>>,
    pub(crate) read: BTreeSet<DatumId>,
    /// Values put into the store for this part, by identity of their bytes. They are kept alive so that the identity stays unique.
    pub(crate) values: BTreeMap<ValueKey, (DatumId, Value)>,
    /// Values among the sources that stay in the store beyond this part.
    pub(crate) kept: BTreeSet<DatumId>,
    /// Results read by this part: not released before it is launched.
    pub(crate) handles: Vec<Arc<Made>>,
}

impl Recording {
    /// Returns the calls as a group to map.
    pub(crate) fn group(&self, id: GroupId) -> graph::Group {
        // A result that nothing in the group reads, and that the program can still reach, is presumably wanted by the program.
        let wanted = self.made.iter().filter(|(datum, handle)| !self.read.contains(datum) && handle.strong_count() > 0);
        graph::Group {
            id,
            wanted: wanted.map(|(datum, _)| *datum).collect(),
            tasks: self.tasks.clone(),
            sources: self.sources.clone(),
        }
    }

    /// Why one of the results that it reads was never made, if that is so.
    pub(super) fn discarded(&self) -> Option<String> {
        self.handles.iter().find_map(|made| made.discarded()).map(str::to_string)
    }

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

/// Discards a recording; its handles report the reason.
pub(crate) fn drop_recording(session: &Session, recording: Recording, why: &str) {
    for made in recording.made.values().filter_map(Weak::upgrade) {
        // A result is made once, so it is discarded once.
        let _ = made.discarded.set(why.to_string());
    }
    let sources = recording.values.into_values().map(|(datum, _)| datum).collect();
    session.forget_values(sources);
}

/// Calls that are mapped together.
pub(crate) struct TakenCalls {
    pub(crate) mapping: Mapping,
    pub(crate) recording: Recording,
    pub(crate) groups: Vec<Arc<Parts>>,
    pub(crate) together: usize,
}

/// A group that records its calls.
pub(crate) struct Recorder {
    session: Session,
    pub(crate) mapping: Mapping,
    recording: Mutex<Recording>,
    pub(crate) parts: Arc<Parts>,
    /// Set for a body of a loop, which is delayed at its end.
    pub(crate) held: Option<Arc<Delayed>>,
}

impl Recorder {
    pub(crate) fn new(session: &Session, mapping: Mapping, held: Option<Arc<Delayed>>) -> Arc<Recorder> {
        let (parts, recording) = (Parts::new(session), Mutex::default());
        Arc::new(Recorder { session: session.clone(), mapping, recording, parts, held })
    }

    pub(crate) fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().expect("no panic while held")
    }

    pub(super) fn take(&self) -> Recording {
        std::mem::take(&mut *self.recording())
    }

    pub(super) fn is_recorded(&self) -> bool {
        !self.recording().tasks.is_empty()
    }

    fn makes(&self, datum: DatumId) -> bool {
        self.recording().made.contains_key(&datum)
    }

    pub(crate) fn discard(&self, why: &str) {
        drop_recording(&self.session, self.take(), why);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.discard("its group was dropped before it was launched");
    }
}

/// The delayed bodies of a loop.
pub(crate) struct Delayed {
    pub(crate) session: Session,
    pub(crate) mapping: Mapping,
    state: Mutex<Bodies>,
}

struct Bodies {
    recording: Recording,
    /// Number of bodies in the recording. `groups` has their groups, and the groups of other bodies recorded in part.
    bodies: usize,
    groups: Vec<Arc<Parts>>,
    /// Bodies that are being recorded.
    open: Vec<Weak<Recorder>>,
    sizing: Sizing,
    batch: u64,
    /// Values in the client's store, with the batch that last read them.
    values: BTreeMap<ValueKey, (DatumId, Value, u64)>,
}

impl Bodies {
    fn add(&mut self, recording: Recording, group: &Arc<Parts>) {
        self.recording.append(recording);
        if !self.groups.iter().any(|known| Arc::ptr_eq(known, group)) {
            self.groups.push(group.clone());
        }
    }

    fn open(&self) -> Vec<Arc<Recorder>> {
        self.open.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Delayed {
    pub(crate) fn new(session: &Session, mapping: Mapping, sizing: Sizing) -> Arc<Delayed> {
        let (recording, groups, open, values) = (Recording::default(), Vec::new(), Vec::new(), BTreeMap::new());
        let state = Mutex::new(Bodies { recording, bodies: 0, groups, open, sizing, batch: 0, values });
        Arc::new(Delayed { session: session.clone(), mapping, state })
    }

    /// Number of delayed bodies.
    pub(crate) fn bodies(&self) -> usize {
        self.state().bodies
    }

    pub(crate) fn regroup(&self) -> Regroup {
        self.state().sizing.regroup()
    }

    fn state(&self) -> MutexGuard<'_, Bodies> {
        self.state.lock().expect("no panic while held")
    }

    /// Notes a body that is being recorded.
    pub(crate) fn begin_body(&self, body: &Arc<Recorder>) {
        let mut state = self.state();
        state.open.retain(|open| open.strong_count() > 0);
        state.open.push(Arc::downgrade(body));
    }

    /// Delays a body that has ended. `launch` launches the delayed bodies, before it if there would be too many calls, or
    /// with it if there are enough bodies. Returns whether there were enough.
    pub(crate) fn end_body(&self, body: &Arc<Recorder>, mut launch: impl FnMut(&Delayed)) -> bool {
        let recording = body.take();
        let is_too_large = self.state().recording.tasks.len() + recording.tasks.len() > GROUP_TASKS_MAX;
        if is_too_large {
            launch(self);
        }
        let mut state = self.state();
        state.open.retain(|open| !std::ptr::eq(open.as_ptr(), Arc::as_ptr(body)));
        if !recording.tasks.is_empty() {
            state.add(recording, &body.parts);
        }
        state.bodies += 1;
        let is_full = state.bodies >= state.sizing.size();
        drop(state);
        if is_full {
            launch(self);
        }
        is_full
    }

    /// After a full batch: adapts the number of bodies of the next one.
    pub(crate) fn adapt(&self, launched: Option<Arc<Part>>) {
        self.state().sizing.adapt(launched, |part| self.session.state_now().groups.times(part));
    }

    /// Returns the id of a value, and keeps the value in the client's store from now on.
    pub(crate) fn name(&self, key: ValueKey, value: &Value) -> DatumId {
        let mut state = self.state();
        let batch = state.batch;
        if let Some((datum, _, used)) = state.values.get_mut(&key) {
            *used = batch;
            return *datum;
        }
        let datum = self.session.new_datum();
        self.session.put(datum, value);
        state.values.insert(key, (datum, value.clone(), batch));
        datum
    }

    /// True if a body may read that result without launching its producer first: the producer is launched already,
    /// belongs to a body that has ended, or to this body.
    pub(crate) fn may_read(&self, made: &Made, body: &Recorder) -> bool {
        if self.state().recording.made.contains_key(&made.datum) || body.makes(made.datum) {
            return true;
        }
        match (made.held.upgrade(), made.group.upgrade()) {
            (Some(held), _) => !held.makes(made.datum),
            (None, Some(recorder)) => !recorder.makes(made.datum),
            (None, None) => true,
        }
    }

    /// True if calls of that body are not launched yet.
    pub(super) fn has(&self, body: &Recorder) -> bool {
        let is_held = self.state().groups.iter().any(|group| Arc::ptr_eq(group, &body.parts));
        is_held || body.is_recorded()
    }

    /// True if a call that is not launched yet makes that result.
    fn makes(&self, datum: DatumId) -> bool {
        let state = self.state();
        let (open, is_held) = (state.open(), state.recording.made.contains_key(&datum));
        drop(state);
        is_held || open.iter().any(|body| body.makes(datum))
    }

    /// Takes the delayed bodies, and the recorded part of open ones.
    pub(super) fn take(&self) -> Option<TakenCalls> {
        let open = self.state().open();
        let begun: Vec<(Recording, &Arc<Parts>)> = open.iter().map(|body| (body.take(), &body.parts)).collect();
        let mut state = self.state();
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
        given_up.for_each(|datum| self.session.release_later(datum));
        state.values.retain(|_, (.., used)| !unused(*used));
        drop(state);
        let together = groups.len();
        Some(TakenCalls { mapping: self.mapping.clone(), recording, groups, together })
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.state().values).into_values().map(|(datum, ..)| datum);
        values.for_each(|datum| self.session.release_later(datum));
    }
}
