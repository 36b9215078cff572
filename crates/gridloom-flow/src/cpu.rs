//! How an execution shares a host (SimGrid's Cas01).
//!
//! ```text
//! s speed of one core    f profile factor    n cores    k threads    q priority    u user's bound
//!
//! capacity  n s f
//! penalty   1 / (k q)               a task's share grows with its priority and its threads
//! bound     k s f, at most u        one core for each thread
//! work      k times the flops of one thread
//! ```
//!
//! So n single-threaded tasks on k cores of speed s run at min(s, k s / n) each.
//!
//! **Not modelled.** Memory bandwidth shared by cores.
//!
//! Source: SimGrid 4.1, `cpu_cas01`. There, a multi-threaded execution has neither a priority nor a bound of its own.

use super::resources::{Host, HostIndex};

/// An execution to start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Execution {
    pub host: HostIndex,
    /// Floating-point operations per thread.
    pub work_flops: f64,
    /// Share relative to other executions on the host; 1 if all have equal shares.
    pub priority: f64,
    /// Upper limit on the total rate, flops per second; infinite for no limit.
    pub bound_flops: f64,
    /// Number of cores that it can use.
    pub threads: u32,
}

impl Execution {
    /// Creates an execution on one core with the default priority and no limit.
    pub fn new(host: HostIndex, work_flops: f64) -> Execution {
        Execution { host, work_flops, priority: 1.0, bound_flops: f64::INFINITY, threads: 1 }
    }

    pub(super) fn penalty(&self) -> f64 {
        1.0 / (f64::from(self.threads) * self.priority)
    }
}

/// Returns the current bound of an execution on a host.
pub(super) fn bound(host: &Host, threads: u32, bound_flops: f64) -> f64 {
    (f64::from(threads) * host.scale * host.nominal_flops).min(bound_flops)
}
