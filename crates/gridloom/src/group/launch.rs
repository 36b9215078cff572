//! Launches groups: takes their recorded calls, maps and runs them.
//!
//! A group is launched with those whose results it reads. All are taken at once, under a lock. They are mapped outside of it,
//! since that may run code of the program, which may take long. A thread that needs one of them meanwhile waits for the launch.
//!
//! **Invariant:** a launch waits only for launches that began before it, so there are no cycles of waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use gridloom_base::{DatumId, GroupId};

use super::regroup::Held;
use super::{Handle, Part, Parts, Recorder, Recording};
use crate::mapping::Inside;
use crate::{Error, Grid, Mapping};

/// The launches of a session.
#[derive(Default)]
pub(crate) struct Launches {
    under_way: Mutex<UnderWay>,
    ended: Condvar,
}

#[derive(Default)]
struct UnderWay {
    begun: u64,
    /// The groups of each launch, by its number.
    groups: BTreeMap<u64, Vec<Arc<Parts>>>,
}

/// Groups that are launched together, ordered so that producers precede their readers.
pub(super) struct Batch {
    /// The group that must be launched when the launch returns.
    needed: Option<Arc<Parts>>,
    taken: Vec<Taken>,
    /// True if calls should have been taken where that is not possible.
    is_refused: bool,
    is_inside: bool,
}

/// Calls that are mapped together.
pub(super) struct Taken {
    pub(super) mapping: Mapping,
    pub(super) recording: Recording,
    pub(super) groups: Vec<Arc<Parts>>,
    pub(super) together: usize,
}

/// A launch in progress, which ends when this is dropped.
struct Turn<'a> {
    launches: &'a Launches,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.launches.under_way().groups.remove(&self.number);
        self.launches.ended.notify_all();
    }
}

impl Launches {
    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().expect("no panic while held")
    }
}

impl UnderWay {
    /// True if an earlier launch contains a group that this one needs.
    fn has_before(&self, number: u64, batch: &Batch) -> bool {
        self.groups.range(..number).any(|(_, groups)| groups.iter().any(|group| batch.needs(group)))
    }
}

impl Grid {
    /// Launches the calls that `take` selects; it is called under the lock. Returns the part made of the last
    /// selection. On return, `needed` has been launched, by this or another thread.
    pub(super) fn launch(
        &self,
        needed: Option<&Arc<Parts>>,
        take: impl FnOnce(&mut Batch),
    ) -> Result<Option<Arc<Part>>, Error> {
        let launches = self.launches();
        let is_inside = Inside::current().has(self);
        let mut under_way = launches.under_way();
        let mut batch = Batch { needed: needed.cloned(), taken: Vec::new(), is_refused: false, is_inside };
        take(&mut batch);
        let number = under_way.begun + 1;
        if batch.is_refused || is_inside && under_way.has_before(number, &batch) {
            return Err(Error::Usage(NOT_INSIDE.into()));
        }
        under_way.begun = number;
        under_way.groups.insert(number, batch.taken.iter().flat_map(|taken| taken.groups.clone()).collect());
        while under_way.has_before(number, &batch) {
            under_way = launches.ended.wait(under_way).expect("no panic while held");
        }
        drop(under_way);
        let _turn = Turn { launches, number };
        let (mut last, mut failed) = (None, None);
        for taken in batch.taken {
            last = taken.send(self).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                None
            });
        }
        failed.map_or(Ok(last), Err)
    }
}

impl Batch {
    /// Adds the calls of a group, or of the loop whose body it is.
    pub(super) fn group(&mut self, recorder: &Recorder) {
        match &recorder.held {
            Some(held) if held.has(recorder) => self.held(held),
            Some(_) => {}
            None if self.is_inside => self.is_refused |= recorder.is_recorded(),
            None => {
                let (mapping, groups) = (recorder.mapping.clone(), vec![recorder.parts.clone()]);
                self.add(Taken { mapping, recording: recorder.take(), groups, together: 1 });
            }
        }
    }

    /// Adds the group that makes a result.
    pub(super) fn maker(&mut self, handle: &Handle) {
        match (handle.0.held.upgrade(), handle.0.group.upgrade()) {
            (Some(held), _) if held.makes(handle.datum()) => self.held(&held),
            // Older results do not require launching younger bodies.
            (Some(_), _) | (None, None) => {}
            (None, Some(recorder)) => self.group(&recorder),
        }
    }

    /// Adds the delayed bodies of a loop.
    pub(super) fn held(&mut self, held: &Held) {
        if self.is_inside {
            self.is_refused = true;
        } else if let Some(taken) = held.take() {
            self.add(taken);
        }
    }

    fn add(&mut self, taken: Taken) {
        if taken.recording.tasks.is_empty() {
            return;
        }
        // Other groups whose results it reads and that are still being recorded have to run as well.
        taken.recording.handles.iter().for_each(|handle| self.maker(handle));
        self.taken.push(taken);
    }

    fn needs(&self, group: &Arc<Parts>) -> bool {
        let is_read = |taken: &Taken| taken.recording.handles.iter().any(|handle| Arc::ptr_eq(&handle.0.parts, group));
        let is_of = |taken: &Taken| taken.groups.iter().any(|other| Arc::ptr_eq(other, group));
        self.needed.as_ref().is_some_and(|needed| Arc::ptr_eq(needed, group))
            || self.taken.iter().any(|taken| is_of(taken) || is_read(taken))
    }
}

impl Taken {
    /// Maps and runs the calls, for all groups to which they belong.
    fn send(self, grid: &Grid) -> Result<Option<Arc<Part>>, Error> {
        let Taken { mapping, recording, groups, together } = self;
        // A group whose results it reads may have been discarded, or its mapping may have failed.
        if let Some(why) = recording.handles.iter().find_map(|handle| handle.0.discarded.get().cloned()) {
            drop_recording(grid, recording, &format!("a call whose result it reads never ran: {why}"));
            return Ok(None);
        }
        let id = GroupId { client: grid.client(), serial: grid.next_serial() };
        let group = recording.group(id);
        let by = match mapping.by(grid, &group) {
            Ok(by) => by,
            Err(error) => {
                drop_recording(grid, recording, &error.to_string());
                return Err(error);
            }
        };
        let part = Arc::new(Part { grid: grid.clone(), id, together });
        groups.iter().for_each(|group| group.all().push(part.clone()));
        // The program's values are kept only as long as the lineage needs them. Results whose handles are already gone
        // are not kept either.
        let mut release: Vec<DatumId> = recording.values.values().map(|(datum, _)| *datum).collect();
        let is_own = |datum: &&DatumId| group.sources[*datum].at.len() == 1 && !recording.kept.contains(datum);
        release.extend(recording.sources.keys().filter(is_own));
        release.extend(recording.made.iter().filter(|(_, h)| h.strong_count() == 0).map(|(datum, _)| *datum));
        release.sort_unstable();
        release.dedup();
        grid.run(group, by, release);
        drop(recording.handles);
        Ok(Some(part))
    }
}

/// Discards a recording; its handles report the reason.
pub(super) fn drop_recording(grid: &Grid, recording: Recording, why: &str) {
    for handle in recording.made.values().filter_map(Weak::upgrade) {
        // A result is made once, so it is discarded once.
        let _ = handle.discarded.set(why.to_string());
    }
    let sources = recording.values.into_values().map(|(datum, _)| datum).collect();
    grid.forget_values(sources);
}

/// The error for a custom heuristic that launches a group.
const NOT_INSIDE: &str = "a heuristic cannot launch groups of the session for which it maps, nor wait for the group \
     that it maps: it has to map from the problem alone; plan(), discard() and plain calls work";
