//! Predicted and measured times of a group.

mod dates;
mod record;
mod timeline;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::difference::Difference;
use crate::plan::{NotMeasured, PlanRecord, TaskRecord, TransferRecord, bytes};
pub use record::GroupProgress;
pub(crate) use record::{GroupRecord, GroupTimes, ReportContext, Summary, TaskEnd};
pub use timeline::timeline_html;

/// A group's execution: predicted and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The heuristic that the group requested.
    pub heuristic: String,
    /// True if it ran in simulation: "measured" then means simulated.
    pub simulated: bool,
    /// The plans: one for each part and for each time that calls were mapped again.
    pub plans: Vec<PlanRecord>,
    /// Predicted makespan of the parts' first plans, seconds, without transfers to the client of results that the
    /// program has not fetched.
    pub predicted_seconds: f64,
    /// Functions on servers, and links, whose times were guessed for this prediction.
    pub not_measured: Vec<String>,
    /// Time from the first plan to the last end of a task or transfer, seconds.
    pub measured_seconds: f64,
    /// Bytes over the client's links.
    pub client_bytes: u64,
    pub server_bytes: u64,
    /// Bytes by pair, sender first.
    pub by_link: BTreeMap<String, u64>,
    /// Tasks as they ran. A task that ended twice, since its results were lost, is listed twice. Dates of tasks and transfers
    /// are consistent: a task starts when its inputs are there, and tasks of one slot follow each other.
    pub tasks: Vec<TaskRecord>,
    pub transfers: Vec<TransferRecord>,
    /// Servers lost during the execution.
    pub lost_servers: Vec<String>,
    /// Number of tasks that ran again or moved because of lost servers.
    pub tasks_again: usize,
    /// Number of tasks that returned no result.
    pub tasks_failed: usize,
    /// For a declared group: differences between the calls and the declared ones.
    pub differences: Vec<Difference>,
    /// For bodies of a loop: how many groups were mapped together; the maximum over its parts.
    pub together: usize,
}

impl Report {
    /// Returns the number of each task, from 0 in order of the calls, as in plans.
    pub(crate) fn numbers(&self) -> BTreeMap<&str, usize> {
        let mut names: Vec<&str> = self.tasks.iter().map(|task| task.task.as_str()).collect();
        // Names are numbers within the session.
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
            writeln!(f, "{} from the declared graph:", count(self.differences.len(), "difference"))?;
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
