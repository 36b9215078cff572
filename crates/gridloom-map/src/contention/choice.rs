//! The decisions of a plan, and the times that result from them.

use std::collections::BTreeMap;

use thiserror::Error;

/// The decisions of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    pub servers: Vec<u32>,
    /// All tasks; each server runs its own in this order.
    pub order: Vec<u32>,
    /// The place to copy a datum from, by datum and destination. A missing entry means the server that makes it, or the
    /// first place that holds it.
    pub sources: BTreeMap<(u32, u32), u32>,
}

/// A copy of a datum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CopyRecord {
    pub datum: u32,
    /// The sending place.
    pub from: u32,
    /// The receiving place.
    pub to: u32,
    /// Start of the copy, seconds.
    pub start_s: f64,
    /// Time at which the copy was complete, seconds.
    pub end_s: f64,
}

/// The result of running a choice.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// End of the last task or copy, seconds.
    pub makespan_s: f64,
    pub start_s: Vec<f64>,
    pub end_s: Vec<f64>,
    /// All copies, in order of their ends.
    pub copies: Vec<CopyRecord>,
}

/// Why a choice cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChoiceError {
    /// The sources of a datum wait for one another, or none of them ever receives it.
    #[error("datum {datum} never reaches place {place}: its sources wait for one another, or none of them gets it")]
    NeverArrives {
        datum: u32,
        /// A place that waits for it.
        place: u32,
    },
    /// The order has a task before one that it depends on, on the same server or across servers.
    #[error("task {task} is never run: the order has it before a task that it depends on")]
    NeverRun { task: u32 },
    /// The server cannot run it.
    #[error("task {task} cannot run on server {server}")]
    CannotRun { task: u32, server: u32 },
}
