//! Mapping again what is left of a group, when what its plan rests on has changed.
//!
//! ```text
//! agent ──Stale──▶ client ──Recall──▶ its servers
//!                  client ◀──Recalled (what does not run)── its servers
//!                  client ──MapGroup──▶ agent
//! ```
//! Of a described group only the calls that have not come are mapped again, by the session: it is told (`PlanStale`).
//!
//! Tasks that run go on where they are; what they will take counts as busy time in the new plan. Not more often than it
//! pays: mapping again takes no more than a small part of the time that is left ([`REMAP_PART_MAX`]), and then that part of it
//! passes before the next time, twice as much before each further one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Client, Status, TaskRun};
use crate::node::message::TaskToServer;
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::limits::REMAP_PART_MAX;
use gridloom_base::time::{ns_to_seconds, seconds_to_ns};
use gridloom_base::{GroupId, Level, NodeId, TaskId, Time};
use gridloom_map::MapBy;

/// Plans of these are kept as they are: they were not made from times.
const STEADFAST: [&str; 2] = ["round-robin", "random"];

/// How a group has been mapped again.
#[derive(Debug, Default)]
pub(super) struct Remapping {
    /// Servers that were asked to give its tasks back and have not answered.
    asked: BTreeSet<NodeId>,
    /// Nanoseconds that its last mapping took.
    map_ns: u64,
    /// How often it was called back.
    times: u32,
    /// Not before.
    pause_until: Time,
    /// When its last plan is predicted to be done.
    end: Time,
    /// Bandwidths of the client's links when it was mapped last, or was last found stale.
    pub(super) links: BTreeMap<NodeId, f64>,
}

impl Remapping {
    /// Whether servers were asked to give tasks back and have not answered.
    pub(super) fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }
}

/// Whether plans of that heuristic are kept as they are.
pub(super) fn is_steadfast(heuristic: &MapBy) -> bool {
    STEADFAST.contains(&heuristic.spec().split('[').next().unwrap_or_default())
}

impl Client {
    /// A plan has come.
    pub(super) fn planned(&mut self, now: Time, group: GroupId, map_ns: u64, makespan_s: f64) {
        if let Some(run) = self.groups.get_mut(&group) {
            run.remapping.map_ns = map_ns;
            run.remapping.end = now + seconds_to_ns(makespan_s);
            run.remapping.links =
                self.links.estimates().iter().map(|(server, link)| (*server, link.bandwidth)).collect();
            run.remapping.pause_until = run.remapping.pause_until.max(now + map_ns);
        }
    }

    pub(super) fn on_stale(&mut self, now: Time, group: GroupId, why: &str, out: &mut Vec<Effect>) {
        if self.following.groups.contains(&group) {
            // The session knows which of its calls have come.
            out.push(Effect::Emit(Event::PlanStale { group, why: why.to_string() }));
            return;
        }
        let Some(run) = self.groups.get(&group) else { return };
        // A caller that gives a plan wants that one.
        let is_steadfast = run.is_given || is_steadfast(&run.heuristic);
        let is_idle = run.mapping.is_none() && run.remapping.asked.is_empty() && run.question.is_none();
        if !is_idle || is_steadfast || now < run.remapping.pause_until {
            return;
        }
        let left = self.left_at(group);
        let Some(work_s) = self.left_s(&left) else { return };
        let left_s = work_s.max(ns_to_seconds(run.remapping.end.since(now)));
        // There and back for the tasks, and once more for the plan.
        let latency_s = left
            .keys()
            .filter_map(|node| self.links.estimates().get(node))
            .map(|link| link.latency_s)
            .fold(0.0, f64::max);
        let cost_s = ns_to_seconds(self.groups[&group].remapping.map_ns) + 4.0 * latency_s;
        if cost_s > REMAP_PART_MAX * left_s {
            return;
        }
        let text = format!("what is left of {group} is mapped again");
        out.push(LogLine::new(Level::Info, Category::Client, text).why(why).into());
        let run = self.groups.get_mut(&group).expect("found above");
        run.remapping.asked = left.keys().copied().collect();
        let pause_s = REMAP_PART_MAX * left_s * f64::from(run.remapping.times).exp2();
        run.remapping.times += 1;
        run.remapping.pause_until = now + seconds_to_ns(pause_s);
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
            if self.tasks.get(id).is_some_and(|run| run.group == group) {
                self.queues.remove(now, *id);
                self.take_back(*id, from);
            }
        }
        for (id, ns) in running {
            if let Some(run) = self.tasks.get_mut(id).filter(|run| run.status == Status::Sent(from)) {
                run.since = Some(now - *ns);
            }
        }
        self.no_more_asked(now, from, group, out);
    }

    /// A task that a server has given back has no place. False if it was not there.
    pub(super) fn take_back(&mut self, id: TaskId, from: NodeId) -> bool {
        let Some(run) = self.tasks.get_mut(&id).filter(|run| run.status == Status::Sent(from)) else { return false };
        run.status = Status::Unmapped;
        run.attempts = run.attempts.saturating_sub(1);
        self.supplies.copies.end(id);
        for output in &run.task.outputs {
            if let Some(data) = self.data.get_mut(&output.datum).filter(|data| data.fetching == Some(from)) {
                data.fetching = None;
            }
        }
        true
    }

    /// A server was lost: groups that wait for its answer wait no more.
    pub(super) fn recalls_lost(&mut self, now: Time, server: NodeId, out: &mut Vec<Effect>) {
        let groups: Vec<GroupId> =
            self.groups.iter().filter(|(_, run)| run.remapping.asked.contains(&server)).map(|(id, _)| *id).collect();
        for group in groups {
            self.no_more_asked(now, server, group, out);
        }
    }

    fn no_more_asked(&mut self, now: Time, server: NodeId, group: GroupId, out: &mut Vec<Effect>) {
        let Some(run) = self.groups.get_mut(&group) else { return };
        if run.remapping.asked.remove(&server) && run.remapping.asked.is_empty() {
            let is_unmapped = |run: &TaskRun| run.group == group && run.status == Status::Unmapped;
            let tasks: Vec<TaskId> = self.tasks.iter().filter(|(_, run)| is_unmapped(run)).map(|(id, _)| *id).collect();
            if !tasks.is_empty() {
                self.request_map(now, group, tasks, out);
            }
        }
    }

    /// Tasks of a group that were sent out and have not ended, by server.
    fn left_at(&self, group: GroupId) -> BTreeMap<NodeId, Vec<TaskId>> {
        let mut left: BTreeMap<NodeId, Vec<TaskId>> = BTreeMap::new();
        for (id, run) in self.tasks.iter().filter(|(_, run)| run.group == group) {
            if let Status::Sent(server) = run.status {
                left.entry(server).or_default().push(*id);
            }
        }
        left
    }

    /// Seconds until the last of those servers has worked off its tasks, at the least; `None` if nothing is left to move.
    fn left_s(&self, left: &BTreeMap<NodeId, Vec<TaskId>>) -> Option<f64> {
        let seconds = left.iter().filter_map(|(server, tasks)| {
            let view = &self.directory.grid.servers[self.directory.grid.server(*server)?];
            let waiting = tasks.len().saturating_sub(view.slots as usize);
            let total: f64 = tasks.iter().filter_map(|id| self.task_s(*server, &self.tasks[id])).sum();
            (waiting > 0).then_some(total / f64::from(view.slots.max(1)))
        });
        seconds.reduce(f64::max)
    }

    fn task_s(&self, server: NodeId, run: &TaskRun) -> Option<f64> {
        let view = &self.directory.grid.servers[self.directory.grid.server(server)?];
        let bytes_of = |datum| self.data.get(&datum).map_or(0, |known| known.meta.size_bytes());
        view.task_seconds(run.task.name(), run.task.size(bytes_of))
    }

    /// The same for the calls that follow the plan of a described group.
    pub(super) fn busy_following(&self, now: Time, plan: GroupId) -> Vec<(NodeId, f64)> {
        let follow = self.groups.iter().filter(|(_, run)| run.follows == Some(plan));
        follow.flat_map(|(group, _)| self.busy(now, *group)).collect()
    }

    /// For how long tasks of the group that are out keep their servers busy, an entry a task.
    pub(super) fn busy(&self, now: Time, group: GroupId) -> Vec<(NodeId, f64)> {
        let mut busy = Vec::new();
        for (server, tasks) in self.left_at(group) {
            for run in tasks.iter().map(|id| &self.tasks[id]) {
                let ran_s = run.since.map_or(0.0, |since| ns_to_seconds(now.since(since)));
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
