//! Calls of groups on stateless servers (`serve --plain`), which keep nothing: the client sends each a copy of every
//! argument, and the server sends the results to the client when they are produced.
//!
//! ```text
//! client ──RunTasks, arguments by identifiers of copies──▶ stateless server
//! client ◀──Fetch (a copy)── stateless server        as soon as its store has room
//! client ──the copy──▶ stateless server              as soon as the client has the datum
//! client ◀──results, unrequested── stateless server  it keeps none
//! ```
//! A copy has an identifier of its own. So the server cannot take it for the argument of another call, and data that
//! two calls read are sent twice, as in plain GridRPC. A result whose transfer to the client is interrupted is lost:
//! its task runs again.
//!
//! **Invariant:** a copy is known from when its task is sent until the task has ended or is returned.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Argument, Task};
use gridloom_base::{DatumId, NodeId, TaskId};

/// Serial numbers from here on are those of copies. Programs count from 0.
const FIRST_SERIAL: u64 = 1 << 63;

/// An argument of a call under the identifier that a stateless server knows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ArgumentCopy {
    /// The datum that it is a copy of.
    pub(super) datum: DatumId,
    pub(super) task: TaskId,
    pub(super) server: NodeId,
    is_there: bool,
}

/// Copies of arguments for calls in progress on stateless servers.
#[derive(Debug, Default)]
pub(super) struct ArgumentCopies {
    copies: BTreeMap<DatumId, ArgumentCopy>,
    of_task: BTreeMap<TaskId, Vec<DatumId>>,
    /// Requests of servers for data that are not here yet: the datum and its copy.
    asked: BTreeSet<(DatumId, DatumId)>,
    made: u64,
    /// Copies of tasks that have ended since the last [`ArgumentCopies::take_over`].
    over: Vec<DatumId>,
}

impl ArgumentCopies {
    /// Returns the task in the form for that server, and the datum of each copy.
    pub(super) fn begin(&mut self, task: &Task, server: NodeId) -> (Task, Vec<(DatumId, DatumId)>) {
        self.end(task.id);
        let mut copy_of: BTreeMap<DatumId, DatumId> = BTreeMap::new();
        for datum in task.inputs() {
            copy_of.entry(datum).or_insert_with(|| {
                self.made += 1;
                DatumId { client: task.id.client, serial: FIRST_SERIAL + self.made }
            });
        }
        for (datum, copy) in &copy_of {
            let of = ArgumentCopy { datum: *datum, task: task.id, server, is_there: false };
            self.copies.insert(*copy, of);
        }
        if !copy_of.is_empty() {
            self.of_task.insert(task.id, copy_of.values().copied().collect());
        }
        let mut task = task.clone();
        for arg in &mut task.args {
            if let Argument::Datum(datum) = arg {
                *datum = copy_of[datum];
            }
        }
        (task, copy_of.into_iter().map(|(datum, copy)| (copy, datum)).collect())
    }

    /// True if that is the identifier of a copy.
    pub(super) fn has(datum: DatumId) -> bool {
        !datum.is_shared() && datum.serial >= FIRST_SERIAL
    }

    /// Records that a server has requested a copy.
    pub(super) fn ask(&mut self, datum: DatumId, copy: DatumId) {
        self.asked.insert((datum, copy));
    }

    pub(super) fn get(&self, copy: DatumId) -> Option<ArgumentCopy> {
        self.copies.get(&copy).copied()
    }

    /// True if a server has requested a copy of a datum that is not here.
    pub(super) fn awaits(&self, datum: DatumId) -> bool {
        let first = DatumId { client: NodeId(u64::MIN), serial: u64::MIN };
        self.asked.range((datum, first)..).next().is_some_and(|(known, _)| *known == datum)
    }

    /// Removes and returns the requested copies of a datum, which has arrived.
    pub(super) fn take_asked(&mut self, datum: DatumId) -> Vec<DatumId> {
        let copies: Vec<DatumId> =
            self.asked.iter().filter(|(known, _)| *known == datum).map(|(_, copy)| *copy).collect();
        self.asked.retain(|(known, _)| *known != datum);
        copies
    }

    /// Records that a copy has arrived at its server.
    pub(super) fn arrived(&mut self, copy: DatumId) {
        if let Some(copy) = self.copies.get_mut(&copy) {
            copy.is_there = true;
        }
    }

    /// True if a copy of that datum has arrived at a task's server.
    pub(super) fn is_there(&self, task: TaskId, datum: DatumId) -> bool {
        let copies = self.of_task.get(&task).into_iter().flatten().map(|copy| self.copies[copy]);
        copies.into_iter().any(|copy| copy.datum == datum && copy.is_there)
    }

    /// Ends the copies of a task that has ended or left its server.
    pub(super) fn end(&mut self, task: TaskId) {
        for copy in self.of_task.remove(&task).unwrap_or_default() {
            if let Some(known) = self.copies.remove(&copy) {
                self.asked.remove(&(known.datum, copy));
            }
            self.over.push(copy);
        }
    }

    pub(super) fn take_over(&mut self) -> Vec<DatumId> {
        std::mem::take(&mut self.over)
    }

    pub(super) fn len(&self) -> usize {
        self.copies.len() + self.asked.len() + self.of_task.len() + self.over.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::TaskKind;

    const CLIENT: NodeId = NodeId(9);
    const PLAIN: NodeId = NodeId(2);

    fn datum(serial: u64) -> DatumId {
        DatumId { client: CLIENT, serial }
    }

    fn task(serial: u64, inputs: &[u64]) -> Task {
        let args = inputs.iter().map(|serial| Argument::Datum(datum(*serial))).collect();
        let id = TaskId { client: CLIENT, serial };
        let kind = TaskKind::call("m/f", 0);
        Task { id, kind, args, outputs: Vec::new(), work_flops: None, options: Default::default() }
    }

    #[test]
    fn two_calls_never_read_one_copy() {
        let mut copies = ArgumentCopies::default();
        let (first, of_first) = copies.begin(&task(1, &[5, 6, 5]), PLAIN);
        let (second, of_second) = copies.begin(&task(2, &[5]), PLAIN);
        assert_eq!((of_first.len(), of_second.len()), (2, 1));
        assert_eq!(first.inputs().collect::<Vec<_>>(), [of_first[0].0, of_first[1].0, of_first[0].0]);
        assert!(second.inputs().all(|copy| first.inputs().all(|other| other != copy)));
        let of = copies.get(of_second[0].0).unwrap();
        assert_eq!((of.datum, of.task.serial, of.server), (datum(5), 2, PLAIN));
    }

    #[test]
    fn a_copy_is_known_until_its_task_is_over() {
        let mut copies = ArgumentCopies::default();
        let (_, of_first) = copies.begin(&task(1, &[5]), PLAIN);
        let (copy, id) = (of_first[0].0, TaskId { client: CLIENT, serial: 1 });
        copies.asked.insert((datum(5), copy));
        assert!(copies.awaits(datum(5)) && !copies.awaits(datum(4)) && !copies.awaits(datum(6)));
        assert_eq!(copies.take_asked(datum(5)), [copy]);
        assert!(!copies.awaits(datum(5)) && !copies.is_there(id, datum(5)));
        copies.arrived(copy);
        assert!(copies.is_there(id, datum(5)));
        // A task that is sent again gets other copies.
        let (_, again) = copies.begin(&task(1, &[5]), PLAIN);
        assert!(copies.get(copy).is_none() && again[0].0 != copy && !copies.is_there(id, datum(5)));
        copies.end(id);
        assert_eq!(copies.take_over(), [copy, again[0].0]);
        assert_eq!(copies.len(), 0);
    }
}
