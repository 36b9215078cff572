//! Kills the processes that a gang has left behind when its worker is killed.
//!
//! A worker ends them itself at the end of a call, but cannot do so if it is killed. The kernel then reparents its
//! descendants, and those that have started a session of their own are no longer in its process group. Each worker
//! therefore gets a unique marker in its environment. All its descendants inherit the marker, and the server searches
//! for it.
//!
//! **Limits:** processes that have cleared their environment, belong to another user, or run on another machine are
//! not found. Nothing is searched for after the server itself was killed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

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

    /// Kills all processes with the marker. Does not wait for their end: a killed process starts no others.
    pub(super) fn kill_all(&self) {
        let own = format!("{WORKER_VARIABLE}={}", self.marker).into_bytes();
        let mut killed = BTreeSet::new();
        for _ in 0..SCANS_MAX {
            let Ok(all) = fs::read_dir("/proc") else { return };
            let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
            let new: Vec<i32> = pids.filter(|pid| !killed.contains(pid) && kill_if_marked(*pid, &own)).collect();
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

/// Kills the process if its environment contains `own`, and reports whether it did. A process that has ended has no environment.
fn kill_if_marked(pid: i32, own: &[u8]) -> bool {
    let Some(process) = Pid::from_raw(pid) else { return false };
    // The pidfd refers to this process even if its pid is reused.
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|variable| variable == own)
        && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

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
