//! Data of a session: named, put into the client's store, brought here, released.

use std::time::Duration;

use gridloom_core::base::{DatumId, TaskError};
use gridloom_core::node::Command;

use super::state::State;
use crate::{Error, Grid, Value};

impl Grid {
    pub(crate) fn new_datum(&self) -> DatumId {
        DatumId { client: self.0.client, serial: self.next_serial() }
    }

    pub(crate) fn put(&self, datum: DatumId, value: &Value) {
        self.0.backend.put(datum, value);
    }

    pub(crate) fn forget_values(&self, data: Vec<DatumId>) {
        for datum in data {
            self.0.backend.forget(datum);
        }
    }

    pub(crate) fn get(&self, datum: DatumId, limit: Option<Duration>) -> Result<Value, Error> {
        // Whoever waits sees the same answer, also the one that another's question brought.
        self.state().gets.entry(datum).or_default().waiters += 1;
        self.command(Command::Get { datum });
        let asked = |state: &State| state.gets.get(&datum).and_then(|asked| asked.answer.clone());
        let answer = self.wait(limit, |state| asked(state));
        let mut state = self.state();
        state.seen(datum);
        if let Ok(Err(error)) = &answer {
            // Also the failure that this one follows from.
            let root = match error {
                TaskError::DependencyFailed { task, .. } => state.group_of_task.get(task).copied(),
                _ => None,
            };
            for group in state.group_of_datum.get(&datum).copied().into_iter().chain(root) {
                if let Some(record) = state.groups.get_mut(&group) {
                    record.is_told = true;
                }
            }
        }
        drop(state);
        let meta = answer??;
        // The store keeps it while the handle lives, so that it need not come twice.
        Ok(self.0.backend.value(datum).unwrap_or_else(|| Value::placeholder(meta)))
    }

    /// Has a datum brought here as soon as it is made.
    pub(crate) fn prefetch(&self, datum: DatumId) {
        self.command(Command::Get { datum });
    }

    pub(crate) fn release_later(&self, datum: DatumId) {
        self.0.releases.lock().expect("no panic while held").push(datum);
    }
}
