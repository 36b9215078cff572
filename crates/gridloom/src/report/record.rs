//! A session's record of a group, built from events, and the report made from it.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, GroupId, NodeId, TaskError, TaskId, Time};
use gridloom_core::graph;
use gridloom_core::node::message::{TaskReport, TransferReport};
use gridloom_map::Plan;

use super::Report;
use super::dates::{Activity, Measured, consistent};
use crate::plan::{NamedPlan, PlanRecord, TaskRecord, TransferRecord};

/// How a task ended.
#[derive(Debug)]
pub(crate) struct TaskEnd {
    /// When the client received its report.
    pub(crate) at: Time,
    /// The server that had it last.
    pub(crate) server: Option<NodeId>,
    pub(crate) report: TaskReport,
}

impl TaskEnd {
    fn error(&self) -> Option<&TaskError> {
        self.report.outcome.as_ref().err()
    }
}

/// Times of a group's mapping and execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupTimes {
    /// Mapping time, seconds.
    pub(crate) map_s: f64,
    /// Predicted makespan, seconds.
    pub(crate) predicted_s: f64,
    /// Measured makespan, seconds, if the group has ended.
    pub(crate) measured_s: Option<f64>,
}

/// Heuristic, predicted and measured makespan of a group, seconds.
pub(crate) type Summary = (String, f64, f64);

/// Progress of the launched calls of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    pub calls: usize,
    /// Calls that have completed or failed.
    pub ended: usize,
    /// Calls that failed; included in `ended`.
    pub failed: usize,
    /// True if all have ended and all their reports were received.
    pub is_over: bool,
}

/// A session's record of a task.
#[derive(Debug)]
struct SessionTask {
    function: String,
    reads: Vec<DatumId>,
}

/// A session's record of a group.
#[derive(Debug)]
pub(crate) struct GroupRecord {
    tasks: BTreeMap<TaskId, SessionTask>,
    plans: Vec<(Time, PlanRecord)>,
    homes: ReturnTransfers,
    /// Where its tasks run according to the latest plan.
    servers: BTreeMap<TaskId, NodeId>,
    /// Ends of its tasks; a task that ran again has several.
    ends: Vec<TaskEnd>,
    /// Tasks that have ended and will not run again; `failed` has those of them that failed.
    over: BTreeSet<TaskId>,
    failed: BTreeSet<TaskId>,
    transfers: Vec<(Time, TransferReport)>,
    ended_at: Option<Time>,
    lost_servers: Vec<String>,
    tasks_again: usize,
    /// Data whose transfers are recorded here.
    pub(crate) data: Vec<DatumId>,
    /// True if the program can no longer query it.
    pub(crate) is_unreachable: bool,
    /// True if the program knows of a failure in it: a program that reads one error looks for the others.
    pub(crate) is_failure_known: bool,
    /// Set if its call takes a planned place of that declared group, which was planned at that time.
    pub(crate) follows_plan_of: Option<(GroupId, Time)>,
}

/// Transfers of results to the client in the first plan. They take place only if the program fetches the results.
#[derive(Debug, Default)]
struct ReturnTransfers {
    /// Large results, with the planned end of their transfers to the client, seconds from the start of the plan.
    ends_s: Vec<(DatumId, f64)>,
    /// Planned end of everything else.
    others_s: f64,
}

impl ReturnTransfers {
    fn of(plan: &Plan, client: Option<NodeId>, data: &[DatumId]) -> ReturnTransfers {
        let mut homes = ReturnTransfers::default();
        let mut others_s = plan.tasks.iter().map(|task| task.end_s).fold(0.0, f64::max);
        for transfer in &plan.transfers {
            // Smaller results are sent without a request.
            if Some(transfer.to) == client && transfer.size_bytes > EAGER_BYTES_MAX {
                homes.ends_s.push((data[transfer.datum as usize], transfer.end_s));
            } else {
                others_s = others_s.max(transfer.end_s);
            }
        }
        ReturnTransfers { others_s, ..homes }
    }
}

impl SessionTask {
    fn of(task: &graph::Task) -> SessionTask {
        SessionTask { function: task.name().to_string(), reads: task.inputs().collect() }
    }
}

impl GroupRecord {
    pub(crate) fn of(group: &graph::Group) -> GroupRecord {
        GroupRecord {
            tasks: group.tasks.iter().map(|task| (task.id, SessionTask::of(task))).collect(),
            plans: Vec::new(),
            homes: ReturnTransfers::default(),
            servers: BTreeMap::new(),
            ends: Vec::new(),
            over: BTreeSet::new(),
            failed: BTreeSet::new(),
            transfers: Vec::new(),
            ended_at: None,
            lost_servers: Vec::new(),
            tasks_again: 0,
            data: Vec::new(),
            is_unreachable: false,
            is_failure_known: false,
            follows_plan_of: None,
        }
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = &TaskId> {
        self.tasks.keys()
    }

    fn reads(&self, task: TaskId) -> &[DatumId] {
        self.tasks.get(&task).map_or(&[], |task| &task.reads)
    }

    fn function(&self, task: TaskId) -> String {
        self.tasks.get(&task).map(|task| task.function.clone()).unwrap_or_default()
    }

    pub(crate) fn planned(
        &mut self,
        at: Time,
        plan: &Plan,
        tasks: &[TaskId],
        (data, names): (&[DatumId], &BTreeMap<u32, String>),
        map_ns: u64,
        servers: &BTreeMap<NodeId, String>,
    ) -> PlanRecord {
        let named = NamedPlan {
            plan,
            client: tasks.first().map(|task| task.client),
            name: &|node| servers.get(&node).cloned().unwrap_or_else(|| node.to_string()),
            tasks: &|task| (tasks[task].serial.to_string(), self.function(tasks[task])),
            datum: &|datum| names.get(&(datum as u32)).cloned().unwrap_or_else(|| data[datum].serial.to_string()),
            map_s: ns_to_seconds(map_ns),
        };
        let record = named.record();
        if self.plans.is_empty() {
            self.homes = ReturnTransfers::of(plan, named.client, data);
        }
        self.plans.push((at, record.clone()));
        self.servers.extend(tasks.iter().copied().zip(plan.tasks.iter().map(|assignment| assignment.server)));
        self.ended_at = None;
        record
    }

    pub(crate) fn task_ended(&mut self, ended: TaskEnd) {
        let task = ended.report.task;
        self.over.insert(task);
        if ended.error().is_some() {
            self.failed.insert(task);
        } else {
            self.failed.remove(&task);
        }
        self.ends.push(ended);
    }

    /// Where a task runs, if that is decided.
    pub(crate) fn server_of(&self, task: TaskId) -> Option<NodeId> {
        self.servers.get(&task).copied()
    }

    /// The latest end of a task, which may run again.
    pub(crate) fn end_of(&self, task: TaskId) -> Option<&TaskEnd> {
        self.ends.iter().rev().find(|ended| ended.report.task == task)
    }

    pub(crate) fn transferred(&mut self, at: Time, report: TransferReport) {
        self.transfers.push((at, report));
    }

    pub(crate) fn ended(&mut self, at: Time) {
        self.ended_at = Some(at);
    }

    pub(crate) fn server_lost(&mut self, name: &str, why: &str, again: &[TaskId]) {
        // Results lost with the server may be requested one by one, with an event for each.
        let lost = format!("{name} ({why})");
        if !self.lost_servers.contains(&lost) {
            self.lost_servers.push(lost);
        }
        self.tasks_again += again.len();
        for task in again {
            self.over.remove(task);
            self.failed.remove(task);
        }
        // Tasks run again, so the recorded end is not valid.
        self.ended_at = None;
    }

    /// Returns its summary, if it was mapped.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let (start, plan) = self.plans.first().filter(|_| self.follows_plan_of.is_none())?;
        let end = self.last_end().unwrap_or(*start);
        Some((plan.heuristic.clone(), self.predicted_s(plan), ns_to_seconds(end.since(*start))))
    }

    /// The makespan of its first plan, seconds, without transfers to the client of results that the program has not fetched.
    fn predicted_s(&self, plan: &PlanRecord) -> f64 {
        let moved: BTreeSet<(DatumId, NodeId)> =
            self.transfers.iter().map(|(_, moved)| (moved.datum, moved.to)).collect();
        let client = self.tasks.keys().next().map(|task| task.client);
        let came = |datum: &DatumId| client.is_some_and(|client| moved.contains(&(*datum, client)));
        if self.homes.ends_s.iter().all(|(datum, _)| came(datum)) {
            return plan.makespan_seconds;
        }
        let came_s = self.homes.ends_s.iter().filter(|(datum, _)| came(datum)).map(|(_, end_s)| *end_s);
        came_s.fold(self.homes.others_s, f64::max)
    }

    /// Returns its times so far, if it was mapped.
    pub(crate) fn course(&self) -> Option<GroupTimes> {
        let (_, predicted_s, measured_s) = self.summary()?;
        let (_, plan) = self.plans.first()?;
        Some(GroupTimes { map_s: plan.map_seconds, predicted_s, measured_s: self.has_ended().then_some(measured_s) })
    }

    /// When the last of its tasks and transfers ended.
    pub(crate) fn last_end(&self) -> Option<Time> {
        self.ends.iter().map(|ended| ended.at).chain(self.transfers.iter().map(|(at, _)| *at)).max()
    }

    /// Notes that the group was only planned: its calls will be groups of their own.
    pub(crate) fn mark_only_planned(&mut self) {
        self.tasks.clear();
        self.homes = ReturnTransfers::default();
        self.ended_at = self.plans.first().map(|(at, _)| *at);
    }

    /// Notes that its remaining calls were planned again.
    pub(crate) fn planned_again(&mut self, again: GroupRecord) {
        self.plans.extend(again.plans);
    }

    pub(crate) fn planned_at(&self) -> Option<Time> {
        self.plans.first().map(|(at, _)| *at)
    }

    /// Progress of its tasks, or of the given ones.
    pub(crate) fn progress(&self, only: Option<&[TaskId]>) -> GroupProgress {
        let is_over = self.has_ended();
        match only {
            None => {
                GroupProgress { calls: self.tasks.len(), ended: self.over.len(), failed: self.failed.len(), is_over }
            }
            Some(tasks) => {
                let count = |set: &BTreeSet<TaskId>| tasks.iter().filter(|task| set.contains(task)).count();
                let calls = tasks.iter().filter(|task| self.tasks.contains_key(task)).count();
                GroupProgress { calls, ended: count(&self.over), failed: count(&self.failed), is_over }
            }
        }
    }

    pub(crate) fn under_way(&self) -> usize {
        self.tasks.len() - self.over.len()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    pub(crate) fn first_error(&self) -> Option<TaskError> {
        // A task cut off by the failure of another may be reported before that failure. The cause is the better answer.
        let errors = || self.ends.iter().filter_map(TaskEnd::error);
        errors().find(|error| !matches!(error, TaskError::DependencyFailed { .. })).or_else(|| errors().next()).cloned()
    }

    /// Failures unknown to the program, one line each. Cancelled tasks are left out, and tasks cut off by
    /// another failure.
    pub(crate) fn unread_failures(&self) -> impl Iterator<Item = String> {
        let errors = self.ends.iter().filter_map(TaskEnd::error);
        let news = errors.filter(|error| {
            !self.is_failure_known && !matches!(error, TaskError::DependencyFailed { .. } | TaskError::Cancelled)
        });
        news.map(|error| error.to_string().lines().next().unwrap_or_default().to_string())
    }

    pub(crate) fn unfinished(&self) -> Vec<TaskId> {
        let ended: BTreeSet<TaskId> = self.ends.iter().map(|ended| ended.report.task).collect();
        self.tasks.keys().filter(|task| !ended.contains(task)).copied().collect()
    }
}

/// The nodes on which groups ran.
pub(crate) struct ReportContext<'a> {
    pub(crate) clients: &'a [NodeId],
    /// Names of all nodes.
    pub(crate) names: &'a BTreeMap<NodeId, String>,
    /// Slots of the servers.
    pub(crate) slots: &'a BTreeMap<NodeId, u32>,
    pub(crate) is_simulated: bool,
}

impl Report {
    pub(crate) fn new<'a>(
        heuristic: &str,
        records: impl Iterator<Item = &'a GroupRecord>,
        setting: &ReportContext<'_>,
    ) -> Report {
        let name = |node: &NodeId| setting.names.get(node).cloned().unwrap_or_else(|| node.to_string());
        let records: Vec<&GroupRecord> = records.collect();
        let start = records.iter().filter_map(|r| r.plans.first()).map(|(at, _)| *at).min().unwrap_or_default();
        let mut report = Report {
            heuristic: heuristic.to_string(),
            simulated: setting.is_simulated,
            plans: Vec::new(),
            predicted_seconds: 0.0,
            not_measured: Vec::new(),
            measured_seconds: 0.0,
            client_bytes: 0,
            server_bytes: 0,
            by_link: BTreeMap::new(),
            tasks: Vec::new(),
            transfers: Vec::new(),
            lost_servers: Vec::new(),
            tasks_again: 0,
            tasks_failed: 0,
            differences: Vec::new(),
            together: 1,
        };
        let mut dates = consistent_dates(&records, start, setting).into_iter();
        let mut next = || dates.next().expect("each end and each transfer has its dates");
        for record in &records {
            let first = record.plans.first().filter(|_| record.follows_plan_of.is_none());
            report.predicted_seconds += first.map_or(0.0, |(_, plan)| record.predicted_s(plan));
            let not_measured = first.into_iter().flat_map(|(_, plan)| plan.not_measured.clone());
            report.not_measured.extend(not_measured);
            report.plans.extend(record.plans.iter().map(|(_, plan)| plan.clone()));
            report.lost_servers.extend(record.lost_servers.iter().cloned());
            report.tasks_again += record.tasks_again;
            for ended in &record.ends {
                let (start_seconds, end_seconds) = next();
                report.tasks_failed += usize::from(ended.error().is_some());
                report.tasks.push(TaskRecord {
                    task: ended.report.task.serial.to_string(),
                    function: record.function(ended.report.task),
                    server: ended.server.as_ref().map(name).unwrap_or_default(),
                    start_seconds,
                    end_seconds,
                    error: ended.error().map(ToString::to_string),
                });
            }
            for (_, moved) in &record.transfers {
                let (start_seconds, end_seconds) = next();
                let is_client = setting.clients.contains(&moved.from) || setting.clients.contains(&moved.to);
                *(if is_client { &mut report.client_bytes } else { &mut report.server_bytes }) += moved.size_bytes;
                let link = format!("{} -> {}", name(&moved.from), name(&moved.to));
                *report.by_link.entry(link).or_default() += moved.size_bytes;
                report.transfers.push(TransferRecord {
                    datum: moved.datum.serial.to_string(),
                    from: name(&moved.from),
                    to: name(&moved.to),
                    size_bytes: moved.size_bytes,
                    start_seconds,
                    end_seconds,
                });
            }
        }
        // A group that was never mapped has no start to count from.
        let end = records.iter().filter_map(|record| record.last_end()).max().filter(|_| !report.plans.is_empty());
        report.measured_seconds = end.map_or(0.0, |end| ns_to_seconds(end.since(start)));
        report
    }
}

/// Returns the start and end in seconds of each task and then each transfer of each record.
fn consistent_dates(records: &[&GroupRecord], start: Time, setting: &ReportContext<'_>) -> Vec<(f64, f64)> {
    let measured = |at: Time, run_ns: u64, what| {
        let end_ns = at.0 as i64 - start.0 as i64;
        Measured { start_ns: end_ns - run_ns as i64, end_ns, what }
    };
    let mut all: Vec<Measured<'_>> = Vec::new();
    for record in records {
        for TaskEnd { at, server, report } in &record.ends {
            let what = match (server, &report.outcome) {
                (Some(server), Ok(made)) => Activity::Task {
                    server: *server,
                    reads: record.reads(report.task),
                    made: made.iter().map(|(datum, _)| *datum).collect(),
                },
                (Some(server), Err(_)) if report.timing.run_ns > 0 => {
                    Activity::Task { server: *server, reads: record.reads(report.task), made: Vec::new() }
                }
                _ => Activity::Nothing,
            };
            all.push(measured(*at, report.timing.run_ns, what));
        }
        all.extend(record.transfers.iter().map(|(at, moved)| {
            let TransferReport { datum, from, to, run_ns, .. } = *moved;
            measured(*at, run_ns, Activity::Transfer { datum, from, to })
        }));
    }
    let seconds = |ns: i64| ns as f64 / 1e9;
    consistent(&all, setting.slots).into_iter().map(|(start_ns, end_ns)| (seconds(start_ns), seconds(end_ns))).collect()
}
