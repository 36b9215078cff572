//! Ends a mapping before it is done: this crate has no clock, so its caller tells when.
//!
//! A search that is stopped gives the best plan that it has found by then. A heuristic that makes its plan task by task has none
//! yet, and fails with [`MapError::Stopped`](crate::MapError::Stopped).

use std::fmt;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// Never.
    pub const NEVER: Stop = Stop(None);

    /// As soon as the function says so. It is asked for each task that is placed and each plan that is tried.
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
