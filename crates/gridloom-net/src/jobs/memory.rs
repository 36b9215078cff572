//! The limit of the memory that the functions of one worker hold, and the watch over it.
//!
//! The server reads from time to time how much memory a worker and the processes that it has started hold, and kills a worker that
//! exceeds the limit. Its call fails with [`TaskError::MemoryExceeded`](gridloom_base::TaskError::MemoryExceeded).
//!
//! **Counted:** private memory, in RAM or swapped out. Arguments and results in shared memory belong to the store, which
//! has a limit of its own.
//!
//! **Alternatives:** a limit of the address space (`RLIMIT_AS`) counts what threads and numerical libraries reserve and never use,
//! and its excess looks different in each library. A control group needs rights that few users have.
//!
//! **Limits:** a worker can exceed the limit for [`INTERVAL`].

use std::fs;
use std::time::{Duration, Instant};

/// Interval of the checks. A process touches at most some hundred megabytes in it.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of processes of one worker that are counted.
const PROCESSES_MAX: usize = 1024;

/// The watch over the memory of workers.
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

    /// Reports whether a check is due, and schedules the one after it.
    pub(super) fn take_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + INTERVAL;
        }
        is_due
    }
}

/// Returns the private memory of a process and its descendants. Those that have ended hold nothing.
pub(super) fn held_bytes(pid: i32) -> u64 {
    let (mut left, mut sum) = (vec![pid], 0_u64);
    for _ in 0..PROCESSES_MAX {
        let Some(pid) = left.pop() else { break };
        sum = sum.saturating_add(private_bytes(pid));
        left.extend(children(pid));
    }
    sum
}

fn private_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    kib("RssAnon:").saturating_add(kib("VmSwap:")).saturating_mul(1024)
}

/// Returns the children of all threads of a process; a kernel that does not list them reports none.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
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
        let held = held_bytes(process.id() as i32);
        assert!((40_000_000..400_000_000).contains(&held), "{held}");
        drop(process.stdin.take());
        process.wait().unwrap();
        assert_eq!(held_bytes(i32::MAX), 0);
    }

    #[test]
    fn a_check_is_due_once_in_each_interval() {
        let mut watch = MemoryWatch::new(1);
        assert!(watch.take_due());
        watch.next = Instant::now() + Duration::from_secs(600);
        assert!(!watch.take_due());
    }
}
