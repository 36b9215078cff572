//! The plan: which server runs each task, and every transfer.

use serde::{Deserialize, Serialize};

use crate::base::NodeId;

/// Where and when one task runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The server.
    pub server: NodeId,
    /// Predicted start, seconds from the start of the plan.
    pub start_s: f64,
    /// Predicted end.
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
    /// Its size.
    pub size_bytes: u64,
    /// Predicted start, seconds from the start of the plan.
    pub start_s: f64,
    /// Predicted end.
    pub end_s: f64,
}

/// A mapped group.
///
/// **Invariants** (established by [`super::schedule::Schedule`]): every task has a server that offers its function;
/// every datum reaches each server that reads it by exactly one chain of transfers from a place that holds it; no
/// transfer joins two servers that cannot talk; each server's tasks, in order of `start_s`, respect the dependencies.
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
}
