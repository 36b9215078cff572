//! Queries about the graph. They change nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{DatumState, TaskGraph, TaskState};
use crate::graph::{Group, Source, Task};
use gridloom_base::{DatumId, GroupId, NodeId, TaskError, TaskId};

impl TaskGraph {
    pub(in crate::node::client) fn task(&self, id: TaskId) -> Option<&TaskState> {
        self.tasks.get(&id)
    }

    pub(in crate::node::client) fn datum(&self, id: DatumId) -> Option<&DatumState> {
        self.data.get(&id)
    }

    /// Returns the data that the program has requested and that have not arrived, with the servers from which they were
    /// requested.
    pub(in crate::node::client) fn wanted(&self) -> impl Iterator<Item = (DatumId, Option<NodeId>)> {
        self.data.iter().filter(|(_, datum)| datum.wanted && !datum.here).map(|(id, datum)| (*id, datum.fetching))
    }

    /// Returns the numbers of remembered tasks and data.
    pub(in crate::node::client) fn len(&self) -> (usize, usize) {
        (self.tasks.len(), self.data.len())
    }

    /// Returns the groups with remembered tasks.
    pub(in crate::node::client) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.keys().copied()
    }

    /// Returns the server to which a datum's task was sent, if the task has not ended.
    pub(in crate::node::client) fn producer_server(&self, datum: &DatumState) -> Option<NodeId> {
        self.tasks.get(&datum.producer?)?.server()
    }

    /// True if a datum's task has ended, or the datum came from the program.
    pub(in crate::node::client) fn is_made(&self, datum: DatumId) -> bool {
        self.producer_of(datum).is_none_or(|task| !task.is_open())
    }

    /// True if a datum's task has not been sent to a server.
    pub(in crate::node::client) fn is_unplaced(&self, datum: DatumId) -> bool {
        self.producer_of(datum).is_some_and(TaskState::is_unmapped)
    }

    fn producer_of(&self, datum: DatumId) -> Option<&TaskState> {
        self.tasks.get(&self.data.get(&datum)?.producer?)
    }

    /// True if the program or a server requested a datum from the client.
    pub(in crate::node::client) fn is_requested(&self, datum: DatumId) -> bool {
        self.data.get(&datum).is_some_and(DatumState::is_requested)
    }

    /// True if tasks are at a server, or a datum is on its way from there to the client.
    pub(in crate::node::client) fn uses(&self, server: NodeId) -> bool {
        self.tasks.values().any(|task| task.is_at(server))
            || self.data.values().any(|datum| datum.fetching == Some(server))
    }

    /// Returns the tasks of a group that are not mapped, in the order of the calls.
    pub(in crate::node::client) fn unmapped(&self, group: GroupId) -> Vec<TaskId> {
        let unmapped = self.tasks.iter().filter(|(_, task)| task.group == group && task.is_unmapped());
        unmapped.map(|(id, _)| *id).collect()
    }

    /// Returns the tasks of a group that were sent and have not ended, by server.
    pub(in crate::node::client) fn at_servers(&self, group: GroupId) -> BTreeMap<NodeId, Vec<TaskId>> {
        let mut at: BTreeMap<NodeId, Vec<TaskId>> = BTreeMap::new();
        for (id, task) in self.tasks.iter().filter(|(_, task)| task.group == group) {
            if let Some(server) = task.server() {
                at.entry(server).or_default().push(*id);
            }
        }
        at
    }

    /// Returns the groups of these tasks.
    pub(in crate::node::client) fn groups_of(&self, tasks: &[TaskId]) -> BTreeSet<GroupId> {
        tasks.iter().filter_map(|id| self.tasks.get(id)).map(|task| task.group).collect()
    }

    /// Returns the servers at which tasks read a datum or will.
    pub(in crate::node::client) fn readers_at(&self, datum: &DatumState) -> BTreeSet<NodeId> {
        datum.consumers.iter().filter_map(|task| self.tasks.get(task)?.server()).collect()
    }

    /// Returns the tasks at a server that read a datum.
    pub(in crate::node::client) fn readers_of(&self, datum: DatumId, server: NodeId) -> Vec<TaskId> {
        let consumers = self.data.get(&datum).into_iter().flat_map(|datum| &datum.consumers).copied();
        consumers.filter(|id| self.tasks.get(id).is_some_and(|task| task.is_at(server))).collect()
    }

    /// Returns the data that are neither in the client's store nor on their way to it.
    pub(in crate::node::client) fn elsewhere(&self) -> impl Iterator<Item = DatumId> {
        self.data.iter().filter(|(_, datum)| datum.fetching.is_none() && !datum.here).map(|(id, _)| *id)
    }

    /// Returns the data that are needed and have no copy, and are not finally lost.
    pub(in crate::node::client) fn gone(&self) -> Vec<DatumId> {
        let gone = |datum: &DatumState| datum.is_needed() && !datum.has_copy() && datum.error.is_none();
        self.data.iter().filter(|(_, datum)| gone(datum)).map(|(id, _)| *id).collect()
    }

    /// Returns the total size of the data that a task reads and produces.
    pub(in crate::node::client) fn bytes_of(&self, task: &Task) -> u64 {
        let read: BTreeSet<DatumId> = task.inputs().collect();
        let read = read.iter().filter_map(|datum| self.data.get(datum)).map(DatumState::size_bytes);
        let made = task.outputs.iter().map(|output| output.meta.size_bytes());
        read.chain(made).fold(0, u64::saturating_add)
    }

    /// Returns the error of a task's first argument that is not available.
    pub(in crate::node::client) fn input_error(&self, id: TaskId) -> Option<TaskError> {
        self.tasks.get(&id)?.task.inputs().find_map(|datum| match self.data.get(&datum) {
            None => Some(TaskError::DatumLost { datum, why: "it was released before this call".into() }),
            Some(state) => state.error.clone().map(|error| nested_error(state.producer, error)),
        })
    }

    /// Returns where a datum is, or will be after its task has run.
    pub(in crate::node::client) fn location(&self, id: DatumId) -> Option<Vec<NodeId>> {
        let datum = self.data.get(&id)?;
        let mut at: Vec<NodeId> = datum.holders.iter().copied().collect();
        if datum.here && !id.is_shared() {
            at.push(self.me);
        }
        if at.is_empty() {
            at.extend(self.producer_server(datum));
        }
        (!at.is_empty()).then_some(at)
    }

    /// Returns the inputs of those tasks that were produced and have no copy any more.
    pub(in crate::node::client) fn inputs_without_location(&self, tasks: &[TaskId]) -> Vec<DatumId> {
        let inputs: BTreeSet<DatumId> = tasks.iter().flat_map(|task| self.tasks[task].task.inputs()).collect();
        inputs.into_iter().filter(|datum| self.location(*datum).is_none() && self.is_made(*datum)).collect()
    }

    /// Returns the part of a group that consists of those tasks, or `None` if one reads a datum without a location.
    pub(in crate::node::client) fn part(&self, id: GroupId, tasks: &[TaskId]) -> Option<Group> {
        let made: BTreeSet<DatumId> =
            tasks.iter().flat_map(|task| self.tasks[task].task.outputs.iter().map(|output| output.datum)).collect();
        let mut sources = BTreeMap::new();
        for datum in tasks.iter().flat_map(|task| self.tasks[task].task.inputs()) {
            if !made.contains(&datum) && !sources.contains_key(&datum) {
                let meta = self.data[&datum].meta.clone();
                sources.insert(datum, Source { meta, at: self.location(datum)? });
            }
        }
        let wanted = made.iter().copied().filter(|datum| self.data[datum].presumed || self.data[datum].wanted);
        Some(Group {
            id,
            wanted: wanted.collect(),
            tasks: tasks.iter().map(|task| (*self.tasks[task].task).clone()).collect(),
            sources,
        })
    }
}

/// Returns the error of a task whose argument will not arrive.
pub(in crate::node::client) fn nested_error(producer: Option<TaskId>, error: TaskError) -> TaskError {
    match (producer, error) {
        (_, nested @ TaskError::DependencyFailed { .. }) => nested,
        (Some(task), error) => TaskError::DependencyFailed { task, why: error.to_string() },
        (None, error) => error,
    }
}
