//! The command that has started parts inside an allocation of Slurm stays until they have ended: they would end with it.
//!
//! It drains the servers before the allocation ends.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::process::{Process, wait_for};
use super::request::Stay;
use super::slurm::Allocation;

/// How often the end of the allocation is asked for: it may be moved.
const ASKED_EVERY: Duration = Duration::from_secs(3600);
/// If Slurm does not answer, it is asked again after.
const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// Until these parts have ended.
pub fn stay(mut left: Vec<Process>, until: &Stay, drain: impl Fn() -> Result<()>) -> Result<()> {
    let mut drains = false;
    while !left.is_empty() {
        let wait = match time_left(until) {
            _ if drains => ASKED_EVERY,
            Some(time) if time.is_zero() => {
                gridloom_base::say!("gridloom: the allocation {} ends soon: its servers drain", until.job);
                drain()?;
                drains = true;
                continue;
            }
            Some(time) => time.min(ASKED_EVERY),
            None => ASKED_AGAIN,
        };
        wait_for(&mut left, Instant::now() + wait)?;
    }
    Ok(())
}

/// Until the servers are to drain; `None` if Slurm does not say.
fn time_left(until: &Stay) -> Option<Duration> {
    let allocation = Allocation::find(&until.job).ok()??;
    // One without an end has long to go.
    let left_s = allocation.left_s.map_or(ASKED_EVERY.as_secs_f64(), |left_s| left_s - until.drain_s);
    Some(Duration::from_secs_f64(left_s.max(0.0)))
}
