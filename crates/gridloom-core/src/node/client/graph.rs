//! The client's graph: the tasks of its groups, the data that connect them, and the copies of these data. It is the
//! lineage from which lost results are recomputed.
//!
//! The rest of the client asks about tasks and data ([`TaskGraph::task`], [`TaskGraph::datum`]) and reports facts: a
//! task was sent, has ended or has failed, a copy exists or is lost, the program holds a handle or has released it.
//! The graph returns what follows from a fact. It sends nothing, and knows neither servers nor plans.
//!
//! A task is forgotten when it can never have to run again: its results have arrived, or nobody wants them any more. A
//! datum is forgotten when nobody needs it and no remembered task reads or produces it.
//!
//! **Invariants**, checked by [`TaskGraph::check`]:
//! - the producer and the consumers of a datum are remembered tasks;
//! - `pending` of a datum is the number of its consumers that have not ended;
//! - `left` of a group is the number of its tasks that have not ended, `remembered` that of its remembered tasks;
//! - `missing` of a task is at most the number of its inputs.

mod datum;
mod facts;
mod queries;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::graph::{Group, Task};
use gridloom_base::limits::TASK_ATTEMPTS_MAX;
use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId, Time};

pub(super) use datum::DatumState;
pub(super) use facts::{Availability, FailedTask, ServerLoss, Unneeded, Waiters};
pub(super) use queries::nested_error;
pub(super) use task::{LostServer, Status, TaskState};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct TaskGraph {
    /// The client.
    me: NodeId,
    tasks: BTreeMap<TaskId, TaskState>,
    data: BTreeMap<DatumId, DatumState>,
    groups: BTreeMap<GroupId, TaskCounts>,
}

/// Numbers of tasks of a group.
#[derive(Debug)]
struct TaskCounts {
    /// Tasks that have not ended.
    left: usize,
    /// Tasks that are not forgotten.
    remembered: usize,
}

impl TaskGraph {
    /// Creates the empty graph of that client.
    pub(super) fn new(me: NodeId) -> TaskGraph {
        TaskGraph { me, tasks: BTreeMap::new(), data: BTreeMap::new(), groups: BTreeMap::new() }
    }

    // ---- facts about tasks

    /// Adds a group that the program has made.
    pub(super) fn add(&mut self, group: Group) {
        let (id, count) = (group.id, group.tasks.len());
        for (datum, source) in group.sources {
            self.data.entry(datum).or_insert_with(|| DatumState::new(source.meta, None, true));
        }
        for task in group.tasks {
            let task = Arc::new(task);
            for output in &task.outputs {
                self.data.insert(output.datum, DatumState::new(output.meta.clone(), Some(task.id), false));
            }
            for datum in task.inputs() {
                if let Some(datum) = self.data.get_mut(&datum)
                    && datum.consumers.insert(task.id)
                {
                    datum.pending += 1;
                }
            }
            self.tasks.insert(task.id, TaskState::new(task, id));
        }
        for datum in group.wanted {
            if let Some(datum) = self.data.get_mut(&datum) {
                datum.presumed = true;
            }
        }
        self.groups.insert(id, TaskCounts { left: count, remembered: count });
    }

    /// Records that a task is sent to a server. Returns false if it does not wait for that.
    pub(super) fn sent(&mut self, id: TaskId, server: NodeId) -> bool {
        let Some(task) = self.tasks.get(&id).filter(|task| task.is_unmapped()) else { return false };
        let inputs: BTreeSet<DatumId> = task.task.inputs().collect();
        let missing = inputs.iter().filter(|datum| !self.is_made(**datum)).count() as u32;
        let task = self.tasks.get_mut(&id).expect("found above");
        task.status = Status::Sent(server);
        task.attempts += 1;
        task.since = None;
        task.missing = missing;
        true
    }

    /// Records that a server has returned a task. Returns false if the task was not there.
    pub(super) fn returned(&mut self, id: TaskId, from: NodeId) -> bool {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_at(from)) else { return false };
        task.status = Status::Unmapped;
        task.attempts = task.attempts.saturating_sub(1);
        for output in &task.task.outputs {
            if let Some(datum) = self.data.get_mut(&output.datum).filter(|datum| datum.fetching == Some(from)) {
                datum.fetching = None;
            }
        }
        true
    }

    /// Records when a task at a server began to run.
    pub(super) fn began(&mut self, id: TaskId, server: NodeId, since: Time) {
        if let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_at(server)) {
            task.since = Some(since);
        }
    }

    /// Records a failure of a task that will be repeated.
    pub(super) fn will_repeat(&mut self, id: TaskId, server: NodeId, error: &TaskError) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.failures.push(server, error);
        }
    }

    /// Records that a task at a server has produced its results. The server keeps them, or, if it is stateless, sends
    /// them to the client. [`TaskGraph::made`] notifies its readers of each result, and [`TaskGraph::ended`] its
    /// inputs.
    pub(super) fn done(
        &mut self,
        id: TaskId,
        server: NodeId,
        results: &[(DatumId, Meta)],
        is_stateless: bool,
    ) -> Option<(Arc<Task>, GroupId)> {
        let task = self.tasks.get_mut(&id)?;
        task.status = Status::Done;
        task.attempts = 0;
        task.lost_with = None;
        for (datum, meta) in results {
            if let Some(datum) = self.data.get_mut(datum).filter(|datum| datum.producer == Some(id)) {
                datum.meta = meta.clone();
                // A result that a stateless server is sending counts as stored, unless its transfer was interrupted.
                if !is_stateless || (!datum.here && datum.fetching == Some(server)) {
                    datum.holders.insert(server);
                }
            }
        }
        Some((task.task.clone(), task.group))
    }

    /// Records that a datum was produced. Returns the tasks that were sent before and have all their inputs now.
    pub(super) fn made(&mut self, datum: DatumId) -> Vec<TaskId> {
        let mut ready = Vec::new();
        for id in self.data.get(&datum).into_iter().flat_map(|datum| &datum.consumers) {
            let Some(task) = self.tasks.get_mut(id).filter(|task| task.missing > 0) else { continue };
            task.missing -= 1;
            if task.missing == 0 {
                ready.push(*id);
            }
        }
        ready
    }

    /// Records that a task has failed, unless it has ended. [`TaskGraph::ended`] notifies its inputs.
    pub(super) fn failed(&mut self, id: TaskId, error: &TaskError) -> Option<FailedTask> {
        let run = self.tasks.get_mut(&id).filter(|task| task.is_open())?;
        let server = run.server();
        run.status = Status::Failed(error.clone());
        Some(FailedTask { task: run.task.clone(), group: run.group, server })
    }

    /// Records that an ended task no longer reads its inputs. Returns true if it was the last of its group.
    pub(super) fn ended(&mut self, inputs: &BTreeSet<DatumId>, group: GroupId) -> bool {
        for datum in inputs {
            if let Some(datum) = self.data.get_mut(datum) {
                datum.pending -= 1;
            }
        }
        let counts = self.groups.get_mut(&group).expect("a task's group is known");
        counts.left -= 1;
        counts.left == 0
    }

    /// Forgets a group without tasks. Returns false if it has any.
    pub(super) fn forget_if_empty(&mut self, group: GroupId) -> bool {
        let is_empty = self.groups.get(&group).is_some_and(|counts| counts.remembered == 0);
        if is_empty {
            self.groups.remove(&group);
        }
        is_empty
    }

    /// Records that a task which had produced its results must run again. Returns its inputs, which must exist again.
    pub(super) fn restarted(&mut self, id: TaskId) -> Vec<DatumId> {
        let task = self.tasks.get_mut(&id).expect("the producer of a datum is remembered");
        task.status = Status::Unmapped;
        self.groups.get_mut(&task.group).expect("a task's group is known").left += 1;
        let inputs: BTreeSet<DatumId> = task.task.inputs().collect();
        let known = |datum: &DatumId| self.data.get_mut(datum).map(|datum| datum.pending += 1).is_some();
        inputs.into_iter().filter(known).collect()
    }

    // ---- facts about copies

    /// Records that a server has a datum.
    pub(super) fn copy_added(&mut self, datum: DatumId, server: NodeId) {
        if let Some(datum) = self.data.get_mut(&datum) {
            datum.holders.insert(server);
        }
    }

    /// Records that a server does not have a datum. Returns true if no copy is known any more.
    pub(super) fn copy_removed(&mut self, datum: DatumId, server: NodeId) -> bool {
        let Some(datum) = self.data.get_mut(&datum) else { return false };
        datum.holders.remove(&server);
        !datum.has_copy()
    }

    /// Records the description and the holders of a shared datum that the program has found.
    pub(super) fn found(&mut self, datum: DatumId, meta: &Meta, holders: impl Iterator<Item = NodeId>) {
        let datum = self.data.entry(datum).or_insert_with(|| DatumState::new(meta.clone(), None, false));
        (datum.held, datum.error) = (true, None);
        datum.holders.extend(holders);
    }

    /// Records holders of a shared datum. Returns true if it has any now, so that it is not lost.
    pub(super) fn located(&mut self, datum: DatumId, holders: impl Iterator<Item = NodeId>) -> bool {
        let Some(datum) = self.data.get_mut(&datum) else { return false };
        datum.holders.extend(holders);
        let is_found = !datum.holders.is_empty();
        if is_found {
            datum.error = None;
        }
        is_found
    }

    /// Records that a server sends a datum to the client, unless it is here or another server sends it.
    pub(super) fn fetch_begun(&mut self, datum: DatumId, from: NodeId) {
        if let Some(datum) = self.data.get_mut(&datum).filter(|datum| !datum.here) {
            datum.fetching.get_or_insert(from);
        }
    }

    /// Records that a server does not send a datum to the client any more. Returns false if it did not.
    pub(super) fn fetch_ended(&mut self, datum: DatumId, from: NodeId) -> bool {
        let Some(datum) = self.data.get_mut(&datum).filter(|datum| datum.fetching == Some(from)) else { return false };
        datum.fetching = None;
        true
    }

    /// Records that a datum has arrived at the client. `from` is its sender if that is stateless, and keeps no copy.
    /// Returns the servers that requested it from the client.
    pub(super) fn arrived(&mut self, datum: DatumId, meta: &Meta, from: Option<NodeId>) -> Option<BTreeSet<NodeId>> {
        let datum = self.data.get_mut(&datum)?;
        datum.meta = meta.clone();
        datum.here = true;
        datum.fetching = None;
        from.iter().for_each(|from| _ = datum.holders.remove(from));
        Some(std::mem::take(&mut datum.fetchers))
    }

    /// Records that a server requests a datum from the client: it does not have it, whatever was reported before.
    pub(super) fn requested_by(&mut self, datum: DatumId, server: NodeId) {
        if let Some(datum) = self.data.get_mut(&datum) {
            datum.fetchers.insert(server);
            datum.holders.remove(&server);
        }
    }

    /// Records that the program requests a datum.
    pub(super) fn requested(&mut self, id: DatumId) -> Availability {
        match self.data.get_mut(&id) {
            None => {
                let why = "it was released, or never produced".into();
                Availability::Lost(TaskError::DatumLost { datum: id, why })
            }
            // A result that has arrived is kept, whatever happens to a later run of its task.
            Some(datum) if datum.here => Availability::Here(datum.meta.clone()),
            Some(DatumState { error: Some(error), .. }) => Availability::Lost(error.clone()),
            Some(datum) => {
                datum.wanted = true;
                Availability::Awaited
            }
        }
    }

    /// Records that the program's request for a datum is answered. Returns false if there was none.
    pub(super) fn answered(&mut self, datum: DatumId) -> bool {
        self.data.get_mut(&datum).is_some_and(|datum| std::mem::take(&mut datum.wanted))
    }

    /// Records that a datum is finally lost. Returns those that wait for it.
    pub(super) fn lost(&mut self, datum: DatumId, error: &TaskError) -> Waiters {
        let Some(datum) = self.data.get_mut(&datum) else { return Waiters::default() };
        datum.error = Some(error.clone());
        Waiters { servers: std::mem::take(&mut datum.fetchers), program: std::mem::take(&mut datum.wanted) }
    }

    /// Records that the program has released a datum. With `is_fleeting` no copy may outlive its readers.
    pub(super) fn released(&mut self, datum: DatumId, is_fleeting: bool) {
        if let Some(datum) = self.data.get_mut(&datum) {
            datum.held = false;
            datum.presumed = false;
            // Nobody can wait for it any more. A datum that was requested from a server still arrives.
            datum.wanted &= datum.fetching.is_some();
            datum.is_fleeting |= is_fleeting;
        }
    }

    /// Gives up the copy of a datum at one node, if there is one and there are others. Returns it.
    pub(super) fn give_up(&mut self, id: DatumId, at: NodeId) -> Option<Unneeded> {
        let datum = self.data.get_mut(&id)?;
        let is_alone = datum.holders.len() + usize::from(datum.here) < 2;
        if is_alone || datum.has_fetchers() {
            return None;
        }
        match at == self.me {
            true => std::mem::take(&mut datum.here).then_some(Unneeded::OwnCopy(id)),
            false => datum.holders.remove(&at).then_some(Unneeded::Copy(id, at)),
        }
    }

    /// Records that a server is lost, with its copies and its tasks.
    pub(super) fn server_lost(&mut self, lost: &LostServer) -> ServerLoss {
        let (mut loss, server) = (ServerLoss::default(), lost.node);
        for (id, datum) in &mut self.data {
            if datum.holders.remove(&server) && !datum.has_copy() {
                // It may be requested much later: the report then names the server that was lost with it.
                if let Some(task) = datum.producer.and_then(|id| self.tasks.get_mut(&id)) {
                    task.lost_with = Some(lost.clone());
                }
            }
            if datum.fetchers.remove(&server) {
                loss.unasked.push(*id);
            }
            if datum.fetching == Some(server) {
                datum.fetching = None;
                loss.broken_off.push(*id);
            }
        }
        for (id, run) in &mut self.tasks {
            // A task is lost with the server if it is bound to it by more than the caller's choice.
            let is_bound = run.task.options.bound_to == Some(server) && run.task.object().is_some();
            if run.is_at(server) {
                run.status = Status::Unmapped;
                run.lost_with = Some(lost.clone());
                loss.stopped.push(*id);
                let is_hopeless = is_bound || run.attempts >= TASK_ATTEMPTS_MAX;
                if is_hopeless { loss.hopeless.push(*id) } else { loss.again.push(*id) }
            } else if run.task.options.bound_to == Some(server) && run.is_unmapped() && !is_bound {
                run.lost_with = Some(lost.clone());
            } else if is_bound && run.is_unmapped() {
                loss.hopeless.push(*id);
                loss.unplanned.insert(run.group);
            }
        }
        loss
    }

    // ---- forgetting

    /// Forgets everything that nobody needs any more, from this datum upwards, and returns it in order.
    pub(super) fn tidy(&mut self, datum: DatumId) -> Vec<Unneeded> {
        let mut unneeded = Vec::new();
        self.tidy_from(datum, &mut unneeded);
        unneeded
    }

    /// Forgets an ended task, if it will not have to run again, and everything that nobody needs then.
    pub(super) fn tidy_task(&mut self, id: TaskId) -> Vec<Unneeded> {
        let (mut unneeded, mut unread) = (Vec::new(), Vec::new());
        self.forget_if_settled(id, &mut unread, &mut unneeded);
        unread.into_iter().for_each(|datum| self.tidy_from(datum, &mut unneeded));
        unneeded
    }

    fn tidy_from(&mut self, datum: DatumId, unneeded: &mut Vec<Unneeded>) {
        let mut work = vec![datum];
        while let Some(id) = work.pop() {
            let Some(datum) = self.data.get_mut(&id) else { continue };
            if datum.held || datum.is_needed() {
                // It is still needed; but a result that has arrived no longer needs its task.
                if let Some(producer) = datum.producer.filter(|_| datum.here || datum.error.is_some()) {
                    self.forget_if_settled(producer, &mut work, unneeded);
                }
                continue;
            }
            if datum.is_fleeting && datum.error.is_none() {
                let why = "it was erased after its use, as requested".into();
                datum.error = Some(TaskError::DatumLost { datum: id, why });
                if std::mem::take(&mut datum.here) {
                    unneeded.push(Unneeded::OwnCopy(id));
                }
            }
            unneeded.extend(std::mem::take(&mut datum.holders).into_iter().map(|holder| Unneeded::Copy(id, holder)));
            if let Some(producer) = datum.producer {
                self.forget_if_settled(producer, &mut work, unneeded);
            }
            let Some(datum) = self.data.get(&id) else { continue };
            if datum.producer.is_none() && datum.consumers.is_empty() {
                if datum.here {
                    unneeded.push(Unneeded::OwnCopy(id));
                }
                self.data.remove(&id);
                unneeded.push(Unneeded::Datum(id));
            }
        }
    }

    /// Forgets a task that will not have to run again. Its data are examined next.
    fn forget_if_settled(&mut self, id: TaskId, work: &mut Vec<DatumId>, unneeded: &mut Vec<Unneeded>) {
        let Some(run) = self.tasks.get(&id).filter(|run| !run.is_open()) else { return };
        let is_settled = |datum: &DatumState| {
            datum.here || datum.error.is_some() || (!datum.held && !datum.wanted && datum.consumers.is_empty())
        };
        if !run.task.outputs.iter().all(|output| self.data.get(&output.datum).is_none_or(is_settled)) {
            return;
        }
        let run = self.tasks.remove(&id).expect("found above");
        for output in &run.task.outputs {
            if let Some(datum) = self.data.get_mut(&output.datum) {
                datum.producer = None;
                work.push(output.datum);
            }
        }
        for input in run.task.inputs() {
            if let Some(datum) = self.data.get_mut(&input)
                && datum.consumers.remove(&id)
            {
                work.push(input);
            }
        }
        if let Some(counts) = self.groups.get_mut(&run.group) {
            counts.remembered -= 1;
            if counts.remembered == 0 && counts.left == 0 {
                self.groups.remove(&run.group);
                unneeded.push(Unneeded::Group(run.group));
            }
        }
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        let mut counts: BTreeMap<GroupId, (usize, usize)> = BTreeMap::new();
        let mut pending: BTreeMap<DatumId, usize> = BTreeMap::new();
        for (id, run) in &self.tasks {
            assert!(self.groups.contains_key(&run.group), "the group of {id} is forgotten");
            let (left, remembered) = counts.entry(run.group).or_default();
            *remembered += 1;
            let inputs: BTreeSet<DatumId> = run.task.inputs().collect();
            assert!(run.missing as usize <= inputs.len(), "missing inputs of {id}");
            if run.is_open() {
                *left += 1;
                inputs.into_iter().for_each(|datum| *pending.entry(datum).or_default() += 1);
            }
        }
        for (id, group) in &self.groups {
            let (left, remembered) = counts.get(id).copied().unwrap_or_default();
            assert_eq!((group.left, group.remembered), (left, remembered), "open and remembered tasks of {id}");
        }
        for (id, datum) in &self.data {
            assert_eq!(datum.pending, pending.get(id).copied().unwrap_or(0), "open readers of {id}");
            let tasks = datum.producer.iter().chain(&datum.consumers);
            tasks.for_each(|task| assert!(self.tasks.contains_key(task), "{task}, of {id}, is forgotten"));
        }
    }
}

#[cfg(test)]
mod tests;
