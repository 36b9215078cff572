//! Python's objects of a session, and how they are released.
//!
//! **Invariant.** They are in slots that [`Session::close`] empties. So the session ends then, whatever functions and
//! handles still exist.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::error;
use crate::lock;
use crate::wait::forget_helpers;

/// An object of a session that [`Session::close`] takes away.
///
/// It works only in the process that made it. A forked child gets an error before it takes a lock, since a thread that
/// does not exist in the child may hold the lock. For the same reason a child never drops the content.
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>, u32);

/// Number of forks that led to this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in a child after a fork.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    forget_helpers();
}

/// Returns the number of processors that this process may use.
#[pyfunction]
pub(crate) fn processors() -> usize {
    gridloom_resources::processors()
}

/// Returns the bytes of a size such as `8GiB`, or raises `ValueError` with the reason.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<u64> {
    gridloom_base::size::parse_size(text).map_err(pyo3::exceptions::PyValueError::new_err)
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Slot<T> {
        Slot(self.0.clone(), self.1)
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.1 != FORKS.load(Ordering::Relaxed) {
            std::mem::forget(self.0.clone());
        }
    }
}

trait Clear: Send + Sync {
    fn clear(&self);
}

impl<T: Send> Clear for Mutex<Option<T>> {
    fn clear(&self) {
        let held = lock(self).take();
        drop(held);
    }
}

impl<T: Send + 'static> Slot<T> {
    pub(crate) fn with<R>(&self, py: Python<'_>, use_it: impl FnOnce(&T) -> R) -> PyResult<R> {
        if self.1 != FORKS.load(Ordering::Relaxed) {
            return Err(error(
                py,
                "UsageError",
                "the grid belongs to the process that forked this one; open another here",
            ));
        }
        lock(&self.0).as_ref().map(use_it).ok_or_else(|| closed(py))
    }

    /// Takes the content. Only the process that made it may call this.
    pub(crate) fn taken(&self) -> Option<T> {
        lock(&self.0).take()
    }
}

impl<T: Clone + Send + 'static> Slot<T> {
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<T> {
        self.with(py, T::clone)
    }
}

pub(crate) fn closed(py: Python<'_>) -> PyErr {
    error(py, "UsageError", "the grid is closed; open another with gridloom.local, connect or simulate")
}

/// A session, with Python's objects of it.
pub(crate) struct Session {
    slots: Mutex<HeldObjects>,
    /// True if the bytes of arguments do not matter.
    pub(crate) describes_only: bool,
    pub(crate) is_simulated: bool,
}

#[derive(Default)]
struct HeldObjects {
    all: Vec<Weak<dyn Clear>>,
    /// Dead slots are removed when the list reaches this length.
    sweep_at: usize,
}

impl Session {
    pub(crate) fn new(describes_only: bool, is_simulated: bool) -> Session {
        Session { slots: Mutex::default(), describes_only, is_simulated }
    }

    pub(crate) fn slot<T: Send + 'static>(&self, held: T) -> Slot<T> {
        let slot = Arc::new(Mutex::new(Some(held)));
        let weak: Weak<dyn Clear> = Arc::<Mutex<Option<T>>>::downgrade(&slot);
        let mut slots = lock(&self.slots);
        if slots.all.len() >= slots.sweep_at {
            slots.all.retain(|slot| slot.strong_count() > 0);
            slots.sweep_at = 2 * slots.all.len() + 64;
        }
        slots.all.push(weak);
        Slot(slot, FORKS.load(Ordering::Relaxed))
    }

    /// Empties all slots. The grid itself is in the first slot, and is dropped last.
    pub(crate) fn close(&self) {
        let slots = std::mem::take(&mut lock(&self.slots).all);
        slots.iter().rev().filter_map(Weak::upgrade).for_each(|slot| slot.clear());
    }
}

/// Converts a time limit in seconds; `None` and infinity mean no limit.
pub(crate) fn limit_of(seconds: Option<f64>) -> Option<Duration> {
    // A limit beyond the range of a clock counts as infinite.
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}
