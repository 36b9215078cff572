//! Time limits of a plain call: for the whole call and for its transfers.
//!
//! The client enforces them. It learns from the server's transfer reports that large arguments have arrived there, and
//! from the report of the call's end that results are being sent. Small arguments travel with the call itself, so no
//! limit applies to them.

use std::collections::BTreeSet;

use gridloom_base::limits::RATE_REPORT_NS;
use gridloom_base::{TaskId, Time};
use serde::{Deserialize, Serialize};

/// Time limits in nanoseconds. `None` means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CallTimeouts {
    /// Limit from the call to its end, including all its runs.
    pub whole_ns: Option<u64>,
    /// Limit from sending the call to a server until its large arguments have arrived there, including the time that
    /// they wait for room.
    pub arguments_ns: Option<u64>,
    /// From the server's report of the call's end until its results have arrived at the client.
    pub results_ns: Option<u64>,
}

/// Creates a limit for the whole call only.
impl From<Option<u64>> for CallTimeouts {
    fn from(whole_ns: Option<u64>) -> CallTimeouts {
        CallTimeouts { whole_ns, ..CallTimeouts::default() }
    }
}

/// The part of a call that a limit applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitKind {
    Whole,
    Arguments,
    Results,
}

/// The times at which limits of calls expire.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(Time, TaskId)>);

impl Deadlines {
    pub(crate) fn add(&mut self, at: Option<Time>, task: TaskId) {
        self.0.extend(at.map(|at| (at, task)));
    }

    pub(crate) fn remove(&mut self, at: Option<Time>, task: TaskId) {
        if let Some(at) = at {
            self.0.remove(&(at, task));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Returns the calls whose limit has expired, in the order of expiry.
    pub(crate) fn past(&self, now: Time) -> Vec<TaskId> {
        self.0.iter().take_while(|(at, _)| *at <= now).map(|(_, task)| *task).collect()
    }
}

impl CallTimeouts {
    /// Returns when a transfer that begins now exceeds its limit.
    pub(super) fn deadline_of(&self, now: Time, transfer: LimitKind) -> Option<Time> {
        match transfer {
            LimitKind::Whole => None,
            // Servers report arrived data with a delay of up to one report interval.
            LimitKind::Arguments => self.arguments_ns.map(|limit| now + limit.saturating_add(RATE_REPORT_NS)),
            LimitKind::Results => self.results_ns.map(|limit| now + limit),
        }
    }

    /// Returns that limit in nanoseconds, or 0 if there is none.
    pub fn of(&self, limit: LimitKind) -> u64 {
        let limit_ns = match limit {
            LimitKind::Whole => self.whole_ns,
            LimitKind::Arguments => self.arguments_ns,
            LimitKind::Results => self.results_ns,
        };
        limit_ns.unwrap_or(0)
    }
}
