//! On what terms a task runs: where, how often, before which others.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use gridloom_base::{NodeId, TaskError};
use gridloom_idl::{Does, UsedName};

/// See the module. By default a task may run anywhere, and again if its server is lost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Terms {
    /// The server that has to run it, if one has to; if that is lost it fails.
    pub only: Option<NodeId>,
    /// How many calls it is nested in: 0 if a program made it, 1 if a function did that a program called. Servers start nested
    /// calls first, as others wait for them.
    pub depth: u16,
    /// It is to be measured: it runs only while nothing else does there, and fails if something comes.
    pub calibrates: bool,
    /// It is sent once, even if its server is lost: it calls its program back, or changes an object.
    pub is_once: bool,
    /// Its program wants what it says. Else that goes to the log of the server. The server keeps the last lines in any case.
    pub tells: bool,
    /// How many ranks it wants, if its function runs on several; 0 for those of the server.
    pub ranks: u32,
    /// What people see for its function: the name of the one that a program sends along, which its function runs.
    pub label: Option<Box<str>>,
    /// The serial of an earlier call of its program that failed, if this one is that call once more. What that one has put by name, this one
    /// may put again.
    pub repeats: Option<NonZeroU64>,
    /// How many slots of its server it takes at once, and keeps until it ends, also while it calls its program back: it runs a gang
    /// of processes. 0 for one slot, which others may have meanwhile.
    #[serde(default)]
    pub gang: u32,
    /// Shared data that it gets and puts by name, as its function declares. Servers of a simulation move them. Real ones do not see it:
    /// there the function does.
    #[serde(skip)]
    pub uses: Box<[UsedName]>,
    /// After which errors its client has it run again. Servers do not see it.
    #[serde(skip)]
    pub retry: Option<Arc<Retry>>,
}

impl Terms {
    /// What it gets, or what it puts.
    pub fn uses_that(&self, does: impl Fn(Does) -> bool) -> impl Iterator<Item = &UsedName> {
        self.uses.iter().filter(move |used| does(used.does))
    }
}

/// After which errors a task runs again, and how often.
#[derive(Clone, PartialEq, Debug)]
pub struct Retry {
    /// At most so often, the first run not counted.
    pub times: u32,
    /// After a crash of its worker process.
    pub crashes: bool,
    /// After exceptions of these classes, by name; `None` stands for all.
    pub raised: Option<BTreeSet<String>>,
}

impl Retry {
    /// Whether the task runs again after that error. Mistakes of the caller are not mended by a further run.
    pub fn covers(&self, error: &TaskError) -> bool {
        match error {
            TaskError::Crashed { .. } => self.crashes,
            TaskError::Raised { kind, .. } => self.raised.as_ref().is_none_or(|kinds| kinds.contains(kind)),
            _ => false,
        }
    }
}

/// Where a task has failed.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    servers: BTreeSet<NodeId>,
    runs: u32,
}

impl Failures {
    pub fn push(&mut self, server: NodeId, error: &TaskError) {
        self.servers.insert(server);
        // What could not be started has not run.
        self.runs += u32::from(!error.is_of_server());
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Runs that ended in an error.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// Whether it has failed there.
    pub fn at(&self, server: NodeId) -> bool {
        self.servers.contains(&server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_covers_crashes_and_the_named_exceptions() {
        let raised = |kind: &str| TaskError::Raised {
            function: "m/f".into(),
            server: "s".into(),
            kind: kind.into(),
            message: String::new(),
            traceback: String::new(),
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
