//! Groups of a session: planned, run, reported and forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, GroupId, NodeId, TaskError, TaskId, Time};
use gridloom_core::graph;
use gridloom_core::node::message::{TaskReport, TransferReport};

use crate::plan::PlanRecord;
use crate::report::{GroupProgress, GroupRecord, GroupTimes, Summary, TaskEnd};

/// Groups that the program can still query, groups that have not ended, and what is kept of others.
#[derive(Default)]
pub(crate) struct Groups {
    records: BTreeMap<GroupId, GroupRecord>,
    of_task: BTreeMap<TaskId, GroupId>,
    of_datum: BTreeMap<DatumId, GroupId>,
    /// Groups whose plans are requested; `plans` has the answers.
    plan_requests: BTreeSet<GroupId>,
    plans: BTreeMap<GroupId, Result<PlanRecord, TaskError>>,
    /// Declared groups whose plans are based on outdated facts.
    stale: BTreeSet<GroupId>,
    keeps: Retention,
    /// Summaries of forgotten groups, if they are kept.
    summaries: BTreeMap<GroupId, Summary>,
    /// Unread errors of forgotten groups.
    unread: UnreadErrors,
}

/// What is kept of a group that has ended and that the program can no longer query.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Retention {
    #[default]
    Nothing,
    /// Its summary, for a simulation's report.
    Summaries,
    /// All, for a timeline.
    Records,
}

impl Groups {
    pub(crate) fn new(keeps: Retention) -> Groups {
        Groups { keeps, ..Groups::default() }
    }

    pub(crate) fn of_task(&self, task: TaskId) -> Option<&GroupRecord> {
        self.records.get(self.of_task.get(&task)?)
    }

    /// Stores a plan for a group; the group's record converts it.
    pub(crate) fn on_planned(&mut self, group: GroupId, plan: impl FnOnce(&mut GroupRecord) -> PlanRecord) {
        let Some(record) = self.records.get_mut(&group) else { return };
        let plan = plan(record);
        if self.plan_requests.remove(&group) {
            self.plans.insert(group, Ok(plan));
        }
    }

    pub(crate) fn on_stale(&mut self, group: GroupId) {
        if self.records.contains_key(&group) {
            self.stale.insert(group);
        }
    }

    pub(crate) fn on_not_mapped(&mut self, group: GroupId, error: TaskError) {
        self.plan_requests.remove(&group);
        self.plans.insert(group, Err(error));
    }

    pub(crate) fn on_task_ended(&mut self, at: Time, server: Option<NodeId>, report: TaskReport) {
        if let Some(record) = self.of_task.get(&report.task).and_then(|group| self.records.get_mut(group)) {
            record.task_ended(TaskEnd { at, server, report });
        }
    }

    pub(crate) fn on_transferred(&mut self, at: Time, report: TransferReport) {
        if let Some(record) = self.of_datum.get(&report.datum).and_then(|group| self.records.get_mut(group)) {
            record.transferred(at, report);
        }
    }

    pub(crate) fn on_ended(&mut self, group: GroupId, at: Time) {
        let Some(record) = self.records.get_mut(&group) else { return };
        record.ended(at);
        if record.is_unreachable {
            self.forget(group);
        }
    }

    /// Notes that a server is lost, and that these tasks run again.
    pub(crate) fn on_server_lost(&mut self, name: &str, why: &str, again: &[TaskId]) {
        let mut by_group: BTreeMap<GroupId, Vec<TaskId>> = BTreeMap::new();
        for task in again {
            if let Some(group) = self.of_task.get(task) {
                by_group.entry(*group).or_default().push(*task);
            }
        }
        for (group, tasks) in by_group {
            if let Some(record) = self.records.get_mut(&group) {
                record.server_lost(name, why, &tasks);
            }
        }
    }

    /// Called when the program has read why a datum was not made. It now knows of failures in the datum's group, and in
    /// the group of the call that failed first.
    pub(crate) fn note_error_read(&mut self, datum: DatumId, error: &TaskError) {
        let root = match error {
            TaskError::DependencyFailed { task, .. } => self.of_task.get(task).copied(),
            _ => None,
        };
        let groups: Vec<GroupId> = self.of_datum.get(&datum).copied().into_iter().chain(root).collect();
        self.note_failures_read(&groups);
    }

    pub(crate) fn note_failures_read(&mut self, groups: &[GroupId]) {
        for group in groups {
            if let Some(record) = self.records.get_mut(group) {
                record.is_failure_known = true;
            }
        }
    }

    /// Remembers a group that is about to run. `plan` is the declared group whose plan it follows.
    pub(crate) fn remember(&mut self, group: &graph::Group, plan: Option<GroupId>) {
        let mut record = GroupRecord::of(group);
        record.follows_plan_of = plan.and_then(|plan| Some((plan, self.records.get(&plan)?.planned_at()?)));
        for task in &group.tasks {
            self.of_task.insert(task.id, group.id);
        }
        let made = group.tasks.iter().flat_map(|task| &task.outputs).map(|output| output.datum);
        for datum in made.chain(group.sources.keys().copied()) {
            self.of_datum.entry(datum).or_insert_with(|| {
                record.data.push(datum);
                group.id
            });
        }
        self.records.insert(group.id, record);
    }

    /// Begins to wait for the plan of a group.
    pub(crate) fn begin_plan(&mut self, group: &graph::Group) {
        self.records.insert(group.id, GroupRecord::of(group));
        self.plan_requests.insert(group.id);
    }

    /// Takes the plan of a group, or why there is none, once it was received.
    pub(crate) fn take_plan(&mut self, group: GroupId) -> Option<Result<PlanRecord, TaskError>> {
        self.plans.remove(&group)
    }

    /// Takes the record of a group.
    pub(crate) fn take_record(&mut self, group: GroupId) -> Option<GroupRecord> {
        self.records.remove(&group)
    }

    /// Notes that a declared group was planned: its calls will be groups of their own.
    pub(crate) fn only_planned(&mut self, group: GroupId) {
        self.records.get_mut(&group).expect("inserted to ask for it").mark_only_planned();
    }

    /// Ends a repeated planning of a declared group: its former record continues, with the new plan if there is one.
    pub(crate) fn planned_again(&mut self, group: GroupId, former: Option<GroupRecord>) {
        let again = self.records.remove(&group);
        if let Some(mut former) = former {
            again.into_iter().for_each(|again| former.planned_again(again));
            self.records.insert(group, former);
        }
    }

    /// Returns whether the plan of a declared group is based on outdated facts, and clears that mark.
    pub(crate) fn take_stale(&mut self, group: GroupId) -> bool {
        self.stale.remove(&group)
    }

    /// The tasks of a group that have not ended.
    pub(crate) fn unfinished(&self, group: GroupId) -> Vec<TaskId> {
        self.records.get(&group).map(|record| record.unfinished()).unwrap_or_default()
    }

    /// True if the group's tasks have completed or failed; a forgotten group has ended.
    pub(crate) fn has_ended(&self, group: GroupId) -> bool {
        self.records.get(&group).is_none_or(GroupRecord::has_ended)
    }

    pub(crate) fn first_error(&self, group: GroupId) -> Option<TaskError> {
        self.records.get(&group).and_then(GroupRecord::first_error)
    }

    /// Total progress of groups, or only of some of their tasks. A forgotten group has ended.
    pub(crate) fn progress(&self, groups: &[GroupId], only: Option<&[TaskId]>) -> GroupProgress {
        let records = groups.iter().filter_map(|group| self.records.get(group));
        let none = GroupProgress { calls: 0, ended: 0, failed: 0, is_over: true };
        records.map(|record| record.progress(only)).fold(none, |sum, one| GroupProgress {
            calls: sum.calls + one.calls,
            ended: sum.ended + one.ended,
            failed: sum.failed + one.failed,
            is_over: sum.is_over && one.is_over,
        })
    }

    /// Returns the times so far of a group that was mapped.
    pub(crate) fn times(&self, group: GroupId) -> Option<GroupTimes> {
        self.records.get(&group).and_then(GroupRecord::course)
    }

    /// Called when the program can no longer query the group: it is forgotten when it has ended.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.stale.remove(&group);
        let Some(record) = self.records.get_mut(&group) else { return };
        if !record.has_ended() {
            record.is_unreachable = true;
            return;
        }
        self.unread.add(record);
        if self.keeps == Retention::Records {
            return;
        }
        let record = self.records.remove(&group).expect("found above");
        if self.keeps == Retention::Summaries {
            self.summaries.extend(record.summary().map(|summary| (group, summary)));
            extend_summary(&mut self.summaries, &record);
        }
        for datum in &record.data {
            self.of_datum.remove(datum);
        }
        for task in record.tasks() {
            self.of_task.remove(task);
        }
    }

    /// Heuristic, predicted and measured makespan of all groups that ran, forgotten or not.
    pub(crate) fn summaries(&self) -> BTreeMap<GroupId, Summary> {
        let mut all = self.summaries.clone();
        all.extend(self.records.iter().filter_map(|(id, group)| Some((*id, group.summary()?))));
        self.records.values().for_each(|group| extend_summary(&mut all, group));
        all
    }

    /// The remembered groups.
    pub(crate) fn records(&self) -> &BTreeMap<GroupId, GroupRecord> {
        &self.records
    }

    pub(crate) fn take_records(&mut self) -> BTreeMap<GroupId, GroupRecord> {
        std::mem::take(&mut self.records)
    }

    /// Number of calls that have not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.records.values().map(GroupRecord::under_way).sum()
    }

    /// Numbers of groups, of their tasks and of their data.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.records.len(), self.of_task.len(), self.of_datum.len())
    }

    /// Takes errors that the program did not read: of forgotten groups, or of all.
    pub(crate) fn take_unread(&mut self, all: bool) -> UnreadErrors {
        if all {
            self.records.values_mut().for_each(|record| self.unread.add(record));
        }
        std::mem::take(&mut self.unread)
    }

    pub(crate) fn check(&self) {
        let mut named = self.of_task.values().chain(self.of_datum.values());
        assert!(named.all(|group| self.records.contains_key(group)), "tasks and data are forgotten with their group");
        assert!(self.keeps == Retention::Summaries || self.summaries.is_empty(), "summaries are of a simulation");
    }
}

/// Extends the measured time of a declared group by a call that followed its plan.
fn extend_summary(summaries: &mut BTreeMap<GroupId, Summary>, record: &GroupRecord) {
    let Some(((plan, start), end)) = record.follows_plan_of.zip(record.last_end()) else { return };
    if let Some((_, _, measured_s)) = summaries.get_mut(&plan) {
        *measured_s = measured_s.max(ns_to_seconds(end.since(start)));
    }
}

/// Unread errors of calls in groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnreadErrors {
    /// Number of failed calls.
    pub count: usize,
    /// The first of their errors, one line each.
    pub first: Vec<String>,
}

impl UnreadErrors {
    fn add(&mut self, record: &mut GroupRecord) {
        for line in record.unread_failures() {
            self.count += 1;
            // If a group could not be mapped, all its calls have the same error.
            if self.first.len() < LINES_MAX && !self.first.contains(&line) {
                self.first.push(line);
            }
        }
        record.is_failure_known = true;
    }
}

impl fmt::Display for UnreadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnreadErrors { count, first } = self;
        write!(
            f,
            "{count} call{} in groups failed, and their errors were not read",
            if *count == 1 { "" } else { "s" }
        )?;
        first.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        if *count > first.len() { write!(f, "\n  and {} more", count - first.len()) } else { Ok(()) }
    }
}

/// Maximum number of errors listed; further ones are only counted.
const LINES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_core::graph::{Output, Task, TaskKind};
    use gridloom_core::node::message::TaskTimes;

    fn group(serial: u64) -> graph::Group {
        let client = NodeId(1);
        let datum = DatumId { client, serial: serial + 2 };
        let task = Task {
            id: TaskId { client, serial: serial + 1 },
            kind: TaskKind::call("f", 0),
            args: Vec::new(),
            outputs: vec![Output { datum, meta: gridloom_base::Meta::Text { size_bytes: 1 } }],
            work_flops: None,
            options: Default::default(),
        };
        let (id, tasks) = (GroupId { client, serial }, vec![task]);
        graph::Group { id, tasks, sources: BTreeMap::new(), wanted: Vec::new() }
    }

    fn failed(task: TaskId) -> TaskReport {
        let error = TaskError::DeadlineExceeded { limit_seconds: 1.0 };
        TaskReport { task, outcome: Err(error), timing: TaskTimes { run_ns: 0, age_ns: 0 } }
    }

    #[test]
    fn a_group_is_forgotten_when_it_has_ended_with_its_tasks_and_data() {
        let (one, two) = (group(10), group(20));
        let mut groups = Groups::new(Retention::Nothing);
        groups.remember(&one, None);
        groups.remember(&two, None);
        groups.forget(one.id);
        groups.check();
        assert_eq!(groups.counts(), (2, 2, 2), "it has not ended");
        groups.on_task_ended(Time::default(), None, failed(one.tasks[0].id));
        groups.on_ended(one.id, Time::default());
        groups.check();
        assert_eq!(groups.counts(), (1, 1, 1));
        assert_eq!(groups.take_unread(false).count, 1);
    }

    #[test]
    fn an_error_that_was_read_is_not_reported_again() {
        let group = group(10);
        let mut groups = Groups::new(Retention::Nothing);
        groups.remember(&group, None);
        groups.on_task_ended(Time::default(), None, failed(group.tasks[0].id));
        groups.note_error_read(group.tasks[0].outputs[0].datum, &TaskError::Cancelled);
        assert_eq!(groups.take_unread(true).count, 0);
    }
}
