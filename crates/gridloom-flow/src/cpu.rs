//! How an execution enters the sharing of a host (SimGrid's Cas01).
//!
//! ```text
//! s speed of one core    f what its profile multiplies it by    n cores    k threads    q priority    u user's bound
//!
//! capacity  n s f
//! penalty   1 / (k q)               a task's share grows with its priority and its threads
//! bound     k s f, at most u        one core for each thread
//! work      k times the flops of one thread
//! ```
//!
//! Hence n tasks of one thread on k cores of speed s run at min(s, k s / n) each.
//!
//! **Not done.** Memory bandwidth shared by cores.
//!
//! Source: SimGrid 4.1, `cpu_cas01`. There, an execution of several threads has neither priority nor bound of its own.

use super::resources::{Host, HostIndex};

/// An execution to start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Execution {
    pub host: HostIndex,
    /// Floating-point operations of each thread.
    pub work_flops: f64,
    /// Share beside others of the host; 1 for all alike.
    pub priority: f64,
    /// Never faster than that in all, flops per second; infinite for no bound.
    pub bound_flops: f64,
    /// Cores that it can use.
    pub threads: u32,
}

impl Execution {
    /// On one core, like all others.
    pub fn new(host: HostIndex, work_flops: f64) -> Execution {
        Execution { host, work_flops, priority: 1.0, bound_flops: f64::INFINITY, threads: 1 }
    }

    pub(super) fn penalty(&self) -> f64 {
        1.0 / (f64::from(self.threads) * self.priority)
    }
}

/// Bound of an execution on that host now.
pub(super) fn bound(host: &Host, threads: u32, bound_flops: f64) -> f64 {
    (f64::from(threads) * host.scale * host.nominal_flops).min(bound_flops)
}
