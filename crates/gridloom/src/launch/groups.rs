//! Launched groups. The session forgets them with the last object that could query them: the group itself, its handles, or
//! other groups that were launched with them.

use std::sync::{Arc, Mutex, MutexGuard};

use gridloom_base::{GroupId, TaskId};

use crate::session::Session;

/// The launched parts of a group.
pub(crate) struct Parts {
    session: Session,
    /// Identifies the group among those that are launched.
    number: u64,
    all: Mutex<Vec<Arc<Part>>>,
    /// Its own tasks, if others may be launched with them.
    tasks: Mutex<Vec<TaskId>>,
}

/// Calls that were mapped together.
pub(crate) struct Part {
    session: Session,
    pub(crate) id: GroupId,
    /// Number of groups to which it belongs.
    pub(crate) together: usize,
}

impl Parts {
    pub(crate) fn new(session: &Session) -> Arc<Parts> {
        let number = session.launches().number_group();
        Arc::new(Parts { session: session.clone(), number, all: Mutex::default(), tasks: Mutex::default() })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, Vec<Arc<Part>>> {
        self.all.lock().expect("no panic while held")
    }

    pub(crate) fn ids(&self) -> Vec<GroupId> {
        self.all().iter().map(|part| part.id).collect()
    }

    pub(crate) fn add(&self, id: GroupId) {
        self.all().push(Part::new(&self.session, id, 1));
    }

    pub(crate) fn tasks(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.tasks.lock().expect("no panic while held")
    }
}

impl Part {
    pub(crate) fn new(session: &Session, id: GroupId, together: usize) -> Arc<Part> {
        Arc::new(Part { session: session.clone(), id, together })
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parts({})", self.all().len())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.session.forget_group_later(self.id);
    }
}
