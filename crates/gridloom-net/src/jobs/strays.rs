//! What a gang has left behind when its worker is killed.
//!
//! A worker ends that itself at the end of a call, which it cannot if it is killed. The kernel then gives the processes away that were its
//! descendants, and those that have begun a session of their own are not in its process group. So each worker has a word in its environment that no
//! other one has. All that comes from it inherits that word, and the server looks for it.
//!
//! **Limits:** processes that have cleared their environment, that are of another user, or that another machine runs, are not found. Nothing is
//! looked for after the server itself was killed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::identity::random;

/// In the environment of a worker, and of what its functions start: which worker it is.
const WORKER_VARIABLE: &str = "GRIDLOOM_WORKER";
/// So often a look follows that has found new ones: these may have started others before they were killed.
const LOOKS_MAX: usize = 16;

/// A worker's process, with a word of its own.
pub(super) struct MarkedChild {
    child: Child,
    word: String,
}

impl MarkedChild {
    /// # Errors
    /// If the system has no entropy, or the command cannot be started.
    pub(super) fn spawn(command: &mut Command) -> io::Result<MarkedChild> {
        let word = format!("{:016x}", u64::from_le_bytes(random()?));
        let child = command.env(WORKER_VARIABLE, &word).spawn()?;
        Ok(MarkedChild { child, word })
    }

    /// Kills all that have its word. It does not wait for their end: one that is killed starts no other.
    pub(super) fn end_all(&self) {
        let own = format!("{WORKER_VARIABLE}={}", self.word).into_bytes();
        let mut killed = BTreeSet::new();
        for _ in 0..LOOKS_MAX {
            let Ok(all) = fs::read_dir("/proc") else { return };
            let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
            let new: Vec<i32> = pids.filter(|pid| !killed.contains(pid) && end(*pid, &own)).collect();
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

/// Kills that process if it has that in its environment; whether it has. One that has ended has none.
fn end(pid: i32, own: &[u8]) -> bool {
    let Some(process) = Pid::from_raw(pid) else { return false };
    // It stands for that process, also if another one gets its number.
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
        // One in a session of its own without its parent, and one below it. All of them hold the pipe.
        let script = "(setsid sh -c 'sleep 20 & echo begun; sleep 20; echo alive' &); sleep 20; echo alive";
        let mut command = Command::new("sh");
        let mut worker = MarkedChild::spawn(command.args(["-c", script]).stdout(Stdio::piped())).unwrap();
        let mut other = MarkedChild::spawn(Command::new("sleep").arg("20")).unwrap();
        let (mut output, mut told) = (BufReader::new(worker.stdout.take().unwrap()), String::new());
        output.read_line(&mut told).unwrap();
        worker.end_all();
        output.read_to_string(&mut told).unwrap();
        assert_eq!((told.as_str(), worker.wait().unwrap().signal()), ("begun\n", Some(9)));
        assert!(other.try_wait().unwrap().is_none(), "it has another worker's word");
        other.end_all();
        assert_eq!(other.wait().unwrap().signal(), Some(9));
    }
}
