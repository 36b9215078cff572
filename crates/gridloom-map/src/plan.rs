//! The plan: which server runs each task, and every transfer. It is a plain value that can be printed, sent and checked
//! ([`Plan::validate`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use gridloom_base::{Method, NodeId};

/// Server and times of one task.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    pub server: NodeId,
    /// Predicted start, seconds from the start of the plan.
    pub start_s: f64,
    pub end_s: f64,
}

/// One copy of one datum from one place to another.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// The datum, as an index into the outline.
    pub datum: u32,
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    pub size_bytes: u64,
    /// Predicted start, seconds from the start of the plan.
    pub start_s: f64,
    pub end_s: f64,
    /// Transfer method, if the datum is shared.
    #[serde(default)]
    pub method: Method,
}

/// An estimate that a plan's times depend on and that was not measured yet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum UnmeasuredEstimate {
    /// The link between two nodes, over which data move.
    Link { from: NodeId, to: NodeId },
    /// Calls of about that size of a function on a server.
    Function { function: String, server: NodeId },
}

/// A mapped group.
///
/// **Invariants** (established by [`super::schedule::Schedule`]):
/// - every task has a server that offers its function;
/// - every datum reaches each server that reads it by exactly one chain of transfers from a place that holds it;
/// - no transfer joins two servers that cannot talk;
/// - each server's tasks, in order of `start_s` and then of index, respect the dependencies.
///
/// Exceptions are stateless servers, and the plan of plain GridRPC (`mct`), which treats all servers as stateless: the client
/// sends a datum to a stateless server again for each call that reads it, and every result is sent to the client, wanted or not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The heuristic that made it, as a spec.
    pub heuristic: String,
    /// Assignments, indexed by task.
    pub tasks: Vec<Assignment>,
    /// Transfers in order of predicted start.
    pub transfers: Vec<Transfer>,
    /// Predicted makespan, seconds: the end of the last task or transfer.
    pub makespan_s: f64,
    /// Lower bound on the makespan of any plan, by the same models, seconds.
    pub lower_bound_s: f64,
    /// Estimates that its times depend on and that were not measured.
    pub guesses: Vec<UnmeasuredEstimate>,
}

impl Plan {
    /// Returns the indices of its tasks in order of start. Among tasks that start together, the one called first is first, because
    /// it may make an input of another.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.tasks.len() as u32).collect();
        let start_s = |task: &u32| self.tasks[*task as usize].start_s;
        order.sort_by(|a, b| start_s(a).total_cmp(&start_s(b)).then(a.cmp(b)));
        order
    }
}

impl fmt::Display for Plan {
    /// A table of tasks and one of transfers, times in seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { heuristic, tasks, transfers, makespan_s, lower_bound_s, guesses: _ } = self;
        let (task_count, transfer_count) = (tasks.len(), transfers.len());
        writeln!(
            f,
            "plan by {heuristic}: {task_count} tasks, {transfer_count} transfers, {makespan_s:.6} s (at least {lower_bound_s:.6} s)"
        )?;
        writeln!(f, "{:>8} {:>18} {:>14} {:>14}", "task", "server", "start", "end")?;
        for (number, Assignment { server, start_s, end_s }) in tasks.iter().enumerate() {
            writeln!(f, "{number:>8} {:>18} {start_s:>14.6} {end_s:>14.6}", server.to_string())?;
        }
        if !transfers.is_empty() {
            writeln!(f, "{:>8} {:>18} {:>18} {:>14} {:>14} {:>14}", "datum", "from", "to", "bytes", "start", "end")?;
        }
        for Transfer { datum, from, to, size_bytes, start_s, end_s, method } in transfers {
            let (from, to) = (from.to_string(), to.to_string());
            write!(f, "{datum:>8} {from:>18} {to:>18} {size_bytes:>14} {start_s:>14.6} {end_s:>14.6}")?;
            writeln!(f, "{}", if *method == Method::Auto { String::new() } else { format!(" {method}") })?;
        }
        Ok(())
    }
}
