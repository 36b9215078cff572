//! What was predicted and what was measured of a group.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gridloom_core::base::{DatumId, GroupId, NodeId, TaskError, TaskId, Time};
use gridloom_core::map::Plan;
use gridloom_core::node::message::{TaskReport, TransferReport};
use serde::Serialize;

use crate::described::Difference;
use crate::plan::{Basis, Named};

/// A plan in names: what was predicted before the first task started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRecord {
    /// The heuristic, as a spec.
    pub heuristic: String,
    /// Predicted makespan, seconds, return of the results to the client included.
    pub makespan_seconds: f64,
    /// No plan can take less by the same models, seconds.
    pub lower_bound_seconds: f64,
    /// Seconds from the request for the plan to its arrival.
    pub map_seconds: f64,
    /// Bytes that it moves over the client's links.
    pub client_bytes: u64,
    /// Bytes that it moves between servers.
    pub server_bytes: u64,
    /// Tasks with predicted times, seconds from the start of the plan.
    pub tasks: Vec<TaskRecord>,
    /// Transfers with predicted times.
    pub transfers: Vec<TransferRecord>,
    /// Fingerprint of what goes where, times apart: 16 hexadecimal digits. The same for the same calls mapped onto servers of
    /// the same names in the same way, for real and in simulation.
    pub hash: String,
    /// What it was made of: known of a plan that was asked for, not of one that was run.
    #[serde(skip)]
    pub(crate) basis: Option<Arc<Basis>>,
}

/// A task in a plan or in a measured run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskRecord {
    /// Its name.
    pub task: String,
    /// Its function.
    pub function: String,
    /// Its server, empty if it never got to one.
    pub server: String,
    /// Seconds from the start of the plan.
    pub start_seconds: f64,
    /// Seconds from the start of the plan.
    pub end_seconds: f64,
    /// Why it gave no result.
    pub error: Option<String>,
}

/// A transfer in a plan or in a measured run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransferRecord {
    /// The datum.
    pub datum: String,
    /// Sender.
    pub from: String,
    /// Receiver.
    pub to: String,
    /// Bytes moved.
    pub size_bytes: u64,
    /// Seconds from the start of the plan.
    pub start_seconds: f64,
    /// Seconds from the start of the plan.
    pub end_seconds: f64,
}

/// A group's course: predicted and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The heuristic that the group asked for.
    pub heuristic: String,
    /// The plans, one for each part and each time that something was mapped again.
    pub plans: Vec<PlanRecord>,
    /// Predicted makespan of the parts' first plans, seconds.
    pub predicted_seconds: f64,
    /// From the first plan to the last end of a task or transfer, seconds.
    pub measured_seconds: f64,
    /// Bytes over the client's links.
    pub client_bytes: u64,
    /// Bytes between servers.
    pub server_bytes: u64,
    /// Bytes by pair, sender first.
    pub by_link: BTreeMap<String, u64>,
    /// Tasks as they ran; one that ended twice, since its results were lost, stands there twice.
    pub tasks: Vec<TaskRecord>,
    /// Transfers as they went.
    pub transfers: Vec<TransferRecord>,
    /// Servers lost on the way, and how many tasks had to run (again) elsewhere.
    pub lost_servers: Vec<String>,
    /// Tasks that ran again or moved because of that.
    pub tasks_again: usize,
    /// Tasks that gave no result.
    pub tasks_failed: usize,
    /// How the calls differed from the described ones, of a group that was described.
    pub differences: Vec<Difference>,
    /// How many groups were mapped together, of a loop's body; of several parts, the most.
    pub together: usize,
}

/// How a group went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// Seconds that mapping it took.
    pub(crate) map_s: f64,
    /// Its makespan, seconds.
    pub(crate) predicted_s: f64,
    /// Its makespan, seconds, if it has ended.
    pub(crate) measured_s: Option<f64>,
}

/// What a session remembers of a group.
#[derive(Debug)]
pub(crate) struct GroupRecord {
    functions: BTreeMap<TaskId, String>,
    plans: Vec<(Time, PlanRecord)>,
    /// Where its tasks run, as planned last.
    servers: BTreeMap<TaskId, NodeId>,
    tasks: Vec<(Time, Option<NodeId>, TaskReport)>,
    transfers: Vec<(Time, TransferReport)>,
    ended_at: Option<Time>,
    lost_servers: Vec<String>,
    tasks_again: usize,
    /// Data whose transfers are noted here.
    pub(crate) data: Vec<DatumId>,
    /// Nobody can ask about it any more.
    pub(crate) is_unasked: bool,
    /// The program knows of a failure in it: whoever reads one error looks for the others.
    pub(crate) is_told: bool,
    /// Its call took its place in the plan of that group, which was described and planned at that time.
    pub(crate) follows: Option<(GroupId, Time)>,
}

impl GroupRecord {
    pub(crate) fn new(functions: BTreeMap<TaskId, String>) -> GroupRecord {
        GroupRecord {
            functions,
            plans: Vec::new(),
            servers: BTreeMap::new(),
            tasks: Vec::new(),
            transfers: Vec::new(),
            ended_at: None,
            lost_servers: Vec::new(),
            tasks_again: 0,
            data: Vec::new(),
            is_unasked: false,
            is_told: false,
            follows: None,
        }
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = &TaskId> {
        self.functions.keys()
    }

    pub(crate) fn planned(
        &mut self,
        at: Time,
        plan: &Plan,
        tasks: &[TaskId],
        data: &[DatumId],
        map_ns: u64,
        names: &BTreeMap<NodeId, String>,
    ) -> PlanRecord {
        let functions = |task: usize| self.functions.get(&tasks[task]).cloned().unwrap_or_default();
        let named = Named {
            plan,
            client: tasks.first().map(|task| task.client),
            name: &|node| names.get(&node).cloned().unwrap_or_else(|| node.to_string()),
            tasks: &|task| (tasks[task].serial.to_string(), functions(task)),
            datum: &|datum| data[datum].serial.to_string(),
            map_s: gridloom_core::base::time::ns_to_seconds(map_ns),
        };
        let record = named.record();
        self.plans.push((at, record.clone()));
        self.servers.extend(tasks.iter().copied().zip(plan.tasks.iter().map(|assignment| assignment.server)));
        self.ended_at = None;
        record
    }

    pub(crate) fn task_ended(&mut self, at: Time, server: Option<NodeId>, report: TaskReport) {
        self.tasks.push((at, server, report));
    }

    /// Where a task runs, if that is decided.
    pub(crate) fn server_of(&self, task: TaskId) -> Option<NodeId> {
        self.servers.get(&task).copied()
    }

    /// The last end of a task, which may run again.
    pub(crate) fn end_of(&self, task: TaskId) -> Option<(&Time, &Option<NodeId>, &TaskReport)> {
        let end = self.tasks.iter().rev().find(|(_, _, report)| report.task == task);
        end.map(|(at, server, report)| (at, server, report))
    }

    pub(crate) fn transferred(&mut self, at: Time, report: TransferReport) {
        self.transfers.push((at, report));
    }

    pub(crate) fn ended(&mut self, at: Time) {
        self.ended_at = Some(at);
    }

    pub(crate) fn server_lost(&mut self, name: &str, why: &str, again: usize) {
        // Results that went with it may be asked for one by one.
        let lost = format!("{name} ({why})");
        if !self.lost_servers.contains(&lost) {
            self.lost_servers.push(lost);
        }
        self.tasks_again += again;
        // Tasks run again: the end that was noted does not count.
        self.ended_at = None;
    }

    /// Heuristic, predicted and measured makespan, if it was mapped.
    pub(crate) fn summary(&self) -> Option<(String, f64, f64)> {
        let (start, plan) = self.plans.first().filter(|_| self.follows.is_none())?;
        let end = self.last_end().unwrap_or(*start);
        Some((plan.heuristic.clone(), plan.makespan_seconds, end.seconds() - start.seconds()))
    }

    /// How it went so far, if it was mapped.
    pub(crate) fn course(&self) -> Option<Course> {
        let (_, predicted_s, measured_s) = self.summary()?;
        let (_, plan) = self.plans.first()?;
        Some(Course { map_s: plan.map_seconds, predicted_s, measured_s: self.has_ended().then_some(measured_s) })
    }

    /// When the last of its tasks and transfers ended.
    pub(crate) fn last_end(&self) -> Option<Time> {
        self.tasks.iter().map(|(at, ..)| *at).chain(self.transfers.iter().map(|(at, _)| *at)).max()
    }

    /// It was only planned: its calls will be groups of their own.
    pub(crate) fn only_planned(&mut self) {
        self.functions.clear();
        self.ended_at = self.plans.first().map(|(at, _)| *at);
    }

    pub(crate) fn planned_at(&self) -> Option<Time> {
        self.plans.first().map(|(at, _)| *at)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    pub(crate) fn first_error(&self) -> Option<TaskError> {
        // Tasks cut off by the failure of another come after it only by chance: the cause is the better answer.
        let errors = || self.tasks.iter().filter_map(|(_, _, report)| report.outcome.as_ref().err());
        errors().find(|error| !matches!(error, TaskError::DependencyFailed { .. })).or_else(|| errors().next()).cloned()
    }

    /// Failures that the program does not know of, in a line each. What was cancelled is no news, nor what was cut off by
    /// another failure.
    pub(crate) fn untold(&self) -> impl Iterator<Item = String> {
        let errors = self.tasks.iter().filter_map(|(_, _, report)| report.outcome.as_ref().err());
        let news = errors.filter(|error| {
            !self.is_told && !matches!(error, TaskError::DependencyFailed { .. } | TaskError::Cancelled)
        });
        news.map(|error| error.to_string().lines().next().unwrap_or_default().to_string())
    }

    pub(crate) fn unfinished(&self) -> Vec<TaskId> {
        let ended: std::collections::BTreeSet<TaskId> = self.tasks.iter().map(|(_, _, report)| report.task).collect();
        self.functions.keys().filter(|task| !ended.contains(task)).copied().collect()
    }
}

impl Report {
    pub(crate) fn new<'a>(
        heuristic: &str,
        records: impl Iterator<Item = &'a GroupRecord>,
        clients: &[NodeId],
        names: &BTreeMap<NodeId, String>,
    ) -> Report {
        let name = |node: &NodeId| names.get(node).cloned().unwrap_or_else(|| node.to_string());
        let records: Vec<&GroupRecord> = records.collect();
        let start = records.iter().filter_map(|r| r.plans.first()).map(|(at, _)| *at).min().unwrap_or_default();
        let after = |at: Time| at.seconds() - start.seconds();
        let mut report = Report {
            heuristic: heuristic.to_string(),
            plans: Vec::new(),
            predicted_seconds: 0.0,
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
        for record in records {
            let first = record.plans.first().filter(|_| record.follows.is_none());
            report.predicted_seconds += first.map_or(0.0, |(_, plan)| plan.makespan_seconds);
            report.plans.extend(record.plans.iter().map(|(_, plan)| plan.clone()));
            report.lost_servers.extend(record.lost_servers.iter().cloned());
            report.tasks_again += record.tasks_again;
            for (at, server, ended) in &record.tasks {
                let run_s = gridloom_core::base::time::ns_to_seconds(ended.timing.run_ns);
                report.tasks_failed += usize::from(ended.outcome.is_err());
                report.tasks.push(TaskRecord {
                    task: ended.task.serial.to_string(),
                    function: record.functions.get(&ended.task).cloned().unwrap_or_default(),
                    server: server.as_ref().map(name).unwrap_or_default(),
                    start_seconds: after(*at) - run_s,
                    end_seconds: after(*at),
                    error: ended.outcome.as_ref().err().map(ToString::to_string),
                });
            }
            for (at, moved) in &record.transfers {
                let is_client = clients.contains(&moved.from) || clients.contains(&moved.to);
                *(if is_client { &mut report.client_bytes } else { &mut report.server_bytes }) += moved.size_bytes;
                let link = format!("{} -> {}", name(&moved.from), name(&moved.to));
                *report.by_link.entry(link).or_default() += moved.size_bytes;
                report.transfers.push(TransferRecord {
                    datum: moved.datum.serial.to_string(),
                    from: name(&moved.from),
                    to: name(&moved.to),
                    size_bytes: moved.size_bytes,
                    start_seconds: after(*at) - gridloom_core::base::time::ns_to_seconds(moved.run_ns),
                    end_seconds: after(*at),
                });
            }
        }
        let ends = report.tasks.iter().map(|t| t.end_seconds).chain(report.transfers.iter().map(|t| t.end_seconds));
        // What was never mapped has no beginning to count from.
        report.measured_seconds = if report.plans.is_empty() { 0.0 } else { ends.fold(0.0, f64::max) };
        report
    }
}

impl Report {
    /// The number of each task, from 0 in order of the calls, as plans have them.
    fn numbers(&self) -> BTreeMap<&str, usize> {
        let mut names: Vec<&str> = self.tasks.iter().map(|task| task.task.as_str()).collect();
        // Names are numbers of the session.
        names.sort_by_key(|name| (name.len(), *name));
        names.dedup();
        names.into_iter().enumerate().map(|(number, name)| (name, number)).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let servers: std::collections::BTreeSet<&str> =
            self.tasks.iter().map(|t| t.server.as_str()).filter(|name| !name.is_empty()).collect();
        let numbers = self.numbers();
        let calls = count(numbers.len(), "call");
        writeln!(f, "{calls} on {}, mapped by {}", count(servers.len(), "server"), self.heuristic)?;
        let (predicted, measured) = (self.predicted_seconds, self.measured_seconds);
        writeln!(f, "makespan: predicted {predicted:.4} s, measured {measured:.4} s")?;
        let (client, server) = (bytes(self.client_bytes), bytes(self.server_bytes));
        writeln!(f, "moved: {client} over client links, {server} between servers")?;
        for (link, moved) in &self.by_link {
            writeln!(f, "  {link}: {}", bytes(*moved))?;
        }
        if self.together > 1 {
            writeln!(f, "{} went together", count(self.together, "group"))?;
        }
        for lost in &self.lost_servers {
            writeln!(f, "lost server {lost}")?;
        }
        if self.tasks_again > 0 {
            writeln!(f, "{} ran again elsewhere", count(self.tasks_again, "call"))?;
        }
        if !self.differences.is_empty() {
            writeln!(f, "{} from the described graph:", count(self.differences.len(), "difference"))?;
            self.differences.iter().take(10).try_for_each(|difference| writeln!(f, "  {difference}"))?;
        }
        if self.tasks_failed > 0 {
            writeln!(f, "{} failed:", count(self.tasks_failed, "call"))?;
            for task in self.tasks.iter().filter(|task| task.error.is_some()).take(10) {
                let number = numbers[task.task.as_str()];
                writeln!(f, "  task {number} {}: {}", task.function, task.error.as_deref().unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

/// Bytes in a unit that reads well.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
