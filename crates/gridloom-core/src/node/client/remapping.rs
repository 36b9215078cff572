//! Maps the rest of a group again when the assumptions of its plan have changed.
//!
//! ```text
//! agent ──Stale──▶ client ──Recall──▶ its servers
//!                  client ◀──Recalled (tasks that do not run)── its servers
//!                  client ──MapGroup──▶ agent
//! ```
//! Of a declared group only the calls that have not been made yet are mapped again. The session does that when it is
//! notified (`PlanStale`).
//!
//! Running tasks continue where they are; their remaining time counts as busy time in the new plan. Remapping happens
//! only as often as it pays: it may take only a small part of the remaining time ([`REMAP_PART_MAX`]). Then that part
//! of the time must pass before the next remapping, and twice as much before each further one.

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use super::graph::{DatumState, TaskState};
use crate::node::message::TaskToServer;
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::limits::REMAP_PART_MAX;
use gridloom_base::time::{ns_to_seconds, seconds_to_ns};
use gridloom_base::{GroupId, Level, NodeId, TaskId, Time};
use gridloom_map::MappingMethod;
use gridloom_perf::LinkModel;

/// Heuristics whose plans are not remapped, because they do not depend on times.
const STATIC_HEURISTICS: [&str; 2] = ["round-robin", "random"];

/// The remapping state of a group.
#[derive(Debug, Default)]
pub(super) struct Remapping {
    /// Servers that were asked to return tasks and have not answered.
    asked: BTreeSet<NodeId>,
    /// Duration of its last mapping in nanoseconds.
    map_ns: u64,
    /// How often it was recalled.
    times: u32,
    /// No remapping before this time.
    pause_until: Time,
    /// Predicted end of its last plan.
    end: Time,
    /// Bandwidths of the client's links when it was last mapped or last found stale.
    links: BTreeMap<NodeId, f64>,
}

impl Remapping {
    /// True if servers were asked to return tasks and have not answered.
    pub(super) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// True if that server was asked to return tasks and has not answered.
    pub(super) fn is_asked_of(&self, server: NodeId) -> bool {
        self.asked.contains(&server)
    }

    /// True if the last remapping was too recent for another one.
    pub(super) fn is_paused(&self, now: Time) -> bool {
        now < self.pause_until
    }

    /// Records a new plan, which is based on these bandwidths.
    fn planned(&mut self, now: Time, map_ns: u64, makespan_s: f64, links: BTreeMap<NodeId, f64>) {
        self.map_ns = map_ns;
        self.end = now + seconds_to_ns(makespan_s);
        self.links = links;
        self.pause_until = self.pause_until.max(now + map_ns);
    }

    /// Records that these servers are asked to return tasks. `left_s` is the predicted time until the group ends.
    fn begin(&mut self, now: Time, servers: BTreeSet<NodeId>, left_s: f64) {
        self.asked = servers;
        let pause_s = REMAP_PART_MAX * left_s * f64::from(self.times).exp2();
        self.times += 1;
        self.pause_until = now + seconds_to_ns(pause_s);
    }

    /// Records that a server has answered or is lost. Returns true if it was the last one that had not answered.
    fn answered(&mut self, server: NodeId) -> bool {
        self.asked.remove(&server) && self.asked.is_empty()
    }

    /// Records another estimate of the link to a server. Returns the factor between the two, if the plan is based on
    /// another one.
    pub(super) fn link_changed(&mut self, server: NodeId, model: &LinkModel) -> Option<f64> {
        let before = self.links.get_mut(&server)?;
        let change = model.change_from(*before)?;
        *before *= change;
        Some(change)
    }
}

/// True if plans of that heuristic are not remapped.
pub(super) fn is_static_heuristic(heuristic: &MappingMethod) -> bool {
    STATIC_HEURISTICS.contains(&heuristic.spec().split('[').next().unwrap_or_default())
}

impl Client {
    /// Handles a new plan.
    pub(super) fn planned(&mut self, now: Time, group: GroupId, map_ns: u64, makespan_s: f64) {
        if let Some(remapping) = self.plans.remapping(group) {
            let estimates = self.links.estimates().iter();
            remapping.planned(
                now,
                map_ns,
                makespan_s,
                estimates.map(|(server, link)| (*server, link.bandwidth)).collect(),
            );
        }
    }

    pub(super) fn on_stale(&mut self, now: Time, group: GroupId, why: &str, out: &mut Vec<Effect>) {
        if self.plans.is_renewable(group) {
            // The session knows which of its calls have been made.
            out.push(Effect::Emit(Event::PlanStale { group, why: why.to_string() }));
            return;
        }
        let Some(remapping) = self.plans.to_remap(now, group) else { return };
        let left = self.graph.at_servers(group);
        let Some(work_s) = self.open_work_s(&left) else { return };
        let left_s = work_s.max(ns_to_seconds(remapping.end.since(now)));
        // One round trip for the tasks and another one for the plan.
        let latency_s = left
            .keys()
            .filter_map(|node| self.links.estimates().get(node))
            .map(|link| link.latency_s)
            .fold(0.0, f64::max);
        let cost_s = ns_to_seconds(remapping.map_ns) + 4.0 * latency_s;
        if cost_s > REMAP_PART_MAX * left_s {
            return;
        }
        let text = format!("the rest of {group} is mapped again");
        out.push(LogLine::new(Level::Info, Category::Client, text).why(why).into());
        let remapping = self.plans.remapping(group).expect("found above");
        remapping.begin(now, left.keys().copied().collect(), left_s);
        for (server, tasks) in left {
            self.contacts.post(server, TaskToServer::Recall { group: Some(group), tasks }, out);
        }
    }

    pub(super) fn on_recalled(
        &mut self,
        now: Time,
        from: NodeId,
        group: GroupId,
        tasks: &[TaskId],
        running: &[(TaskId, u64)],
        out: &mut Vec<Effect>,
    ) {
        for id in tasks {
            if self.graph.task(*id).is_some_and(|run| run.group() == group) {
                self.queues.remove(now, *id);
                self.unassign(*id, from);
            }
        }
        for (id, ns) in running {
            self.graph.began(*id, from, now - *ns);
        }
        self.recall_answered(now, from, group, out);
    }

    /// Marks a task that a server has returned as unmapped. Returns false if it was not at that server.
    pub(super) fn unassign(&mut self, id: TaskId, from: NodeId) -> bool {
        let was_there = self.graph.returned(id, from);
        if was_there {
            self.supplies.copies.end(id);
        }
        was_there
    }

    /// Handles a lost server: groups stop waiting for its answer.
    pub(super) fn recalls_lost(&mut self, now: Time, server: NodeId, out: &mut Vec<Effect>) {
        for group in self.plans.recalled_from(server) {
            self.recall_answered(now, server, group, out);
        }
    }

    fn recall_answered(&mut self, now: Time, server: NodeId, group: GroupId, out: &mut Vec<Effect>) {
        if self.plans.remapping(group).is_some_and(|remapping| remapping.answered(server)) {
            let tasks = self.graph.unmapped(group);
            if !tasks.is_empty() {
                self.request_map(now, group, tasks, out);
            }
        }
    }

    /// Returns a lower bound for the seconds until the last of those servers has finished its tasks, or `None` if no
    /// task is left to move.
    fn open_work_s(&self, left: &BTreeMap<NodeId, Vec<TaskId>>) -> Option<f64> {
        let seconds = left.iter().filter_map(|(server, tasks)| {
            let view = &self.directory.grid.servers[self.directory.grid.server(*server)?];
            let waiting = tasks.len().saturating_sub(view.slots as usize);
            let total: f64 = tasks.iter().filter_map(|id| self.task_s(*server, self.graph.task(*id)?)).sum();
            (waiting > 0).then_some(total / f64::from(view.slots.max(1)))
        });
        seconds.reduce(f64::max)
    }

    fn task_s(&self, server: NodeId, run: &TaskState) -> Option<f64> {
        let view = &self.directory.grid.servers[self.directory.grid.server(server)?];
        let bytes_of = |datum| self.graph.datum(datum).map_or(0, DatumState::size_bytes);
        view.task_seconds(run.task().name(), run.task().size(bytes_of))
    }

    /// Like [`Client::busy`], for the calls that follow the plan of a declared group.
    pub(super) fn busy_following(&self, now: Time, plan: GroupId) -> Vec<(NodeId, f64)> {
        self.plans.following(plan).flat_map(|group| self.busy(now, group)).collect()
    }

    /// Returns for how long the group's sent tasks keep their servers busy, with one entry per task.
    pub(super) fn busy(&self, now: Time, group: GroupId) -> Vec<(NodeId, f64)> {
        let mut busy = Vec::new();
        for (server, tasks) in self.graph.at_servers(group) {
            for run in tasks.iter().filter_map(|id| self.graph.task(*id)) {
                let ran_s = run.since().map_or(0.0, |since| ns_to_seconds(now.since(since)));
                if let Some(seconds) =
                    self.task_s(server, run).map(|seconds| seconds - ran_s).filter(|left| *left > 0.0)
                {
                    busy.push((server, seconds));
                }
            }
        }
        busy
    }
}
