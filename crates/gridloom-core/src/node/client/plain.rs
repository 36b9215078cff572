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
use std::sync::Arc;

use super::Client;
use super::recovery::not_taken_in;
use crate::graph::{Argument, Task};
use crate::node::message::{Supply, SupplyFault, TaskToServer, TransferReport};
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, NodeId, TaskId, Time};

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
    fn begin(&mut self, task: &Task, server: NodeId) -> (Task, Vec<(DatumId, DatumId)>) {
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

    pub(super) fn get(&self, copy: DatumId) -> Option<ArgumentCopy> {
        self.copies.get(&copy).copied()
    }

    /// True if a server has requested a copy of a datum that is not here.
    pub(super) fn awaits(&self, datum: DatumId) -> bool {
        let first = DatumId { client: NodeId(u64::MIN), serial: u64::MIN };
        self.asked.range((datum, first)..).next().is_some_and(|(known, _)| *known == datum)
    }

    /// Removes and returns the requested copies of a datum, which has arrived.
    fn take_asked(&mut self, datum: DatumId) -> Vec<DatumId> {
        let copies: Vec<DatumId> =
            self.asked.iter().filter(|(known, _)| *known == datum).map(|(_, copy)| *copy).collect();
        self.asked.retain(|(known, _)| *known != datum);
        copies
    }

    /// Records that a copy has arrived at its server.
    fn arrived(&mut self, copy: DatumId) {
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

    fn take_over(&mut self) -> Vec<DatumId> {
        std::mem::take(&mut self.over)
    }

    pub(super) fn len(&self) -> usize {
        self.copies.len() + self.asked.len() + self.of_task.len() + self.over.len()
    }
}

impl Client {
    /// True if a server is stateless.
    pub(super) fn is_plain(&self, node: NodeId) -> bool {
        self.directory.grid.server(node).is_some_and(|at| self.directory.grid.servers[at].stateless)
    }

    /// True if that is the identifier of a copy of an argument, for invariants.
    pub fn is_copy(datum: DatumId) -> bool {
        !datum.is_shared() && datum.serial >= FIRST_SERIAL
    }

    /// Returns the datum that an argument of a stateless server is a copy of, for invariants.
    pub fn copied(&self, copy: DatumId) -> Option<DatumId> {
        self.supplies.copies.get(copy).map(|of| of.datum)
    }

    /// Sends tasks to a stateless server.
    pub(super) fn run_on_plain(&mut self, server: NodeId, tasks: &[Arc<Task>], out: &mut Vec<Effect>) {
        let (mut sent, mut supplies) = (Vec::with_capacity(tasks.len()), Vec::new());
        for task in tasks {
            // The server refuses tasks that are not calls: they have nothing to copy.
            let (task, copies) = self.supplies.copies.begin(task, server);
            for (copy, datum) in copies {
                let meta = self.data[&datum].meta.clone();
                supplies.push(Supply::direct(copy, meta, self.config.id, String::new(), 1));
            }
            for output in &task.outputs {
                if let Some(run) = self.data.get_mut(&output.datum).filter(|run| !run.here) {
                    run.fetching.get_or_insert(server);
                }
            }
            sent.push(task);
        }
        self.contacts.post(server, TaskToServer::RunTasks { tasks: sent, supplies }, out);
    }

    /// Handles a server's request for a copy: sends it at once, or when the datum has arrived.
    pub(super) fn on_fetch_copy(&mut self, now: Time, copy: DatumId, of: ArgumentCopy, out: &mut Vec<Effect>) {
        self.supplies.copies.asked.insert((of.datum, copy));
        if self.data.get(&of.datum).is_some_and(|run| run.here) {
            self.send_copies(of.datum, out);
        } else {
            self.missing(now, of.datum, "no server holds it any more", out);
        }
    }

    /// Sends copies of a datum that has arrived to the servers that requested them.
    pub(super) fn send_copies(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for copy in self.supplies.copies.take_asked(datum) {
            let Some(of) = self.supplies.copies.get(copy) else { continue };
            out.push(Effect::AliasDatum { datum, named: copy });
            self.contacts.post_datum(of.server, copy, out);
        }
    }

    /// Handles a copy that failed to arrive: it is resent later, unless there were too many failures.
    pub(super) fn copy_failed(
        &mut self,
        now: Time,
        (copy, of): (DatumId, ArgumentCopy),
        fault: SupplyFault,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        match fault {
            SupplyFault::Broken | SupplyFault::NoMemory
                if self.supplies.count_broken(copy, (self.config.id, of.server)) =>
            {
                let name = self.contacts.name_of(of.server);
                let error = not_taken_in(of.datum, Some(&name), (fault == SupplyFault::NoMemory, why));
                self.fail_task(now, of.task, error, out);
            }
            SupplyFault::Broken | SupplyFault::NoMemory => self.supplies.strayed(copy, of.server),
            SupplyFault::Gone | SupplyFault::Unreachable => self.supply_copy(copy, of, out),
        }
    }

    /// Tells a server that this client is the source of a copy. The server then requests it, so that it can report
    /// another failure.
    pub(super) fn supply_copy(&mut self, copy: DatumId, of: ArgumentCopy, out: &mut Vec<Effect>) {
        let Some(run) = self.data.get(&of.datum) else { return };
        let supply = Supply::direct(copy, run.meta.clone(), self.config.id, String::new(), 1);
        self.contacts.post(of.server, TaskToServer::Resupply { supplies: vec![supply] }, out);
    }

    /// Handles the arrival of a copy at its server. Returns the report as one about the original datum.
    pub(super) fn copy_arrived(&mut self, now: Time, report: TransferReport) -> TransferReport {
        let Some(of) = self.supplies.copies.get(report.datum) else { return report };
        self.supplies.arrived(report.datum, report.to);
        self.supplies.copies.arrived(report.datum);
        if self.queues.waits_for_data(of.task, of.server) {
            self.queue_if_ready(now, of.task);
        }
        TransferReport { datum: of.datum, ..report }
    }

    /// Handles a failed task on a stateless server, which will not send its results. They may be elsewhere.
    pub(super) fn await_no_more(&mut self, task: &Task, server: NodeId, out: &mut Vec<Effect>) {
        for output in &task.outputs {
            let Some(run) = self.data.get_mut(&output.datum) else { continue };
            if run.fetching == Some(server) {
                run.fetching = None;
                if !run.holders.is_empty() && self.is_to_come_here(output.datum) {
                    self.fetch_here(output.datum, out);
                }
            }
        }
    }

    /// Handles the end of a task on a stateless server: needed results whose transfer was interrupted are recomputed.
    pub(super) fn make_broken_off(&mut self, now: Time, task: &Task, out: &mut Vec<Effect>) {
        for datum in task.outputs.iter().map(|output| output.datum) {
            let is_lost = self.data.get(&datum).is_some_and(|run| {
                let is_needed = run.wanted || run.pending > 0 || !run.fetchers.is_empty();
                is_needed && !run.here && run.holders.is_empty()
            });
            if is_lost {
                self.missing(now, datum, "its transfer to the client was interrupted", out);
            }
        }
    }

    /// Drops the copies of tasks that have ended.
    pub(super) fn drop_copies(&mut self, out: &mut Vec<Effect>) {
        for copy in self.supplies.copies.take_over() {
            self.supplies.forget_datum(copy);
            out.push(Effect::DropDatum { datum: copy });
        }
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
