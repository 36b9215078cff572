//! Puts, gets and waits of shared names in progress.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gridloom::{BegunGet, BegunPut, BegunWait, Error, Grid, Value};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::grid::RawGrid;
use crate::results::to_python;
use crate::session::{Session, Slot, limit_of};
use crate::wait::{detached, interruptible, wait_for};

/// A put, get or wait in progress; its slot is empty once its outcome was returned.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawPendingNames {
    is_simulated: bool,
    grid: Slot<Grid>,
    begun: Slot<Arc<Begun>>,
    given: OnceLock<Py<PyAny>>,
}

pub(crate) enum Begun {
    Put(BegunPut),
    Get(BegunGet),
    Wait(BegunWait),
}

impl Begun {
    fn wait(&self, limit: Option<Duration>) -> Result<Option<Value>, Error> {
        match self {
            Begun::Put(put) => put.wait(limit).map(|()| None),
            Begun::Get(get) => get.wait(limit).map(Some),
            Begun::Wait(wait) => wait.wait(limit).map(|()| None),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Begun::Put(put) => put.is_done(),
            Begun::Get(get) => get.is_done(),
            Begun::Wait(wait) => wait.is_done(),
        }
    }

    fn cancel(&self) {
        match self {
            Begun::Put(put) => put.cancel(),
            Begun::Get(get) => get.cancel(),
            Begun::Wait(wait) => wait.cancel(),
        }
    }

    fn note_end(&self) {
        match self {
            Begun::Put(put) => put.note_end(),
            Begun::Get(get) => get.note_end(),
            Begun::Wait(wait) => wait.note_end(),
        }
    }

    fn serial(&self) -> u64 {
        match self {
            Begun::Put(put) => put.task().serial,
            Begun::Get(get) => get.task().serial,
            Begun::Wait(wait) => wait.task().serial,
        }
    }
}

impl RawPendingNames {
    pub(crate) fn new(session: &Session, grid: Grid, begun: Begun) -> RawPendingNames {
        let (grid, begun) = (session.slot(grid), session.slot(Arc::new(begun)));
        RawPendingNames { is_simulated: session.is_simulated, grid, begun, given: OnceLock::new() }
    }

    fn wait(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<Result<Option<Value>, Error>> {
        if self.is_simulated {
            // Its limit is virtual time, which is not split into slices.
            let begun = self.begun.live(py)?;
            return interruptible(py, move || begun.wait(limit));
        }
        wait_for(py, limit, || {
            let begun = self.begun.live(py)?;
            Ok(move |limit| begun.wait(limit))
        })
    }

    /// Releases its state in the session.
    fn end(&self, py: Python<'_>) {
        let (grid, begun) = (self.grid.live(py), self.begun.taken());
        py.detach(move || {
            drop(begun);
            // A version that no program reads is then deleted immediately.
            grid.iter().for_each(Grid::release_dropped);
        });
    }
}

#[pymethods]
impl RawPendingNames {
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        if self.given.get().is_some() {
            return Ok(true);
        }
        let begun = self.begun.live(py)?;
        Ok(detached(py, move || begun.is_done()))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        if self.given.get().is_some() {
            return Ok(());
        }
        let begun = self.begun.live(py)?;
        detached(py, move || begun.cancel());
        Ok(())
    }

    /// Makes [`RawGrid::await_ends`](crate::grid::RawGrid) report its end, immediately if it has ended.
    fn note_end(&self, py: Python<'_>) -> PyResult<()> {
        self.begun.with(py, |begun| begun.note_end())
    }

    /// The number by which `await_ends` reports it.
    fn serial(&self, py: Python<'_>) -> PyResult<u64> {
        self.begun.with(py, |begun| begun.serial())
    }

    /// Waits for the end; returns the value of a get, and `None` otherwise. Returns the same object each time.
    fn result<'py>(&self, py: Python<'py>, timeout_seconds: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let given = || self.given.get().map(|given| given.bind(py).clone());
        if let Some(given) = given() {
            return Ok(given);
        }
        let waited = self.wait(py, limit_of(timeout_seconds));
        // Another thread may have returned it meanwhile.
        if let Some(given) = given() {
            return Ok(given);
        }
        let made = match waited?.or_raise(py)? {
            Some(value) => to_python(py, &value, true)?.unbind(),
            None => py.None(),
        };
        let given = self.given.get_or_init(|| made).bind(py).clone();
        self.end(py);
        Ok(given)
    }
}

/// Begins to get a name's value.
#[pyfunction]
pub(crate) fn begin_get_shared(
    py: Python<'_>,
    grid: &RawGrid,
    name: String,
    timeout_seconds: Option<f64>,
) -> PyResult<RawPendingNames> {
    begin(py, grid, move |grid| Begun::Get(grid.shared().begin_get(&name, limit_of(timeout_seconds))))
}

/// Begins to wait for a name.
#[pyfunction]
pub(crate) fn begin_wait_shared(
    py: Python<'_>,
    grid: &RawGrid,
    name: String,
    timeout_seconds: Option<f64>,
) -> PyResult<RawPendingNames> {
    begin(py, grid, move |grid| Begun::Wait(grid.shared().begin_wait(&name, limit_of(timeout_seconds))))
}

fn begin(
    py: Python<'_>,
    grid: &RawGrid,
    begin: impl FnOnce(&Grid) -> Begun + Send + 'static,
) -> PyResult<RawPendingNames> {
    let (session, grid) = grid.live(py)?;
    let (grid, begun) = detached(py, move || {
        let begun = begin(&grid);
        (grid, begun)
    });
    Ok(RawPendingNames::new(&session, grid, begun))
}
