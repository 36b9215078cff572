//! What was predicted and what was measured of a group.

mod dates;
mod record;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::described::Difference;
use crate::plan::Basis;
pub use record::GroupProgress;
pub(crate) use record::{Course, Ended, GroupRecord, Setting, Summary};

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
    /// What its times rest on that was not measured when it was made, and was guessed: functions on servers, and links.
    pub not_measured: Vec<String>,
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
    pub datum: String,
    /// Sender.
    pub from: String,
    /// Receiver.
    pub to: String,
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
    /// Whether it ran in simulation: what is called measured here was simulated.
    pub simulated: bool,
    /// The plans, one for each part and each time that something was mapped again.
    pub plans: Vec<PlanRecord>,
    /// Predicted makespan of the parts' first plans, seconds, without the way home of results that the program has not fetched.
    pub predicted_seconds: f64,
    /// What that rests on that was not measured, and was guessed: functions on servers, and links.
    pub not_measured: Vec<String>,
    /// From the first plan to the last end of a task or transfer, seconds.
    pub measured_seconds: f64,
    /// Bytes over the client's links.
    pub client_bytes: u64,
    pub server_bytes: u64,
    /// Bytes by pair, sender first.
    pub by_link: BTreeMap<String, u64>,
    /// Tasks as they ran; one that ended twice, since its results were lost, stands there twice. Dates of tasks and transfers
    /// contradict nothing: what starts has its inputs, and tasks of one slot follow one another.
    pub tasks: Vec<TaskRecord>,
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

impl Report {
    /// The number of each task, from 0 in order of the calls, as plans have them.
    pub(crate) fn numbers(&self) -> BTreeMap<&str, usize> {
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
        let how = if self.simulated { "simulated" } else { "measured" };
        writeln!(f, "makespan: predicted {predicted:.4} s, {how} {measured:.4} s")?;
        write!(f, "{}", NotMeasured(&self.not_measured))?;
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

/// A line that says what was guessed, if anything was.
pub(crate) struct NotMeasured<'a>(pub(crate) &'a [String]);

impl fmt::Display for NotMeasured<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let NotMeasured(names) = self;
        if names.is_empty() {
            return Ok(());
        }
        let shown = names[..names.len().min(SHOWN)].join(", ");
        match names.len().saturating_sub(SHOWN) {
            0 => writeln!(f, "guessed, as not measured yet: {shown}"),
            more => writeln!(f, "guessed, as not measured yet: {shown} and {more} more"),
        }
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
