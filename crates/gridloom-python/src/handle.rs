//! Handles of results.

use std::sync::Arc;

use gridloom::Handle;
use gridloom_base::Meta;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::OrRaise;
use crate::memory::{element, type_string};
use crate::plan::{Raised, with_cause};
use crate::results::to_python;
use crate::session::{Session, Slot, limit_of};
use crate::snapshots::Snapshots;
use crate::wait::{detached, interruptible};

/// A result that is, or will be, on some server.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawHandle {
    meta: Meta,
    handle: Slot<Handle>,
    /// The exception of its group's heuristic, if getting the result launches the group.
    raised: Raised,
    snapshots: Arc<Snapshots>,
}

impl RawHandle {
    /// Wraps the handle of a call of a group. `raised` is the exception of the group's heuristic.
    pub(crate) fn new(session: &Session, handle: Handle, raised: Raised, snapshots: Arc<Snapshots>) -> RawHandle {
        RawHandle { meta: handle.meta().clone(), handle: session.slot(handle), raised, snapshots }
    }

    /// Wraps a handle that belongs to no group.
    pub(crate) fn alone(session: &Session, handle: Handle) -> RawHandle {
        RawHandle::new(session, handle, Raised::default(), Arc::default())
    }

    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Handle> {
        self.handle.live(py)
    }
}

#[pymethods]
impl RawHandle {
    fn get<'py>(&self, py: Python<'py>, timeout_seconds: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let limit = limit_of(timeout_seconds);
        let handle = self.handle.live(py)?;
        self.snapshots.forget();
        let value = interruptible(py, move || limit.map_or_else(|| handle.get(), |limit| handle.get_within(limit)))?;
        let value = with_cause(py, value.or_raise(py), &self.raised)?;
        to_python(py, &value, true)
    }

    fn prefetch(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle.live(py)?;
        let asked = interruptible(py, move || handle.prefetch())?;
        with_cause(py, asked.or_raise(py), &self.raised)
    }

    /// Bytes received and total bytes, while a large value is being transferred here.
    fn moving(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        let handle = self.handle.live(py)?;
        Ok(detached(py, move || handle.moving()).map(|one| (one.done_bytes, one.size_bytes)))
    }

    /// Extents of an array; `None` for a text.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match &self.meta {
            Meta::Array { shape, .. } => PyTuple::new(py, shape).map(Some),
            Meta::Scalar { .. } => Ok(Some(PyTuple::empty(py))),
            Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => Ok(None),
        }
    }

    /// NumPy's short name of the element type; `None` for a text.
    #[getter]
    fn type_string(&self) -> Option<String> {
        match &self.meta {
            Meta::Array { .. } | Meta::Scalar { .. } => {
                let (dtype, byte_order) = element(&self.meta);
                Some(type_string(dtype, byte_order))
            }
            Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => None,
        }
    }

    /// `number`, `array`, `str` or `bytes`.
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.meta {
            Meta::Scalar { .. } => "number",
            Meta::Array { .. } => "array",
            Meta::Text { .. } => "str",
            Meta::Bytes { .. } => "bytes",
            Meta::List { .. } => "list",
        }
    }

    fn __str__(&self) -> String {
        match &self.meta {
            Meta::Text { .. } => "str".into(),
            Meta::Bytes { .. } => "bytes".into(),
            Meta::List { .. } => "list".into(),
            meta => meta.to_string(),
        }
    }
}
