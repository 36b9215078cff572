//! Tasks that follow an existing plan: calls of a declared group, which are placed as they are made.
//!
//! The agent has mapped the whole group and is not asked again. The client may know the locations of data better by
//! now: it uses the plan's sources while they are available, and others otherwise. A task is mapped by itself if its
//! server is lost.

use std::collections::BTreeMap;

use super::Client;
use super::graph::TaskState;
use super::plans::Mapping;
use crate::node::message::MapToAgent;
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, GroupId, NodeId, TaskError, TaskId, Time};
use gridloom_map::{Assignment, Plan, Transfer};

/// The plan's server for some tasks and the sources of their inputs, as far as the plan has them.
#[derive(Clone, Debug)]
pub(super) struct PlannedPlace {
    pub(super) server: NodeId,
    pub(super) from: BTreeMap<DatumId, NodeId>,
}

/// Data to be sent to servers once they have a location, by the tasks that send them.
#[derive(Debug, Default)]
pub(super) struct UnplacedData(Vec<(GroupId, Vec<TaskId>, PlannedPlace)>);

impl UnplacedData {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Client {
    /// Sends tasks to their server in a plan, or has them mapped if that is impossible.
    pub(super) fn place(
        &mut self,
        now: Time,
        id: GroupId,
        tasks: Vec<TaskId>,
        placed: &PlannedPlace,
        out: &mut Vec<Effect>,
    ) {
        // A task that reads a failed datum has already failed itself.
        let is_open = |task: &TaskId| self.graph.task(*task).is_some_and(TaskState::is_unmapped);
        let tasks: Vec<TaskId> = tasks.into_iter().filter(is_open).collect();
        if tasks.is_empty() {
            return;
        }
        let is_there = !self.contacts.is_lost(placed.server) && self.directory.grid.server(placed.server).is_some();
        let part = self.graph.part(id, &tasks).filter(|_| is_there);
        let Some(part) = part else {
            if is_there && tasks.iter().all(|task| self.is_placement(*task)) {
                self.place_later(now, id, tasks, placed, out);
            } else {
                let (placements, tasks): (Vec<TaskId>, Vec<TaskId>) =
                    tasks.into_iter().partition(|task| self.is_placement(*task));
                for task in placements {
                    self.cannot_place(now, task, Some(placed.server), out);
                }
                self.request_map(now, id, tasks, out);
            }
            return;
        };
        let outlined = part.outline();
        let mut transfers = Vec::new();
        for (index, datum) in outlined.data.iter().enumerate() {
            let Some(source) = part.sources.get(datum).filter(|source| !source.at.contains(&placed.server)) else {
                continue;
            };
            let planned = placed.from.get(datum).filter(|from| !self.contacts.is_lost(**from));
            let known = source.at.iter().find(|holder| self.can_send(**holder, placed.server));
            transfers.push(Transfer {
                datum: index as u32,
                // The catalog knows best which source to use for a shared datum: the server asks it.
                from: *planned
                    .or(if datum.is_shared() { Some(&placed.server) } else { known })
                    .unwrap_or(&self.config.id),
                to: placed.server,
                size_bytes: source.meta.size_bytes(),
                start_s: 0.0,
                end_s: 0.0,
                method: self.names.method_of(*datum),
            });
        }
        let assignment = Assignment { server: placed.server, start_s: 0.0, end_s: 0.0 };
        let plan = Plan {
            heuristic: String::new(),
            tasks: vec![assignment; tasks.len()],
            transfers,
            makespan_s: 0.0,
            lower_bound_s: 0.0,
            guesses: Vec::new(),
        };
        let mapping = Mapping {
            round: 0,
            asked: None,
            tasks,
            names: outlined.names(),
            data: outlined.data,
            vain: Default::default(),
        };
        self.dispatch(now, &plan, &mapping, out);
        self.after_dispatch(now, out);
    }

    /// Defers tasks whose inputs have no location yet.
    fn place_later(
        &mut self,
        now: Time,
        id: GroupId,
        tasks: Vec<TaskId>,
        placed: &PlannedPlace,
        out: &mut Vec<Effect>,
    ) {
        let lost = self.graph.inputs_without_location(&tasks);
        self.unplaced.0.push((id, tasks, placed.clone()));
        for datum in lost {
            self.recover_datum(now, datum, "no server holds it any more", out);
        }
    }

    /// Fails a task that could run only on one server, which is not available.
    pub(super) fn cannot_place(&mut self, now: Time, id: TaskId, server: Option<NodeId>, out: &mut Vec<Effect>) {
        let Some(run) = self.graph.task(id).filter(|run| run.is_unmapped()) else { return };
        let function = run.task().function_lost_with_server();
        let lost = run.lost_with().map(|lost| (lost.name.clone(), lost.why.clone()));
        // The program may know the server from a directory that is older than its loss.
        let lost = lost.or_else(|| self.contacts.why_missing(server?));
        let error = match lost {
            Some((server, why)) => TaskError::ServerLost { function, server, why, is_bound: false },
            None => TaskError::NotMapped { why: "the server for the data is not in the grid".into() },
        };
        self.fail_task(now, id, error, out);
    }

    /// Retries deferred tasks.
    pub(super) fn place_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        for (id, tasks, placed) in std::mem::take(&mut self.unplaced.0) {
            self.place(now, id, tasks, &placed, out);
        }
    }

    /// True if data can be sent directly from a node to a server, as far as is known. Otherwise they are sent through
    /// the client.
    fn can_send(&self, from: NodeId, to: NodeId) -> bool {
        let is_plain =
            |node| self.directory.grid.server(node).is_some_and(|at| self.directory.grid.servers[at].stateless);
        let is_server_way = !is_plain(from) && !is_plain(to) && !self.supplies.are_unreachable(to, from);
        from == self.config.id || (is_server_way && !self.contacts.is_lost(from))
    }

    /// Ends a plan: no more tasks will follow it, and its servers are no longer reserved.
    pub(super) fn on_end_plan(&mut self, group: GroupId, out: &mut Vec<Effect>) {
        self.plans.end(group);
        self.contacts.send_to_agent(MapToAgent::GroupEnded { group }, out);
    }
}
