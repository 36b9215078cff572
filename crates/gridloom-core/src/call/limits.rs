//! Time limits of a plain call: of the whole, and of its transfers.
//!
//! The client keeps them. It learns that large arguments are at their server from the server's reports of transfers, and that results
//! are on their way from the report of the call's end. Small arguments travel with the call itself, so that no limit concerns them.

use std::collections::BTreeSet;

use gridloom_base::limits::RATE_REPORT_NS;
use gridloom_base::{TaskId, Time};

/// Time limits, nanoseconds; each may be none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CallLimits {
    /// From the call to its end, all its runs together.
    pub whole_ns: Option<u64>,
    /// From when it is sent to a server until its large arguments are there. What it waits for room there counts.
    pub arguments_ns: Option<u64>,
    /// From when its server says that it has ended until its results are here.
    pub results_ns: Option<u64>,
}

/// Of the whole alone.
impl From<Option<u64>> for CallLimits {
    fn from(whole_ns: Option<u64>) -> CallLimits {
        CallLimits { whole_ns, ..CallLimits::default() }
    }
}

/// What may have taken too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    Whole,
    Arguments,
    Results,
}

/// When limits of calls run out.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Time, TaskId)>);

impl Deadlines {
    pub(super) fn add(&mut self, at: Option<Time>, task: TaskId) {
        self.0.extend(at.map(|at| (at, task)));
    }

    pub(super) fn remove(&mut self, at: Option<Time>, task: TaskId) {
        if let Some(at) = at {
            self.0.remove(&(at, task));
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Calls that are past a limit, in the order in which these ran out.
    pub(super) fn past(&self, now: Time) -> Vec<TaskId> {
        self.0.iter().take_while(|(at, _)| *at <= now).map(|(_, task)| *task).collect()
    }
}

impl CallLimits {
    /// When a transfer that begins now is late.
    pub(super) fn late_at(&self, now: Time, transfer: Limit) -> Option<Time> {
        match transfer {
            Limit::Whole => None,
            // Servers report what has come in a while.
            Limit::Arguments => self.arguments_ns.map(|limit| now + limit.saturating_add(RATE_REPORT_NS)),
            Limit::Results => self.results_ns.map(|limit| now + limit),
        }
    }

    /// That limit, nanoseconds.
    pub fn of(&self, limit: Limit) -> u64 {
        let limit_ns = match limit {
            Limit::Whole => self.whole_ns,
            Limit::Arguments => self.arguments_ns,
            Limit::Results => self.results_ns,
        };
        limit_ns.unwrap_or(0)
    }
}
