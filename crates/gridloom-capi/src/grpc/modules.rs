//! Modules that the session has initialised, which end with it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use gridloom::Grid;

#[derive(Default)]
pub(super) struct InitializedModules(Mutex<BTreeSet<String>>);

impl InitializedModules {
    pub(super) fn note(&self, module: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(module.to_string());
    }

    /// Gives their arguments up.
    pub(super) fn forget(&self, grid: &Grid) {
        let modules = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for module in modules {
            // An agent that is gone has forgotten them, or its successor hears of them by servers: they stay until somebody deletes them.
            let _ = grid.forget_module(&module);
        }
    }
}
