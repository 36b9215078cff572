//! The records of a plan: its tasks and transfers with names and times.

use std::fmt;
use std::sync::Arc;

use gridloom_base::{DatumId, TaskId};
use gridloom_map::MapperInput;
use serde::Serialize;

/// A plan with names: the prediction before the first task started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRecord {
    /// The specification of the heuristic.
    pub heuristic: String,
    /// Predicted makespan, seconds, including the return of results to the client.
    pub makespan_seconds: f64,
    /// Lower bound of the makespan of any plan with the same models, seconds.
    pub lower_bound_seconds: f64,
    /// Time from the request for the plan to its arrival, seconds.
    pub map_seconds: f64,
    /// Functions on servers, and links, whose times were guessed because they had not been measured.
    pub not_measured: Vec<String>,
    /// Bytes that it moves over the client's links.
    pub client_bytes: u64,
    /// Bytes that it moves between servers.
    pub server_bytes: u64,
    /// Memory that the client could use when the plan was requested, bytes; `None` if it is not known, or the plan is one of a
    /// report. [`PlanRecord::client_memory`] compares it with the memory that the client needs.
    pub client_memory_bytes: Option<u64>,
    /// Tasks with predicted times, seconds from the start of the plan.
    pub tasks: Vec<TaskRecord>,
    /// Transfers with predicted times.
    pub transfers: Vec<TransferRecord>,
    /// Fingerprint of the placement without times: 16 hexadecimal digits. Equal if the same calls are mapped in the
    /// same way onto servers of the same names, for real or in simulation.
    pub hash: String,
    /// The facts from which it was made: known for a requested plan, not for one that was run.
    #[serde(skip)]
    pub(crate) basis: Option<Arc<Basis>>,
}

/// A task in a plan or in a measured run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskRecord {
    /// Its name.
    pub task: String,
    pub function: String,
    /// Its server; empty if it was never sent to one.
    pub server: String,
    /// Seconds from the start of the plan.
    pub start_seconds: f64,
    /// Seconds from the start of the plan.
    pub end_seconds: f64,
    /// Why it returned no result.
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

/// The basis of a plan: the facts from which it was made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    /// The group and the grid.
    pub(crate) mapper_input: Arc<MapperInput>,
    /// Ids of its tasks, by number.
    pub(crate) tasks: Vec<u64>,
    /// Ids of its data, by number.
    pub(crate) data: Vec<u64>,
}

impl Basis {
    pub(crate) fn new(mapper_input: Arc<MapperInput>, tasks: &[TaskId], data: &[DatumId]) -> Basis {
        let (tasks, data) = (tasks.iter().map(|task| task.serial), data.iter().map(|datum| datum.serial));
        Basis { mapper_input, tasks: tasks.collect(), data: data.collect() }
    }
}

/// A line that lists guessed times, if there are any.
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

/// Formats a number of bytes in a suitable unit.
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
