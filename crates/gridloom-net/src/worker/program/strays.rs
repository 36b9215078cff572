//! What the processes of a gang leave behind ends with their call.
//!
//! While a gang runs, its worker is the parent of every process that lost its own among them (`PR_SET_CHILD_SUBREAPER`), also of one that
//! has begun a session of its own. At the end of the call the worker kills all children that it did not have before.
//!
//! **Limit:** the kernel must list children (`CONFIG_PROC_CHILDREN`). Where the worker itself is killed, only those of its process group end.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

/// Processes that leave others while they are killed get so many rounds.
const ROUNDS_MAX: usize = 1000;

/// Ends them when it is dropped.
#[derive(Debug)]
pub(super) struct Strays {
    before: BTreeSet<i32>,
}

impl Strays {
    /// # Errors
    /// If the system does not make this process the parent.
    pub(super) fn watch() -> io::Result<Strays> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Strays { before: children() })
    }
}

impl Drop for Strays {
    fn drop(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let left = children();
            let left: Vec<Pid> = left.difference(&self.before).filter_map(|pid| Pid::from_raw(*pid)).collect();
            if left.is_empty() {
                break;
            }
            for pid in left {
                // A child that nothing has waited for keeps its number. Either call fails only if it has ended.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
            }
        }
        let _ = set_child_subreaper(None);
    }
}

/// The children of all threads of this process.
fn children() -> BTreeSet<i32> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}
