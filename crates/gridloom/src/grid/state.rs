//! What a session knows: what has happened so far, as its client's machine told it.
//!
//! **Invariant:** an event is taken in once, under the session's lock, by [`State::absorb`]; nothing here waits or sends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_core::base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_core::idl::Signature;
use gridloom_core::node::Event;
use gridloom_core::node::message::TaskReport;
use gridloom_core::perf::{GridView, LinkReport};

use super::Traffic;
use super::call_backs::CallBacks;
use crate::backend::Backend;
use crate::plan::Basis;
use crate::report::{GroupRecord, PlanRecord};

#[derive(Default)]
pub(super) struct State {
    pub(super) grid: Arc<GridView>,
    pub(super) functions: Arc<Vec<Signature>>,
    pub(super) has_directory: bool,
    pub(super) agent_lost: Option<TaskError>,
    /// Plain calls under way; `Some` when ended.
    pub(super) calls: BTreeMap<TaskId, Option<EndedCall>>,
    /// Those whose end is to be noted, and those of them that ended since somebody looked.
    pub(super) noted: BTreeSet<TaskId>,
    pub(super) ends: Vec<TaskId>,
    /// Calls whose results nobody will collect.
    pub(super) abandoned: BTreeMap<TaskId, Vec<DatumId>>,
    /// Data that somebody waits for.
    pub(super) gets: BTreeMap<DatumId, Asked>,
    pub(super) groups: BTreeMap<GroupId, GroupRecord>,
    /// Of groups forgotten in a simulation, whose report tells of all.
    pub(super) summaries: BTreeMap<GroupId, (String, f64, f64)>,
    /// Of groups that are forgotten.
    pub(super) unread: Unread,
    pub(super) group_of_task: BTreeMap<TaskId, GroupId>,
    pub(super) group_of_datum: BTreeMap<DatumId, GroupId>,
    pub(super) plans: BTreeMap<GroupId, Result<PlanRecord, TaskError>>,
    /// The answer to the last question for links.
    pub(super) links: Option<Vec<LinkReport>>,
    /// Addresses of the servers that a session without an agent was given.
    pub(super) given: BTreeSet<String>,
    /// Without an agent: the server at each given address that has answered, or why it cannot be used.
    pub(super) ways: BTreeMap<String, Result<NodeId, String>>,
    /// Servers that were asked to tell what they have learned, which the directory has not yet.
    pub(super) untold: BTreeSet<NodeId>,
    pub(super) names: BTreeMap<NodeId, String>,
    pub(super) traffic: Traffic,
    pub(super) log: Vec<String>,
    pub(super) call_backs: CallBacks,
    /// Objects that live on each server.
    pub(super) objects: BTreeMap<NodeId, i32>,
}

/// A plain call that has ended.
pub(super) struct EndedCall {
    /// When its client learned of it.
    pub(super) at: Time,
    /// The server that had it last.
    pub(super) server: Option<NodeId>,
    pub(super) report: TaskReport,
}

/// A datum that was asked for. It is forgotten with the last who waits for it.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) waiters: usize,
    /// Kept until each of them has seen it.
    pub(super) answer: Option<Result<Meta, TaskError>>,
}

impl State {
    /// Of all groups that ran, forgotten or not.
    pub(super) fn all_summaries(&self) -> BTreeMap<GroupId, (String, f64, f64)> {
        let mut groups = self.summaries.clone();
        groups.extend(self.groups.iter().filter_map(|(id, group)| Some((*id, group.summary()?))));
        self.groups.values().for_each(|group| lengthen(&mut groups, group));
        groups
    }

    /// Of the group that a task is of.
    pub(super) fn group_record(&self, task: TaskId) -> Option<&GroupRecord> {
        self.groups.get(self.group_of_task.get(&task)?)
    }

    /// An answer for all who wait for it; nobody may, if they gave up.
    fn answered(&mut self, datum: DatumId, answer: Result<Meta, TaskError>) {
        if let Some(asked) = self.gets.get_mut(&datum) {
            asked.answer = Some(answer);
        }
    }

    /// One of those who waited has the answer, or gives up.
    pub(super) fn seen(&mut self, datum: DatumId) {
        let asked = self.gets.get_mut(&datum).expect("who waits is counted");
        asked.waiters -= 1;
        if asked.waiters == 0 {
            self.gets.remove(&datum);
        }
    }

    /// Nobody can ask about the group any more: it is forgotten when it has ended.
    pub(super) fn forget_group(&mut self, group: GroupId, backend: &Backend) {
        let Some(record) = self.groups.get_mut(&group) else { return };
        if !record.has_ended() {
            record.is_unasked = true;
            return;
        }
        self.unread.add(record);
        // The page that is written at the end shows all groups.
        if backend.timeline_path().is_some() {
            return;
        }
        let record = self.groups.remove(&group).expect("found above");
        if backend.is_simulated() {
            self.summaries.extend(record.summary().map(|summary| (group, summary)));
            lengthen(&mut self.summaries, &record);
        }
        for datum in &record.data {
            self.group_of_datum.remove(datum);
        }
        for task in record.tasks() {
            self.group_of_task.remove(task);
        }
    }

    pub(super) fn take_unread(&mut self, all: bool) -> Unread {
        if all {
            self.groups.values_mut().for_each(|record| self.unread.add(record));
        }
        std::mem::take(&mut self.unread)
    }

    pub(super) fn absorb(&mut self, event: Event, client: NodeId, backend: &Backend) {
        match event {
            Event::Directory { grid, functions } => {
                for server in &grid.servers {
                    self.names.insert(server.node, server.name.clone());
                }
                self.names.entry(client).or_insert_with(|| "client".to_string());
                self.grid = grid;
                self.functions = functions;
                self.has_directory = true;
                self.agent_lost = None;
            }
            Event::Links { links } => self.links = Some(links),
            Event::Reached { address, server } => {
                self.ways.insert(address, Ok(server));
            }
            Event::NotReached { address, why } => {
                self.ways.insert(address, Err(why));
            }
            Event::ModelsKnown { server } => {
                self.untold.remove(&server);
            }
            // A server's.
            Event::Learned { .. } => {}
            Event::AgentLost { address, why } => self.agent_lost = Some(TaskError::AgentLost { address, why }),
            Event::GroupPlanned { at, group, plan, tasks, data, map_ns, seen } => {
                let names = &self.names;
                let record = self.groups.get_mut(&group);
                if let Some(record) = record {
                    let mut plan = record.planned(at, &plan, &tasks, &data, map_ns, names);
                    plan.basis = seen.map(|seen| Arc::new(Basis::new(seen, &tasks, &data)));
                    // Only a group that was asked to be planned is waited for here; the entry of another is dropped
                    // with its record.
                    if !self.group_of_task.contains_key(tasks.first().unwrap_or(&TaskId { client, serial: 0 })) {
                        self.plans.insert(group, Ok(plan));
                    }
                }
            }
            Event::GroupNotMapped { group, error } => {
                self.plans.insert(group, Err(error));
            }
            Event::CallsBack { server, call } => self.call_backs.came(server, call),
            Event::TaskEnded { at, server, report } => {
                self.call_backs.ended(report.task);
                if self.noted.remove(&report.task) {
                    self.ends.push(report.task);
                }
                if let Some(ended) = self.calls.get_mut(&report.task) {
                    *ended = Some(EndedCall { at, server, report });
                } else if let Some(outputs) = self.abandoned.remove(&report.task) {
                    outputs.iter().for_each(|datum| backend.forget(*datum));
                } else if let Some(record) =
                    self.group_of_task.get(&report.task).and_then(|group| self.groups.get_mut(group))
                {
                    record.task_ended(at, server, report);
                }
            }
            Event::Transferred { at, report } => {
                let is_client = report.from == client || report.to == client;
                let total = if is_client { &mut self.traffic.client_bytes } else { &mut self.traffic.server_bytes };
                *total += report.size_bytes;
                let name = |node: &NodeId| self.names.get(node).cloned().unwrap_or_else(|| node.to_string());
                let link = format!("{} -> {}", name(&report.from), name(&report.to));
                *self.traffic.by_link.entry(link).or_default() += report.size_bytes;
                if let Some(record) =
                    self.group_of_datum.get(&report.datum).and_then(|group| self.groups.get_mut(group))
                {
                    record.transferred(at, report);
                }
            }
            Event::GroupEnded { at, group } => {
                if let Some(record) = self.groups.get_mut(&group) {
                    record.ended(at);
                    if record.is_unasked {
                        self.forget_group(group, backend);
                    }
                }
            }
            Event::DatumHere { datum, meta } => self.answered(datum, Ok(meta)),
            Event::DatumLost { datum, error } => self.answered(datum, Err(error)),
            Event::ServerLost { name, why, again, .. } => {
                let groups: BTreeSet<GroupId> =
                    again.iter().filter_map(|task| self.group_of_task.get(task)).copied().collect();
                for group in groups {
                    if let Some(record) = self.groups.get_mut(&group) {
                        let count = again.iter().filter(|task| self.group_of_task.get(task) == Some(&group)).count();
                        record.server_lost(&name, &why, count);
                    }
                }
            }
            Event::Log(line) => {
                if self.log.len() < LOG_LINES_MAX {
                    self.log.push(line);
                }
            }
        }
    }
}

/// A call that took its place in a group's plan counts into that group's time.
fn lengthen(summaries: &mut BTreeMap<GroupId, (String, f64, f64)>, record: &GroupRecord) {
    let Some(((plan, start), end)) = record.follows.zip(record.last_end()) else { return };
    if let Some((_, _, measured_s)) = summaries.get_mut(&plan) {
        *measured_s = measured_s.max(end.seconds() - start.seconds());
    }
}

/// Errors of calls in groups that the program did not read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unread {
    /// How many calls failed.
    pub count: usize,
    /// The first of their errors, in a line each.
    pub first: Vec<String>,
}

impl Unread {
    fn add(&mut self, record: &mut GroupRecord) {
        for line in record.untold() {
            self.count += 1;
            // A group that was not mapped says the same of each of its calls.
            if self.first.len() < UNREAD_LINES_MAX && !self.first.contains(&line) {
                self.first.push(line);
            }
        }
        record.is_told = true;
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unread { count, first } = self;
        write!(f, "{count} call{} in groups failed, and nobody read why", if *count == 1 { "" } else { "s" })?;
        first.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        if *count > first.len() { write!(f, "\n  and {} more", count - first.len()) } else { Ok(()) }
    }
}

/// Lines kept for [`Grid::take_log`].
const LOG_LINES_MAX: usize = 10_000;
/// Errors that are told of calls that nobody asked about; the others are counted.
const UNREAD_LINES_MAX: usize = 10;
