//! Counts the processes of a worker, for their limit (`watch`): the worker, its descendants, the members of its process
//! group, and their descendants. Processes that have ended and wait to be reaped do not count.
//!
//! **Limits:** a process that has begun a session of its own and whose parent has ended is not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The processes of this machine at one time.
#[derive(Debug, Default)]
pub(super) struct ProcessList {
    of_parent: BTreeMap<i32, Vec<i32>>,
    of_group: BTreeMap<i32, Vec<i32>>,
}

impl ProcessList {
    /// Reads the processes that exist.
    pub(super) fn read() -> ProcessList {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        // Names of processes need not be UTF-8.
        let status =
            |pid: i32| Some((pid, String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned()));
        ProcessList::of(pids.filter_map(status))
    }

    /// Makes a list of texts of `/proc/PID/stat`.
    fn of(statuses: impl Iterator<Item = (i32, String)>) -> ProcessList {
        let mut list = ProcessList::default();
        for (pid, status) in statuses {
            // The name before the last parenthesis may contain anything.
            let Some((_, fields)) = status.rsplit_once(')') else { continue };
            let mut fields = fields.split_whitespace();
            let (state, mut number) = (fields.next(), || fields.next()?.parse::<i32>().ok());
            let (Some(parent), Some(group)) = (number(), number()) else { continue };
            if !matches!(state, Some("Z" | "X")) {
                list.of_parent.entry(parent).or_default().push(pid);
                list.of_group.entry(group).or_default().push(pid);
            }
        }
        list
    }

    /// Returns the number of processes of a worker, itself included.
    pub(super) fn count(&self, worker: i32) -> u64 {
        let in_list = |list: &BTreeMap<i32, Vec<i32>>, key| list.get(&key).cloned().unwrap_or_default();
        let mut left = in_list(&self.of_group, worker);
        left.push(worker);
        let mut found = BTreeSet::new();
        while let Some(pid) = left.pop() {
            if found.insert(pid) {
                left.extend(in_list(&self.of_parent, pid));
            }
        }
        found.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_and_members_of_the_group_count_once() {
        let status = |pid: i32, state: &str, parent: i32, group: i32| {
            (pid, format!("{pid} (a) b) {state} {parent} {group} 1 0"))
        };
        let all = [
            status(10, "S", 1, 10),
            status(11, "S", 10, 10),
            // A session of its own.
            status(12, "R", 11, 12),
            // Its parent has ended.
            status(13, "S", 1, 10),
            status(14, "Z", 10, 10),
            status(20, "S", 1, 20),
            status(21, "S", 20, 20),
        ];
        let list = ProcessList::of(all.into_iter());
        assert_eq!((list.count(10), list.count(20), list.count(99)), (4, 2, 1));
    }

    #[test]
    fn the_processes_of_a_group_are_found() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & (sleep 60 &); echo ready; wait"]).stdout(Stdio::piped()).process_group(0);
        let mut worker = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(worker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = worker.id() as i32;
        let count = ProcessList::read().count(pid);
        let group = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        worker.wait().unwrap();
        assert_eq!(count, 3);
    }
}
