//! Enforces the limits of a worker's memory and of the number of its processes.
//!
//! The server regularly measures each worker together with the processes that it has started. If they exceed a limit, it kills all of
//! them, and the running call fails with an error that names the limit and the remedy.
//!
//! **Limits:** a worker can exceed its limits for [`INTERVAL`]. If it is so large that measuring it takes long, it can do so for a few seconds.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::WorkerLimits;
use super::memory::held_bytes;
use super::processes::ProcessList;
use crate::threads::STACK_BYTES;

/// Interval between two checks. Within this time, a process can write to a few hundred megabytes at most.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a check is at least this many times as long as the check.
const CHECK_PAUSE_FACTOR: u32 = 20;
/// Longest pause, so that the limits are enforced for large workers, too.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A worker at the time when its check was requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MeasuredWorker {
    pub(super) pid: i32,
    /// Serial of the task that ran.
    pub(super) running: Option<u64>,
}

/// The limit that a worker exceeded, with the measured value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Excess {
    Memory { used_bytes: u64 },
    Processes { count: u64 },
    CallTime,
}

/// Workers with the limits that they exceed.
type Exceeding = Vec<(MeasuredWorker, Excess)>;

/// Measures workers against their limits, on a thread of its own: walking over the mappings of a large worker takes
/// long, and the event loop must not wait for it.
#[derive(Debug)]
pub(super) struct LimitWatch {
    /// Ends the thread when it is dropped.
    asked: Sender<Vec<MeasuredWorker>>,
    exceeding: Receiver<Exceeding>,
    is_measuring: bool,
    /// The processes that exceeded a limit in the last check.
    last_exceeding: BTreeSet<i32>,
    next: Instant,
}

impl LimitWatch {
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn new(limits: WorkerLimits) -> io::Result<LimitWatch> {
        let ((asked, workers), (found, exceeding)) = (channel::<Vec<MeasuredWorker>>(), channel());
        let measure = move || {
            for workers in workers {
                let begun = Instant::now();
                if found.send(exceeding_of(&limits, workers)).is_err() {
                    return;
                }
                // The server may end in the meantime.
                thread::sleep(pause(begun.elapsed()));
            }
        };
        thread::Builder::new().name("worker limits".into()).stack_size(STACK_BYTES).spawn(measure)?;
        Ok(LimitWatch { asked, exceeding, is_measuring: false, last_exceeding: BTreeSet::new(), next: Instant::now() })
    }

    /// Returns the time of the next call of [`LimitWatch::check`].
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Returns the workers to kill. These exceeded a limit in the last check, and either still run the same task or exceeded it
    /// in the check before, too: a task is not blamed for memory that the previous task has left behind. Starts another check of
    /// `workers` if one is due.
    pub(super) fn check(&mut self, workers: impl FnOnce() -> Vec<MeasuredWorker>) -> Exceeding {
        let now = Instant::now();
        if now < self.next {
            return Vec::new();
        }
        self.next = now + INTERVAL;
        let found = self.exceeding.try_recv().ok();
        if self.is_measuring && found.is_none() {
            return Vec::new();
        }
        let (workers, mut found) = (workers(), found.unwrap_or_default());
        let exceeding = found.iter().map(|(worker, _)| worker.pid).collect();
        let before = std::mem::replace(&mut self.last_exceeding, exceeding);
        found.retain(|(worker, _)| workers.contains(worker) || before.contains(&worker.pid));
        self.is_measuring = self.asked.send(workers).is_ok();
        found
    }
}

fn exceeding_of(limits: &WorkerLimits, workers: Vec<MeasuredWorker>) -> Exceeding {
    let all = limits.processes.map(|limit| (limit, ProcessList::read()));
    let excess = |worker: MeasuredWorker| {
        let count = all.as_ref().map(|(limit, list)| (*limit, list.of_worker(worker.pid).len() as u64));
        if let Some((limit, count)) = count
            && count > limit
        {
            return Some((worker, Excess::Processes { count }));
        }
        let limit = limits.memory_bytes?;
        let used_bytes = held_bytes(worker.pid, limit);
        (used_bytes > limit).then_some((worker, Excess::Memory { used_bytes }))
    };
    workers.into_iter().filter_map(excess).collect()
}

/// Returns the pause after a check, so that checks take only a small part of the time.
fn pause(check: Duration) -> Duration {
    (check * CHECK_PAUSE_FACTOR).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory_of_one_byte() -> LimitWatch {
        LimitWatch::new(WorkerLimits { memory_bytes: Some(1), ..WorkerLimits::default() }).unwrap()
    }

    #[test]
    fn a_long_check_delays_the_next_by_some_seconds_at_most() {
        assert_eq!(pause(Duration::from_millis(1)), Duration::from_millis(20));
        assert_eq!(pause(Duration::from_secs(60)), PAUSE_MAX);
    }

    #[test]
    fn a_process_above_the_limit_is_found() {
        let own = MeasuredWorker { pid: std::process::id() as i32, running: Some(1) };
        let mut watch = memory_of_one_byte();
        let found = loop {
            let found = watch.check(|| vec![own]);
            if !found.is_empty() {
                break found;
            }
            thread::yield_now();
        };
        assert!(found.len() == 1 && found[0].0 == own);
        assert!(matches!(found[0].1, Excess::Memory { used_bytes } if used_bytes > 1));
        assert!(watch.check(|| unreachable!("the next check is not due")).is_empty());
    }

    #[test]
    fn a_task_is_not_blamed_for_the_task_before_unless_the_memory_stays() {
        let (pid, mut watch, mut checks) = (std::process::id() as i32, memory_of_one_byte(), 0);
        loop {
            // Each check finds another task.
            let found = watch.check(|| {
                checks += 1;
                vec![MeasuredWorker { pid, running: Some(checks) }]
            });
            if !found.is_empty() {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(checks, 3, "the first two results are from other tasks");
    }
}
