//! Enforces the limit of the memory of a worker.
//!
//! The server regularly measures the memory of each worker and the processes that it has started, and kills a worker that
//! exceeds the limit. Its call fails with [`TaskError::MemoryExceeded`](gridloom_base::TaskError::MemoryExceeded).
//!
//! **Counted:** private memory, in RAM or swapped out. Memory that processes share after a fork counts once. Arguments and
//! results in shared memory belong to the store, which has a limit of its own.
//!
//! **Alternatives:** a limit of the address space (`RLIMIT_AS`) also counts memory that threads and numerical libraries
//! reserve but never use, and each library reports its violation in another way. A control group needs privileges that few
//! users have.
//!
//! **Limits:** a worker can exceed the limit for [`INTERVAL`].

use std::fs;
use std::time::{Duration, Instant};

use crate::children;

/// Interval of the checks. In this time, a process can fill at most some hundred megabytes.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of processes of one worker that are counted.
const PROCESSES_MAX: usize = 1024;

/// The memory limit of workers, and the time of the next check.
#[derive(Clone, Debug)]
pub(super) struct MemoryWatch {
    pub(super) limit_bytes: u64,
    next: Instant,
}

impl MemoryWatch {
    pub(super) fn new(limit_bytes: u64) -> MemoryWatch {
        MemoryWatch { limit_bytes, next: Instant::now() }
    }

    /// Returns the time of the next check.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Returns true if a check is due, and then schedules the next one.
    pub(super) fn take_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }
}

/// Returns the private memory of a process and its descendants in bytes. Processes that have ended count 0. A result up
/// to the limit is an upper bound: memory that a process shares with its parent after a fork counts for both.
pub(super) fn held_bytes(pid: i32, limit_bytes: u64) -> u64 {
    let most = sum(pid, resident_bytes);
    // The exact numbers take long: the kernel walks over all pages.
    if most > limit_bytes { sum(pid, proportional_bytes) } else { most }
}

fn sum(pid: i32, bytes: fn(i32) -> u64) -> u64 {
    let (mut left, mut sum) = (vec![pid], 0_u64);
    for _ in 0..PROCESSES_MAX {
        let Some(pid) = left.pop() else { break };
        sum = sum.saturating_add(bytes(pid));
        left.extend(children::of(pid));
    }
    sum
}

fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bytes = |name: &str| field_bytes(&status, name).unwrap_or(0);
    bytes("RssAnon:").saturating_add(bytes("VmSwap:"))
}

/// Returns the private memory of a process, with its part of what it shares.
fn proportional_bytes(pid: i32) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    match (field_bytes(&pages, "Pss_Anon:"), field_bytes(&pages, "SwapPss:")) {
        (Some(resident), Some(swapped)) => resident.saturating_add(swapped),
        // An old kernel, or a process that does not let others read this.
        _ => resident_bytes(pid),
    }
}

fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_memory_of_a_process_and_its_children_is_counted() {
        // The child of a child holds 40 MB.
        let script = "sh -c 'x=$(head -c 40000000 /dev/zero | tr \"\\\\0\" x); echo ready; read end; echo ${#x}'; true";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (mut output, mut line) = (BufReader::new(process.stdout.take().unwrap()), String::new());
        output.read_line(&mut line).unwrap();
        let held = held_bytes(process.id() as i32, u64::MAX);
        assert!((40_000_000..400_000_000).contains(&held), "{held}");
        drop(process.stdin.take());
        process.wait().unwrap();
        assert_eq!(held_bytes(i32::MAX, 0), 0);
    }

    #[test]
    fn memory_that_processes_share_after_a_fork_counts_once() {
        let script = "exec 3<&0; x=$(head -c 40000000 /dev/zero | tr '\\0' x); \
                      for i in 1 2 3 4; do (echo ready; read end; echo ${#x}) <&3 & done; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines();
        assert!(lines.by_ref().take(4).all(|line| line.unwrap() == "ready"));
        let pid = process.id() as i32;
        let (most, exact) = (held_bytes(pid, u64::MAX), held_bytes(pid, 0));
        assert!(most > 150_000_000 && (35_000_000..100_000_000).contains(&exact), "{most} {exact}");
        drop(process.stdin.take());
        process.wait().unwrap();
    }

    #[test]
    fn a_check_is_due_once_in_each_interval() {
        let mut watch = MemoryWatch::new(1);
        assert!(watch.take_due());
        watch.next = Instant::now() + Duration::from_secs(600);
        assert!(!watch.take_due());
    }
}
