//! Ends a mapping before it is done. This crate has no clock, so its caller decides when.
//!
//! A search that is stopped returns the best plan that it has found so far. A heuristic that builds its plan task by task has
//! none yet, and fails with [`MapError::Stopped`](crate::MapError::Stopped).

use std::fmt;
use std::sync::Arc;

/// A stop condition; see the module.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// Never stops.
    pub const NEVER: Stop = Stop(None);

    /// Stops as soon as the function returns true. It is called for each task that is placed and each plan that is tried.
    pub fn when(is_stopped: impl Fn() -> bool + Send + Sync + 'static) -> Stop {
        Stop(Some(Arc::new(is_stopped)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|is_stopped| is_stopped())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop::when" } else { "Stop::NEVER" })
    }
}
