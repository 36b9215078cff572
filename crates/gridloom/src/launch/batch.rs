//! Launches recorded calls: takes them, maps and runs them.
//!
//! A group is launched with those whose results it reads. All are taken at once, under a lock. They are mapped outside of it,
//! since that may run code of the program, which may take long. A thread that needs one of them meanwhile waits for the launch.

use std::sync::Arc;

use gridloom_base::DatumId;

use super::groups::{Part, Parts};
use super::mapping::MappingScope;
use super::recorder::{Delayed, Made, Origin, Recorder, TakenCalls, drop_recording};
use super::run::run;
use crate::Error;
use crate::session::{LaunchGroups, Session};

/// Groups that are launched together, ordered so that producers precede their readers.
pub(crate) struct LaunchSet {
    /// The group that must be launched when the launch returns.
    needed: Option<Arc<Parts>>,
    taken: Vec<TakenCalls>,
    /// True if calls should have been taken where that is not possible.
    is_refused: bool,
    is_inside: bool,
}

/// Launches the calls that `take` selects; it is called under the lock. Returns the part made of the last selection. On
/// return, `needed` has been launched, by this or another thread.
pub(crate) fn launch(
    session: &Session,
    needed: Option<&Arc<Parts>>,
    take: impl FnOnce(&mut LaunchSet),
) -> Result<Option<Arc<Part>>, Error> {
    let is_inside = MappingScope::current().has(session);
    let begun = session.launches().begin(!is_inside, || {
        let mut batch = LaunchSet { needed: needed.cloned(), taken: Vec::new(), is_refused: false, is_inside };
        take(&mut batch);
        let groups = batch.groups();
        (!batch.is_refused).then_some((batch.taken, groups))
    });
    let (taken, _turn) = begun.ok_or_else(|| Error::Usage(INSIDE_HEURISTIC.into()))?;
    let (mut last, mut failed) = (None, None);
    for taken in taken {
        last = send(session, taken).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        });
    }
    failed.map_or(Ok(last), Err)
}

impl LaunchSet {
    /// Adds the calls of a group, or of the loop whose body it is.
    pub(crate) fn group(&mut self, recorder: &Recorder) {
        match &recorder.held {
            Some(held) if held.has(recorder) => self.held(held),
            Some(_) => {}
            None if self.is_inside => self.is_refused |= recorder.is_recorded(),
            None => {
                let (mapping, groups) = (recorder.mapping.clone(), vec![recorder.parts.clone()]);
                self.add(TakenCalls { mapping, recording: recorder.take(), groups, together: 1 });
            }
        }
    }

    /// Adds the group that makes a result.
    pub(crate) fn add_producer(&mut self, made: &Made) {
        match made.origin() {
            Origin::Loop(held) => self.held(&held),
            Origin::Group(recorder) => self.group(&recorder),
            Origin::None => {}
        }
    }

    /// Adds the delayed bodies of a loop.
    pub(crate) fn held(&mut self, held: &Delayed) {
        if self.is_inside {
            self.is_refused = true;
        } else if let Some(taken) = held.take() {
            self.add(taken);
        }
    }

    fn add(&mut self, taken: TakenCalls) {
        if taken.recording.tasks.is_empty() {
            return;
        }
        // Other groups whose results it reads and that are still being recorded have to run as well.
        taken.recording.handles.iter().for_each(|made| self.add_producer(made));
        self.taken.push(taken);
    }

    /// Its groups, and those that it needs.
    fn groups(&self) -> LaunchGroups {
        let launched: Vec<u64> =
            self.taken.iter().flat_map(|taken| taken.groups.iter().map(|group| group.number())).collect();
        let read = self.taken.iter().flat_map(|taken| taken.recording.handles.iter().map(|made| made.parts.number()));
        let needed = self.needed.iter().map(|needed| needed.number());
        LaunchGroups { needed: needed.chain(launched.iter().copied()).chain(read).collect(), launched }
    }
}

/// Maps and runs the calls, for all groups to which they belong.
fn send(session: &Session, taken: TakenCalls) -> Result<Option<Arc<Part>>, Error> {
    let TakenCalls { mapping, recording, groups, together } = taken;
    // A group whose results it reads may have been discarded, or its mapping may have failed.
    if let Some(why) = recording.discarded() {
        drop_recording(session, recording, &format!("a call whose result it reads never ran: {why}"));
        return Ok(None);
    }
    let id = session.new_group();
    let group = recording.group(id);
    let by = match mapping.to_send(session, &group) {
        Ok(by) => by,
        Err(error) => {
            drop_recording(session, recording, &error.to_string());
            return Err(error);
        }
    };
    let part = Part::new(session, id, together);
    groups.iter().for_each(|group| group.all().push(part.clone()));
    // The program's values are kept only as long as the lineage needs them. Results whose handles are already gone
    // are not kept either.
    let mut release: Vec<DatumId> = recording.values.values().map(|(datum, _)| *datum).collect();
    let is_own = |datum: &&DatumId| group.sources[*datum].at.len() == 1 && !recording.kept.contains(datum);
    release.extend(recording.sources.keys().filter(is_own));
    release.extend(recording.made.iter().filter(|(_, h)| h.strong_count() == 0).map(|(datum, _)| *datum));
    release.sort_unstable();
    release.dedup();
    run(session, group, by, release);
    drop(recording.handles);
    Ok(Some(part))
}

/// The error for a custom heuristic that launches a group.
const INSIDE_HEURISTIC: &str = "a heuristic cannot launch groups of the session for which it maps, nor wait for the group \
     that it maps: it has to map from the problem alone; plan(), discard() and plain calls work";
