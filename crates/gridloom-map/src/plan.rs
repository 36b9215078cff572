//! The plan: which server runs each task, and every transfer. A value: it prints, travels and can be checked
//! ([`Plan::validate`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use gridloom_base::{Method, NodeId};

/// Where and when one task runs.
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
    /// The datum, index into the outline.
    pub datum: u32,
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    pub size_bytes: u64,
    /// Predicted start, seconds from the start of the plan.
    pub start_s: f64,
    pub end_s: f64,
    /// How it gets there, if it is shared.
    #[serde(default)]
    pub method: Method,
}

/// What times of a plan rest on that was not measured yet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Guess {
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
/// Exceptions are plain servers, and the plan of plain GridRPC (`mct`), in which all are: there the client sends a datum to a server
/// again for each call that reads it, and every result goes to the client, wanted or not.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The heuristic that made it, as a spec.
    pub heuristic: String,
    /// By task index.
    pub tasks: Vec<Assignment>,
    /// In order of predicted start.
    pub transfers: Vec<Transfer>,
    /// Predicted makespan, seconds: the end of the last task or transfer.
    pub makespan_s: f64,
    /// No plan can take less, by the same models; seconds.
    pub lower_bound_s: f64,
    /// What was not measured of what its times rest on.
    pub guesses: Vec<Guess>,
}

impl Plan {
    /// Numbers of its tasks in the order in which they start; of those that start together, the one called first,
    /// which may make what the other needs.
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
