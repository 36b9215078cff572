//! Ends of calls that have to be reported as they arrive: a program may have very many calls in progress and wait for some of
//! them.

use std::collections::BTreeSet;

use gridloom_base::TaskId;

/// Calls whose ends have to be reported.
#[derive(Default)]
pub(crate) struct EndNotifications {
    /// Calls in progress.
    noted: BTreeSet<TaskId>,
    /// Calls that have ended and are not reported yet.
    untold: Vec<TaskId>,
}

impl EndNotifications {
    pub(crate) fn on_end(&mut self, task: TaskId) {
        if self.noted.remove(&task) {
            self.untold.push(task);
        }
    }

    pub(crate) fn forget(&mut self, task: TaskId) {
        self.noted.remove(&task);
    }

    pub(crate) fn note(&mut self, task: TaskId, has_ended: bool) {
        match has_ended {
            true => self.untold.push(task),
            false => drop(self.noted.insert(task)),
        }
    }

    /// Takes the ends that are not reported yet.
    pub(crate) fn take(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.untold)
    }

    pub(crate) fn check(&self) {
        assert!(self.untold.iter().all(|task| !self.noted.contains(task)), "a call that has ended is not under way");
    }
}
