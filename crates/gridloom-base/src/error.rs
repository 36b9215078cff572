//! Why a task failed. The error travels from server to client. Each text names the value, the limit and the remedy.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::dial::ConnectionFault;
use super::id::{DatumId, TaskId};
use super::size::size_text;

/// Why a task failed.
#[derive(Clone, PartialEq, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TaskError {
    /// The worker process died while it ran the function.
    #[error(
        "function '{function}' crashed its worker process on server '{server}' ({how}); the server is still running"
    )]
    Crashed {
        function: String,
        server: String,
        /// The signal or exit status as text.
        how: String,
    },
    /// The function raised an exception.
    #[error("function '{function}' raised {kind} on server '{server}': {message}{traceback}")]
    Raised {
        function: String,
        server: String,
        /// Class name of the exception.
        kind: String,
        message: String,
        /// The traceback: empty, or starts with a line break.
        traceback: String,
        cause: RaisedCause,
    },
    /// The type of a Python function's return value differs from its signature.
    #[error("function '{function}' on server '{server}' returned a wrong result: {why}")]
    WrongResult {
        function: String,
        server: String,
        /// The expected and the actual value.
        why: String,
    },
    /// No server offers the function.
    #[error("no server offers function '{function}'{near}")]
    NoSuchFunction {
        function: String,
        /// Suggestions of similar names: empty, or starts with a semicolon.
        near: String,
    },
    /// The function's worker could not be started.
    #[error("server '{server}' cannot run function '{function}': {why}")]
    CannotRun {
        function: String,
        server: String,
        /// The part that the server lacks.
        why: String,
    },
    /// A task needs more memory than the server's store can free for it.
    #[error("{}", store_full(.function, .server, *.needed, *.held, *.limit))]
    StoreFull {
        function: String,
        server: String,
        task: TaskId,
        /// Bytes of its arguments and results.
        needed: u64,
        /// Bytes in the store that cannot be evicted now.
        held: u64,
        limit: u64,
    },
    /// A measuring call was preempted by other work.
    #[error("server '{server}' has other work, which preempted a measuring call of '{function}'")]
    Preempted { function: String, server: String },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The call's time limit ran out.
    #[error("the call exceeded its time limit of {limit_seconds} s")]
    DeadlineExceeded { limit_seconds: f64 },
    /// The server was lost and no other server could run the task.
    #[error("server '{server}' was lost ({why}) and {}", no_replacement_text(.function, .server, *.is_bound))]
    ServerLost {
        /// Empty if the task was to copy data to that server.
        function: String,
        server: String,
        /// How the loss was detected.
        why: String,
        /// True if the program bound the call to this server.
        is_bound: bool,
    },
    /// A datum that the task needs is lost and cannot be recomputed.
    #[error("data are lost: {why}")]
    DatumLost {
        datum: DatumId,
        /// How it was lost.
        why: String,
    },
    /// A node has not enough memory for a datum that it needs.
    #[error(
        "not enough memory for {datum} {place}: {why}; free memory there, release results that are no longer needed, or fetch fewer \
         at a time"
    )]
    OutOfMemory {
        datum: DatumId,
        /// The place as text: "in this program", "on server 'x'".
        place: String,
        /// The operating system's error text.
        why: String,
    },
    /// A task that this one depends on failed.
    #[error("a call that it depends on failed: {why}")]
    DependencyFailed {
        /// The task that failed first.
        task: TaskId,
        /// Its error as text.
        why: String,
    },
    /// The group could not be mapped.
    #[error("the group could not be mapped: {why}")]
    NotMapped {
        /// Reason why the group could not be mapped.
        why: String,
    },
    /// The agent cannot be reached.
    #[error("cannot use the agent at {address}: {why}{}", fault.agent_remedy())]
    AgentLost {
        address: String,
        fault: ConnectionFault,
        /// How the loss was detected.
        why: String,
    },
    /// The call does not match the server's signature of the function.
    #[error("server '{server}' refused the call of '{function}': {why}")]
    Refused {
        function: String,
        server: String,
        /// The expected and the actual value.
        why: String,
    },
    /// The user who made the call may not call the function.
    #[error("server '{server}' refused the call of '{function}': {why}")]
    NotPermitted {
        function: String,
        server: String,
        /// The functions that the user may call, and the remedy.
        why: String,
    },
    /// The call exceeds a quota that the rules of the grid set for its user.
    #[error("server '{server}' refused the call of '{function}': {why}")]
    QuotaExceeded {
        function: String,
        server: String,
        /// The quota and the remedy.
        why: String,
        /// True if the server may accept the call when other calls have ended. Calls that wait in the client for a free slot
        /// are sent again then.
        is_temporary: bool,
    },
    /// The object of the method call does not exist, or no longer exists.
    #[error("server '{server}' does not have the object to run '{function}' on: {why}")]
    ObjectMissing {
        /// The method.
        function: String,
        server: String,
        /// How the object was lost.
        why: String,
    },
    /// A transfer of the call's arguments or results exceeded its time limit.
    #[error("the {what} of the call did not arrive within their time limit of {limit_seconds} s")]
    TransferTimedOut {
        /// `arguments` or `results`.
        what: String,
        limit_seconds: f64,
    },
    /// The server cannot store a shared datum, for example because its disk is full. Another server may be able to.
    #[error("server '{server}' cannot store the data: {why}")]
    StoreFailed {
        server: String,
        /// The operation that failed, and where.
        why: String,
    },
    /// The task's worker used more memory than the server allows, and was killed.
    #[error(
        "server '{server}': the worker of '{function}' and the processes that it has started were killed, because they used \
         {} of memory and the limit is {}; use less memory in one call, or start the server with a larger --worker-memory \
         (worker_memory of gridloom.local)", size_text(*.used_bytes), size_text(*.limit_bytes)
    )]
    MemoryExceeded { function: String, server: String, used_bytes: u64, limit_bytes: u64 },
    /// The task's worker had more processes than the server allows, and was killed.
    #[error(
        "server '{server}': the worker of '{function}' was killed with all its processes, because it had {count} processes and the limit is {limit}; \
         start fewer processes at a time, or start the server with a larger --worker-processes"
    )]
    ProcessesExceeded { function: String, server: String, count: u64, limit: u64 },
    /// The task ran longer than the server allows, and its worker was killed.
    #[error(
        "server '{server}' ended the call of '{function}', because it ran longer than the limit of {limit_seconds} s; divide its work among several calls, \
         or start the server with a larger --worker-time"
    )]
    TimeExceeded { function: String, server: String, limit_seconds: f64 },
}

fn store_full(function: &str, server: &str, needed: u64, held: u64, limit: u64) -> String {
    if needed > limit {
        return format!(
            "a call of '{function}' needs {needed} bytes for its arguments and results, more than the {limit} bytes of the store of server \
             '{server}'; pass less data at a time, or start the server with a larger --memory"
        );
    }
    format!(
        "store of server '{server}' is full: a call of '{function}' needs {needed} bytes for its arguments and results, {held} of \
         {limit} bytes are in use; release results that are no longer needed, or start the server with a larger --memory"
    )
}

fn no_replacement_text(function: &str, server: &str, is_bound: bool) -> String {
    match is_bound {
        _ if function.is_empty() => "has no copy of the data".into(),
        true => format!("the call of '{function}' is bound to it, for example by on('{server}')"),
        false => format!("no other server could run function '{function}'"),
    }
}

/// Cause of an exception. The worker determines it from the class, not from its name: a function may define a class of
/// the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RaisedCause {
    /// The function.
    #[default]
    Function,
    /// This call imported a module that the server does not have. Calls with other arguments may not need the module.
    MissingModule,
    /// The server. For example, the model server of a connector is lost.
    Server,
}

impl TaskError {
    /// True if the server lacks something that all calls of the function need.
    pub fn is_server_fault(&self) -> bool {
        matches!(self, TaskError::CannotRun { .. } | TaskError::Raised { cause: RaisedCause::Server, .. })
    }

    /// True if the server lacks something that the task needs, so that the task may succeed on another server.
    pub fn may_succeed_elsewhere(&self) -> bool {
        self.is_server_fault() || matches!(self, TaskError::Raised { cause: RaisedCause::MissingModule, .. })
    }

    /// Returns the error with the function's and the server's names filled in. The code that runs a task need not
    /// know them.
    pub fn with_names(mut self, its_function: &str, its_server: &str) -> TaskError {
        if let TaskError::Crashed { function, server, .. }
        | TaskError::Raised { function, server, .. }
        | TaskError::WrongResult { function, server, .. }
        | TaskError::CannotRun { function, server, .. }
        | TaskError::MemoryExceeded { function, server, .. }
        | TaskError::ProcessesExceeded { function, server, .. }
        | TaskError::TimeExceeded { function, server, .. }
        | TaskError::Refused { function, server, .. }
        | TaskError::NotPermitted { function, server, .. }
        | TaskError::QuotaExceeded { function, server, .. }
        | TaskError::ObjectMissing { function, server, .. } = &mut self
        {
            its_function.clone_into(function);
            its_server.clone_into(server);
        }
        self
    }
}
