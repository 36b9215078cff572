//! Call options: where a task may run, how often, and before which others.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use gridloom_base::{NodeId, Priority, TaskError};
use gridloom_idl::{UseKind, UsedName};

/// Call options. By default a task may run anywhere, and is restarted if its server is lost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CallOptions {
    /// The only server that may run it, if set. The task fails if that server is lost.
    pub bound_to: Option<NodeId>,
    /// Nesting depth of the call: 0 if a program made it, 1 if a function that a program called made it. Servers start
    /// nested calls first, because others wait for them.
    pub depth: u16,
    /// True for a measuring call: it runs only while the server has no other work, and fails if other work arrives.
    pub is_measuring: bool,
    /// True if it is sent only once, even if its server is lost, because it calls back its program or changes an
    /// object.
    pub is_once: bool,
    /// True if its program receives its output. Otherwise the output goes to the server's log. The server keeps the
    /// last lines in either case.
    pub wants_output: bool,
    /// Number of ranks, if its function runs on several; 0 for the server's default.
    pub ranks: u32,
    /// Display name of its function: the name of the function that the program sends along.
    pub label: Option<Box<str>>,
    /// The serial of an earlier failed call of its program, if this one retries it. Names that the earlier call put
    /// may be put again by this one.
    pub retry_of: Option<NonZeroU64>,
    /// Number of slots of its server that it takes at once and keeps until it ends, even while it calls back its
    /// program: it runs a gang of processes. 0 for one slot, which others may use while it waits.
    #[serde(default)]
    pub gang: u32,
    /// Orders the calls of one user at a server: lower numbers start first. At equal priority, a program's nested calls
    /// start before its other calls.
    #[serde(default)]
    pub priority: Priority,
    /// The program that made the outermost call, if this call is nested. When programs take turns, servers count the call
    /// as a call of that program.
    #[serde(default)]
    pub program: Option<NodeId>,
    /// The user to whom the call belongs. Servers set it from the certificate of the client. If the client is a function, it states
    /// the user of the call that it runs.
    #[serde(default)]
    pub user: Option<Box<str>>,
    /// Shared data that it gets and puts by name, as its function declares. Simulated servers transfer them. Real
    /// servers do not see this field: there the function itself gets and puts them.
    #[serde(skip)]
    pub uses: Box<[UsedName]>,
    /// Errors after which its client restarts it. Servers do not see this field.
    #[serde(skip)]
    pub retry: Option<Arc<Retry>>,
}

impl CallOptions {
    /// Returns the names that it gets, or those that it puts.
    pub fn uses_matching(&self, does: impl Fn(UseKind) -> bool) -> impl Iterator<Item = &UsedName> {
        self.uses.iter().filter(move |used| does(used.kind))
    }
}

/// The errors after which a task is restarted, and how often.
#[derive(Clone, PartialEq, Debug)]
pub struct Retry {
    /// Largest number of restarts.
    pub times: u32,
    /// Restart after a crash of its worker process.
    pub crashes: bool,
    /// Restart after exceptions of these classes, by name; `None` means all classes.
    pub raised: Option<BTreeSet<String>>,
}

impl Retry {
    /// True if the task is restarted after that error. A restart cannot fix a mistake of the caller.
    pub fn covers(&self, error: &TaskError) -> bool {
        match error {
            TaskError::Crashed { .. } => self.crashes,
            TaskError::Raised { kind, .. } => self.raised.as_ref().is_none_or(|kinds| kinds.contains(kind)),
            _ => false,
        }
    }
}

/// The servers where a task has failed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Failures {
    /// Includes those in `unable`.
    servers: BTreeSet<NodeId>,
    /// Servers that lack what the task needs, as its program knows.
    unable: BTreeSet<NodeId>,
    runs: u32,
}

impl Failures {
    /// Creates the record of earlier attempts that the program made: they count as no runs of this task.
    pub fn of_attempts(failed: impl IntoIterator<Item = NodeId>, unable: impl IntoIterator<Item = NodeId>) -> Failures {
        let unable: BTreeSet<NodeId> = unable.into_iter().collect();
        Failures { servers: failed.into_iter().chain(unable.iter().copied()).collect(), unable, runs: 0 }
    }

    pub fn push(&mut self, server: NodeId, error: &TaskError) {
        self.servers.insert(server);
        // A task for which the server lacks something has not run.
        self.runs += u32::from(!error.may_succeed_elsewhere());
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Returns the number of runs that ended in an error.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// True if that server lacks what the task needs.
    pub fn is_unable(&self, server: NodeId) -> bool {
        self.unable.contains(&server)
    }

    /// True if it has failed on that server.
    pub fn at(&self, server: NodeId) -> bool {
        self.servers.contains(&server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::RaisedCause;

    #[test]
    fn a_retry_covers_crashes_and_the_named_exceptions() {
        let raised = |kind: &str| TaskError::Raised {
            function: "m/f".into(),
            server: "s".into(),
            kind: kind.into(),
            message: String::new(),
            traceback: String::new(),
            cause: RaisedCause::Function,
        };
        let crashed = TaskError::Crashed { function: "m/f".into(), server: "s".into(), how: "signal 9".into() };
        let named = Retry { times: 1, crashes: false, raised: Some(BTreeSet::from(["OSError".to_string()])) };
        assert!(named.covers(&raised("OSError")) && !named.covers(&raised("ValueError")) && !named.covers(&crashed));
        let any = Retry { times: 1, crashes: true, raised: None };
        assert!(any.covers(&raised("ValueError")) && any.covers(&crashed));
        for error in [TaskError::Cancelled, TaskError::DeadlineExceeded { limit_seconds: 1.0 }] {
            assert!(!any.covers(&error), "{error}");
        }
    }

    #[test]
    fn what_could_not_be_started_counts_as_no_run() {
        let mut failures = Failures::default();
        let cannot = TaskError::CannotRun { function: "m/f".into(), server: "s".into(), why: "no module".into() };
        failures.push(NodeId(2), &cannot);
        failures.push(NodeId(3), &TaskError::Cancelled);
        assert_eq!((failures.runs(), failures.at(NodeId(2)), failures.at(NodeId(4))), (1, true, false));
    }
}
