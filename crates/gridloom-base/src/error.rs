//! Why a task did not give its result. Travels from server to client; the texts name value, limit and remedy.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::dial::agent_remedy;
use super::id::{DatumId, TaskId};

/// Why a task failed.
#[derive(Clone, PartialEq, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TaskError {
    /// The worker process died under the function.
    #[error("function '{function}' crashed its worker process on server '{server}' ({how}); the server lives on")]
    Crashed {
        function: String,
        server: String,
        /// Signal or exit status, in words.
        how: String,
    },
    /// The function raised an exception.
    #[error("function '{function}' raised {kind} on server '{server}': {message}{traceback}")]
    Raised {
        function: String,
        server: String,
        /// Class of the exception.
        kind: String,
        message: String,
        /// Where it was raised, empty or starting with a line break.
        traceback: String,
    },
    /// A Python function returned something else than its signature says.
    #[error("function '{function}' on server '{server}' returned a wrong result: {why}")]
    WrongResult {
        function: String,
        server: String,
        /// What was expected and got.
        why: String,
    },
    /// No server offers the function.
    #[error("no server offers function '{function}'{near}")]
    NoSuchFunction {
        function: String,
        /// Names like it, empty or starting with a semicolon.
        near: String,
    },
    /// The function's worker could not be started.
    #[error("server '{server}' cannot run function '{function}': {why}")]
    CannotRun {
        function: String,
        server: String,
        /// What is missing.
        why: String,
    },
    /// A task needs more room than the server's store has.
    #[error("{}", store_full(.function, .server, *.needed, *.held, *.limit))]
    StoreFull {
        function: String,
        server: String,
        task: TaskId,
        /// Bytes its arguments and results take.
        needed: u64,
        /// Bytes that cannot be given up now.
        held: u64,
        limit: u64,
    },
    /// A call that was to be measured met other work, before which it gave way.
    #[error("server '{server}' has other work: a call of '{function}' that was to be measured gave way to it")]
    GaveWay { function: String, server: String },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The call's time limit ran out.
    #[error("the call exceeded its time limit of {limit_seconds} s")]
    DeadlineExceeded { limit_seconds: f64 },
    /// The server was lost and no other could take over.
    #[error("server '{server}' was lost ({why}) and {}", why_nowhere_else(.function, .server, *.is_bound))]
    ServerLost {
        function: String,
        server: String,
        /// How the loss was noticed.
        why: String,
        /// The program has bound the call to it.
        is_bound: bool,
    },
    /// A datum that the task needs is gone and cannot be computed again.
    #[error("data are lost: {why}")]
    DatumLost {
        datum: DatumId,
        /// How it was lost.
        why: String,
    },
    /// A node has no memory for a datum that it needs.
    #[error(
        "there is no memory for {datum} {place}: {why}; free memory there, release results that are no longer needed, or take fewer \
         at a time"
    )]
    OutOfMemory {
        datum: DatumId,
        /// Where, in words: "in this program", "on server 'x'".
        place: String,
        /// What the system says.
        why: String,
    },
    /// A task that it depends on failed.
    #[error("a call that it depends on failed: {why}")]
    DependencyFailed {
        /// The task that failed first.
        task: TaskId,
        /// Its error, in words.
        why: String,
    },
    /// The group could not be mapped.
    #[error("the group could not be mapped: {why}")]
    NotMapped {
        /// What stands against it.
        why: String,
    },
    /// The agent cannot be reached.
    #[error("cannot use the agent at {address}: {why}{}", agent_remedy(why))]
    AgentLost {
        /// Where it was.
        address: String,
        /// How the loss was noticed.
        why: String,
    },
    /// The call does not fit the signature that the server has.
    #[error("server '{server}' refused the call of '{function}': {why}")]
    Refused {
        function: String,
        server: String,
        /// What was expected and got.
        why: String,
    },
    /// The object of the method call is not there, or not any more.
    #[error("server '{server}' has no such object to run '{function}' on: {why}")]
    ObjectLost {
        /// The method.
        function: String,
        server: String,
        /// How it was lost.
        why: String,
    },
    /// A transfer of the call's ran out of its time limit.
    #[error("the {what} of the call were not there within their time limit of {limit_seconds} s")]
    TransferLate {
        /// `arguments` or `results`.
        what: String,
        limit_seconds: f64,
    },
    /// The server cannot keep a shared datum: its disk is full, say. Another may.
    #[error("server '{server}' cannot keep the data: {why}")]
    NotKept {
        server: String,
        /// What failed, with its place.
        why: String,
    },
}

fn store_full(function: &str, server: &str, needed: u64, held: u64, limit: u64) -> String {
    if needed > limit {
        return format!(
            "a call of '{function}' needs {needed} bytes for what it reads and makes, more than the {limit} bytes of the store of server \
             '{server}'; pass less at a time, or start the server with a larger --memory"
        );
    }
    format!(
        "store of server '{server}' is full: a call of '{function}' needs {needed} bytes for what it reads and makes, {held} of \
         {limit} bytes are held; release results that are no longer needed, or start the server with a larger --memory"
    )
}

fn why_nowhere_else(function: &str, server: &str, is_bound: bool) -> String {
    match is_bound {
        true => format!("the call of '{function}' is bound to it, as by on('{server}')"),
        false => format!("no other server could run function '{function}'"),
    }
}

/// What Python raises where a module is not installed.
const NO_MODULE: &str = "ModuleNotFoundError";

impl TaskError {
    /// Whether the server lacks what the function needs: the task may run on another one.
    pub fn is_of_server(&self) -> bool {
        match self {
            TaskError::CannotRun { .. } => true,
            TaskError::Raised { kind, .. } => kind == NO_MODULE,
            _ => false,
        }
    }

    /// The same error, naming that function and that server: the code that runs a task need not know them.
    pub fn named(mut self, its_function: &str, its_server: &str) -> TaskError {
        if let TaskError::Crashed { function, server, .. }
        | TaskError::Raised { function, server, .. }
        | TaskError::WrongResult { function, server, .. }
        | TaskError::CannotRun { function, server, .. }
        | TaskError::Refused { function, server, .. }
        | TaskError::ObjectLost { function, server, .. } = &mut self
        {
            its_function.clone_into(function);
            its_server.clone_into(server);
        }
        self
    }
}
