//! The processes of a worker, to count them for their limit (`watch`) and to kill them: the worker, its descendants, the members of its
//! session, and their descendants. Processes that have ended and wait to be reaped do not count.
//!
//! Each worker leads a session, and processes can neither join the session of another worker nor its process groups.
//!
//! **Limits:** a process that has begun a session of its own and whose parent has ended is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// The processes of this machine at one time.
#[derive(Debug, Default)]
pub(super) struct ProcessList {
    all: BTreeMap<i32, Relatives>,
    of_parent: BTreeMap<i32, Vec<i32>>,
    of_session: BTreeMap<i32, Vec<i32>>,
}

/// The parent and the session of a process that has not ended.
type Relatives = (i32, i32);

impl ProcessList {
    /// Reads the processes that exist.
    pub(super) fn read() -> ProcessList {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        ProcessList::of(pids.filter_map(|pid| Some((pid, relatives(&status_of(pid)?)?))))
    }

    fn of(processes: impl Iterator<Item = (i32, Relatives)>) -> ProcessList {
        let mut list = ProcessList::default();
        for (pid, (parent, session)) in processes {
            list.all.insert(pid, (parent, session));
            list.of_parent.entry(parent).or_default().push(pid);
            list.of_session.entry(session).or_default().push(pid);
        }
        list
    }

    /// Returns the processes in the list.
    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.all.keys().copied()
    }

    /// Reports whether a process still has the parent and the session that it has in the list. Otherwise it may be another process
    /// with the same number.
    pub(super) fn is_current(&self, pid: i32) -> bool {
        let now = status_of(pid).and_then(|status| relatives(&status));
        now.is_some() && now.as_ref() == self.all.get(&pid)
    }

    /// Returns the processes of a worker, itself included.
    pub(super) fn of_worker(&self, worker: i32) -> BTreeSet<i32> {
        let in_list = |list: &BTreeMap<i32, Vec<i32>>, key| list.get(&key).cloned().unwrap_or_default();
        let mut left = in_list(&self.of_session, worker);
        left.push(worker);
        let mut found = BTreeSet::new();
        while let Some(pid) = left.pop() {
            if found.insert(pid) {
                left.extend(in_list(&self.of_parent, pid));
            }
        }
        found
    }
}

/// Returns the processor time that a process has used, without its children.
pub(super) fn processor_time(pid: i32) -> Option<Duration> {
    let status = status_of(pid)?;
    let mut fields = fields(&status)?.skip(11).map_while(|field| field.parse::<u64>().ok());
    let ticks = fields.next()? + fields.next()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(ticks.saturating_mul(1000) / per_second))
}

/// Returns the text of `/proc/PID/stat`. Names of processes need not be UTF-8.
fn status_of(pid: i32) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned())
}

/// Returns the fields of such a text, from the state on.
fn fields(status: &str) -> Option<impl Iterator<Item = &str>> {
    // The name before the last parenthesis may contain anything.
    Some(status.rsplit_once(')')?.1.split_whitespace())
}

fn relatives(status: &str) -> Option<Relatives> {
    let mut fields = fields(status)?;
    let state = fields.next()?;
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, _group, session) = (number()?, number()?, number()?);
    (!matches!(state, "Z" | "X")).then_some((parent, session))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn descendants_and_members_of_the_session_count_once() {
        let status = |pid: i32, state: &str, parent: i32, group: i32, session: i32| {
            let text = format!("{pid} (a) b) {state} {parent} {group} {session} 0");
            Some((pid, relatives(&text)?))
        };
        let all = [
            status(10, "S", 1, 10, 10),
            status(11, "S", 10, 10, 10),
            // A session of its own.
            status(12, "R", 11, 12, 12),
            // Its parent has ended. It has a group of its own.
            status(13, "S", 1, 13, 10),
            status(14, "Z", 10, 10, 10),
            status(20, "S", 1, 20, 20),
            status(21, "S", 20, 20, 20),
        ];
        let list = ProcessList::of(all.into_iter().flatten());
        let count = |worker| list.of_worker(worker).len();
        assert_eq!((count(10), count(20), count(99)), (4, 2, 1));
    }

    #[test]
    fn the_processes_of_a_session_are_found() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & (sleep 60 &); echo ready; wait"]).stdout(Stdio::piped());
        // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
        unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
        let mut worker = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(worker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let found = ProcessList::read().of_worker(worker.id() as i32);
        for pid in &found {
            let process = rustix::process::Pid::from_raw(*pid).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        }
        worker.wait().unwrap();
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn the_processor_time_of_a_process_grows_while_it_computes() {
        let own = std::process::id() as i32;
        let (before, begin) = (processor_time(own).unwrap(), Instant::now());
        while processor_time(own).unwrap() < before + Duration::from_millis(20) {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(processor_time(i32::MAX), None);
    }
}
