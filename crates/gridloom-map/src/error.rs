//! Why a group cannot be mapped. Each message names the value, the limit or conflict and, if there is one, the remedy.

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
    /// A task is bound to a server that is not in the grid.
    #[error("task {task} ('{function}') is bound to server {server}, which is not in the grid: it runs on no other")]
    NoSuchServer { task: usize, function: String, server: NodeId },
    /// The arguments and results of a task do not fit into the store of any server that offers its function.
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
    /// A task reads a datum that it or a later task makes.
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
    /// A datum that no task makes is not stored at any node of the grid.
    #[error("datum {datum} is neither made by a task nor held by the client or a server that is known")]
    Unreachable { datum: usize },
    /// The stated work of a task is not a usable number.
    #[error("task {task} ('{function}') states a work of {work_flops} flops; it must be finite and not negative")]
    BadWork {
        task: usize,
        function: String,
        /// The stated work.
        work_flops: f64,
    },
    /// An estimate for a server or link is not a usable number.
    #[error("the figures of {subject} cannot be used: {why}")]
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
        /// The requested name.
        name: String,
        known: String,
    },
    /// The spec names a parameter that the heuristic does not have.
    #[error("heuristic '{heuristic}' has no parameter '{parameter}'; {known}")]
    UnknownParameter {
        heuristic: String,
        /// The given parameter.
        parameter: String,
        /// The known parameters, in words.
        known: String,
    },
    /// The value of a parameter is not accepted.
    #[error("heuristic '{heuristic}': {parameter}={value} cannot be used; {expected}")]
    BadParameter {
        heuristic: String,
        parameter: String,
        /// The given value.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// The spec is not of the form `name[parameter=value,...]`.
    #[error("'{spec}' is not a heuristic: {why}; write it like 'heft' or 'heft[insertion=no]'")]
    BadSpec {
        /// The given spec.
        spec: String,
        why: String,
    },
    /// A heuristic written by the user failed.
    #[error("{why}")]
    Failed { why: String },
    /// An imposed plan, or the result of a user's heuristic, does not fit the group.
    #[error("{subject}: {why}")]
    Unfit {
        /// The plan or heuristic that does not fit.
        subject: String,
        /// The first mismatch.
        why: String,
    },
    /// Mapping was stopped before there was a plan.
    #[error("mapping was stopped before it had a plan")]
    Stopped,
    /// The exhaustive search would take too long.
    #[error(
        "exhaustive search of {tasks} tasks on {servers} servers exceeds its budget of {budget} nodes: map it with \
         'heft', or allow more with 'exhaustive[nodes=...]'"
    )]
    TooManyNodes { tasks: usize, servers: usize, budget: u64 },
}
