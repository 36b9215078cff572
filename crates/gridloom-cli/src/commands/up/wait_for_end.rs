//! Keeps a command running that has started parts inside an allocation of Slurm, until they have ended: they would end with it.
//!
//! It drains the servers before the allocation ends.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::process::{Process, wait_for};
use super::request::StayOptions;
use super::slurm::Allocation;

/// Interval between requests for the end of the allocation, which may be changed.
const POLL_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval before the next request if Slurm does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Waits until these parts have ended. Drains the servers before the allocation ends.
pub fn wait_and_drain(mut left: Vec<Process>, until: &StayOptions, drain: impl Fn() -> Result<()>) -> Result<()> {
    let mut drains = false;
    while !left.is_empty() {
        let wait = match time_left(until) {
            _ if drains => POLL_INTERVAL,
            Some(time) if time.is_zero() => {
                gridloom_base::stderr_line!("gridloom: the allocation {} ends soon: its servers drain", until.job);
                drain()?;
                drains = true;
                continue;
            }
            Some(time) => time.min(POLL_INTERVAL),
            None => RETRY_INTERVAL,
        };
        wait_for(&mut left, Instant::now() + wait)?;
    }
    Ok(())
}

/// Returns the time until the servers have to drain; `None` if Slurm does not report it.
fn time_left(until: &StayOptions) -> Option<Duration> {
    let allocation = Allocation::find(&until.job).ok()??;
    // An allocation without a time limit is checked again later.
    let left_s = allocation.left_s.map_or(POLL_INTERVAL.as_secs_f64(), |left_s| left_s - until.drain_s);
    Some(Duration::from_secs_f64(left_s.max(0.0)))
}
