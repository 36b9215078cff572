//! Ends the orphan processes of a gang at the end of its call.
//!
//! While a gang runs, its worker adopts every descendant whose parent has ended (`PR_SET_CHILD_SUBREAPER`), including
//! those that have started a session of their own. At the end of the call the worker kills all children that it did
//! not have before.
//!
//! **Limits:** a process that has not ended 5 s after it was killed, such as a process of another user, is reported
//! and left. The kernel must be able to list children (`CONFIG_PROC_CHILDREN`). If the worker itself is killed, its
//! server searches for them (`jobs::orphans`).

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

use crate::children;

/// Maximum time to wait for killed processes.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks for remaining processes.
const PAUSE: Duration = Duration::from_millis(2);

/// Ends orphan processes when it is dropped.
#[derive(Debug)]
pub(super) struct OrphanReaper {
    before: BTreeSet<i32>,
}

impl OrphanReaper {
    /// Starts adopting orphan processes.
    ///
    /// # Errors
    /// If the system cannot make this process their parent.
    pub(super) fn watch() -> io::Result<OrphanReaper> {
        set_child_subreaper(Some(getpid()))?;
        Ok(OrphanReaper { before: children::of("self") })
    }
}

impl Drop for OrphanReaper {
    fn drop(&mut self) {
        let until = Instant::now() + END_TIMEOUT;
        loop {
            let left = children::of("self");
            let left: Vec<Pid> = left.difference(&self.before).filter_map(|pid| Pid::from_raw(*pid)).collect();
            if left.is_empty() {
                break;
            }
            for pid in &left {
                // A child that nothing has waited for keeps its pid. A process of another user, or one blocked in the
                // kernel, does not end here.
                let _ = kill_process(*pid, Signal::KILL);
                let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
            }
            if Instant::now() >= until {
                let pids: Vec<String> = left.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
                gridloom_base::stderr_line!(
                    "gridloom: orphan processes of the program have not ended {} s after they were killed: {}",
                    END_TIMEOUT.as_secs(),
                    pids.join(", ")
                );
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let _ = set_child_subreaper(None);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// The test below runs this one in a process of its own, because it makes its process the parent of others, and
    /// kills children.
    #[test]
    #[ignore = "a process of another test"]
    fn a_gang_ends() {
        let mut before = Command::new("sleep").arg("20").spawn().unwrap();
        let strays = OrphanReaper::watch().unwrap();
        // The process in its own session is adopted by this process when its parent ends. Both hold the pipe.
        let script = "setsid sh -c 'sleep 20; echo alive' & exit 3";
        let mut gang = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(gang.wait().unwrap().code(), Some(3));
        let of_gang = children::of("self");
        assert!(of_gang.contains(&(before.id() as i32)) && of_gang.len() == 2, "{of_gang:?}");
        drop(strays);
        let mut told = String::new();
        gang.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!((told.as_str(), children::of("self")), ("", BTreeSet::from([before.id() as i32])));
        assert!(before.try_wait().unwrap().is_none(), "it was there before");
        before.kill().unwrap();
        assert_eq!(before.wait().unwrap().signal(), Some(9));
        println!("the gang has ended");
    }

    #[test]
    fn what_a_gang_leaves_behind_ends_and_what_was_there_before_stays() {
        let name = format!("{}::a_gang_ends", module_path!().split_once("::").unwrap().1);
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", "--ignored", "--nocapture", &name]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("the gang has ended"), "{told}");
    }
}
