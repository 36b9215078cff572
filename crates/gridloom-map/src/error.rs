//! Why a group cannot be mapped. Each text names the value, what stands against it and, where there is one, the remedy.

use thiserror::Error;

use gridloom_base::NodeId;

/// Why a group cannot be mapped.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum MapError {
    /// The grid has no server.
    #[error("no server is known: start one with 'gridloom serve', or wait until it has registered")]
    EmptyGrid,
    /// No server offers a function.
    #[error("no server offers function '{function}', which task {task} calls")]
    NoSuchFunction {
        function: String,
        /// The first task that calls it.
        task: usize,
    },
    /// A task has to run on a server that is not there.
    #[error("task {task} ('{function}') is bound to server {server}, which is not in the grid: it runs on no other")]
    NoSuchServer { task: usize, function: String, server: NodeId },
    /// The arguments and results of a task fit into no store of a server that offers its function.
    #[error(
        "task {task} ('{function}') needs {needed_bytes} bytes for its arguments and results; the largest store of a \
         server that offers the function has {limit_bytes} bytes: start one with a larger --memory"
    )]
    TooLarge {
        task: usize,
        function: String,
        /// Bytes of arguments and results together.
        needed_bytes: u64,
        /// Bytes of the largest store.
        limit_bytes: u64,
    },
    /// A task reads what itself or a later task makes.
    #[error(
        "task {task} reads datum {datum}, which task {producer} makes: tasks must come after those they depend on, \
         and the graph must not have a cycle"
    )]
    NotInOrder {
        /// The reader.
        task: usize,
        datum: usize,
        /// The maker.
        producer: usize,
    },
    /// The outline contradicts itself.
    #[error("the outline of the group is malformed: {why}")]
    Malformed { why: String },
    /// A datum that no task makes is at no node of the grid.
    #[error("datum {datum} is neither made by a task nor held by the client or a server that is known")]
    Unreachable { datum: usize },
    /// The stated work of a task is no number that time can be computed from.
    #[error("task {task} ('{function}') states a work of {work_flops} flops; it must be finite and not negative")]
    BadWork {
        task: usize,
        function: String,
        /// What it states.
        work_flops: f64,
    },
    /// What is known of a server or link is no number that time can be computed from.
    #[error("what is known of {subject} cannot be used: {why}")]
    BadEstimate {
        /// The server or link.
        subject: String,
        why: String,
    },
    /// Two places of the grid have one identifier.
    #[error("two nodes of the grid have the identifier {node}")]
    SameNode { node: NodeId },
    /// The spec names no heuristic.
    #[error("unknown heuristic '{name}'; known: {known}")]
    UnknownHeuristic {
        /// What was asked for.
        name: String,
        known: String,
    },
    /// The spec names a parameter that the heuristic has not.
    #[error("heuristic '{heuristic}' has no parameter '{parameter}'; {known}")]
    UnknownParameter {
        heuristic: String,
        /// What was given.
        parameter: String,
        /// The known ones, in words.
        known: String,
    },
    /// The value of a parameter cannot be used.
    #[error("heuristic '{heuristic}': {parameter}={value} cannot be used; {expected}")]
    BadParameter {
        heuristic: String,
        parameter: String,
        /// What was given.
        value: String,
        /// What can be.
        expected: String,
    },
    /// The spec is not of the form `name[parameter=value,...]`.
    #[error("'{spec}' is no heuristic: {why}; write it like 'heft' or 'heft[insertion=no]'")]
    BadSpec {
        /// What was given.
        spec: String,
        why: String,
    },
    /// A heuristic of the user's own gave up.
    #[error("{why}")]
    Failed { why: String },
    /// A plan that is given, or what a user's heuristic returned, does not fit.
    #[error("{subject}: {why}")]
    Unfit {
        /// What does not fit.
        subject: String,
        /// The first thing that does not.
        why: String,
    },
    /// It was stopped before there was a plan.
    #[error("mapping was stopped before it had a plan")]
    Stopped,
    /// The exhaustive search would take too long.
    #[error(
        "exhaustive search of {tasks} tasks on {servers} servers exceeds its budget of {budget} nodes: map it with \
         'heft', or allow more with 'exhaustive[nodes=...]'"
    )]
    TooManyNodes { tasks: usize, servers: usize, budget: u64 },
}
