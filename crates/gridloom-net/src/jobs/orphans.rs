//! Kills the processes that a worker leaves behind when it is killed.
//!
//! Those of its process group end with it. Others are found in two ways: they are members of its session or descendants
//! ([`ProcessList`]), or they have its marker. Each worker gets a unique marker in its environment, and all its descendants
//! inherit it. The kernel reparents descendants whose parent has ended, so only the marker leads to those that have also begun a session of their own.
//!
//! A gang ends its processes itself at the end of a call, but cannot do so if it is killed.
//!
//! **Limits:** processes that have begun a session of their own, whose parent has ended, and that have cleared their
//! environment are not found. Nor are those that belong to another user or run on another machine. Nothing is searched for after the
//! server itself was killed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::processes::ProcessList;
use crate::identity::random;

/// Environment variable that identifies the worker, for the worker and all processes that its functions start.
const WORKER_VARIABLE: &str = "GRIDLOOM_WORKER";
/// Maximum number of scans of `/proc`. A scan that found new processes is repeated, because they may have started
/// others before they were killed.
const SCANS_MAX: usize = 16;

/// A worker process with its unique marker.
pub(super) struct MarkedChild {
    child: Child,
    marker: String,
}

impl MarkedChild {
    /// Starts the command with a new marker.
    ///
    /// # Errors
    /// If the system has no entropy, or the command cannot be started.
    pub(super) fn spawn(command: &mut Command) -> io::Result<MarkedChild> {
        let word = format!("{:016x}", u64::from_le_bytes(random()?));
        let child = command.env(WORKER_VARIABLE, &word).spawn()?;
        Ok(MarkedChild { child, marker: word })
    }

    /// Kills all its processes. Does not wait for their end: a killed process starts no others.
    pub(super) fn kill_all(&self) {
        let own = format!("{WORKER_VARIABLE}={}", self.marker).into_bytes();
        let mut killed = BTreeSet::new();
        for _ in 0..SCANS_MAX {
            let list = ProcessList::read();
            let of_worker = list.of_worker(self.child.id() as i32);
            let is_own = |pid: i32| (of_worker.contains(&pid) && list.is_current(pid)) || has_marker(pid, &own);
            let new: Vec<i32> = list.pids().filter(|pid| !killed.contains(pid) && kill_if(*pid, is_own)).collect();
            if new.is_empty() {
                return;
            }
            killed.extend(new);
        }
    }
}

impl Deref for MarkedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for MarkedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

/// Kills a process that `is_own`, and reports whether it did.
fn kill_if(pid: i32, is_own: impl Fn(i32) -> bool) -> bool {
    let Some(process) = Pid::from_raw(pid) else { return false };
    // The pidfd refers to this process even if its pid is reused.
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    is_own(pid) && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

/// Reports whether the environment of a process contains `own`. A process that has ended has no environment.
fn has_marker(pid: i32, own: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == own)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn members_of_the_session_end_even_without_the_marker() {
        let script = "(env -i sh -c 'sleep 20 & echo begun; sleep 20; echo alive' &); sleep 20; echo alive";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
        unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
        let mut worker = MarkedChild::spawn(&mut command).unwrap();
        let (mut output, mut told) = (BufReader::new(worker.stdout.take().unwrap()), String::new());
        output.read_line(&mut told).unwrap();
        worker.kill_all();
        output.read_to_string(&mut told).unwrap();
        assert_eq!((told.as_str(), worker.wait().unwrap().signal()), ("begun\n", Some(9)));
    }

    #[test]
    fn all_that_a_worker_has_started_ends_and_nothing_else() {
        // One descendant in its own session without its parent, and one below that. All of them hold the pipe.
        let script = "(setsid sh -c 'sleep 20 & echo begun; sleep 20; echo alive' &); sleep 20; echo alive";
        let mut command = Command::new("sh");
        let mut worker = MarkedChild::spawn(command.args(["-c", script]).stdout(Stdio::piped())).unwrap();
        let mut other = MarkedChild::spawn(Command::new("sleep").arg("20")).unwrap();
        let (mut output, mut told) = (BufReader::new(worker.stdout.take().unwrap()), String::new());
        output.read_line(&mut told).unwrap();
        worker.kill_all();
        output.read_to_string(&mut told).unwrap();
        assert_eq!((told.as_str(), worker.wait().unwrap().signal()), ("begun\n", Some(9)));
        assert!(other.try_wait().unwrap().is_none(), "it has another worker's word");
        other.kill_all();
        assert_eq!(other.wait().unwrap().signal(), Some(9));
    }
}
