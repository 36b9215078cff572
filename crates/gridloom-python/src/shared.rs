//! Shared data: put, found, listed and deleted by name.

use std::sync::Arc;

use gridloom::{Arg, BegunPut, Grid, PutOptions, Value};
use gridloom_idl::Signature;
use pyo3::prelude::*;

use crate::arguments::Target;
use crate::errors::OrRaise;
use crate::grid::RawGrid;
use crate::handle::RawHandle;
use crate::pending_names::{Begun, RawPendingNames};
use crate::plain::to_plain;
use crate::results::to_python;
use crate::session::{Session, limit_of};
use crate::wait::interruptible;

/// Begins to put a number, an array, a text, bytes, or the value behind a handle.
#[pyfunction]
pub(crate) fn begin_put_shared(
    py: Python<'_>,
    grid: &RawGrid,
    name: String,
    object: &Bound<'_, PyAny>,
    options: (bool, u16, bool, String),
) -> PyResult<RawPendingNames> {
    let options = put_options(py, options)?;
    let (session, grid) = grid.live(py)?;
    // Errors show this name.
    let what = format!("put of '{name}'");
    let signature = Signature {
        name: what,
        params: Vec::new(),
        callbacks: Vec::new(),
        work: None,
        uses: vec![],
        about: String::new(),
    };
    let describes_only = session.describes_only;
    let target = Target { grid: &grid, signature: &signature, describes_only, snapshots: None };
    let argument = target.argument(object, None)?;
    begin_put(py, &session, grid, move |grid| match argument {
        Arg::Handle(handle) => grid.shared().begin_put_handle(&name, &handle, options),
        Arg::Value(value) => grid.shared().begin_put(&name, &value, options),
    })
}

/// Begins to put the bytes of a file.
#[pyfunction]
pub(crate) fn begin_put_file_shared(
    py: Python<'_>,
    grid: &RawGrid,
    name: String,
    path: std::path::PathBuf,
    options: (bool, u16, bool, String),
) -> PyResult<RawPendingNames> {
    let options = put_options(py, options)?;
    let (session, grid) = grid.live(py)?;
    begin_put(py, &session, grid, move |grid| {
        let read = std::fs::read(&path);
        let bytes =
            read.map_err(|error| gridloom::Error::Usage(format!("cannot read '{}': {error}", path.display())))?;
        grid.shared().begin_put(&name, &Value::from(Arc::<[u8]>::from(bytes)), options)
    })
}

fn put_options(
    py: Python<'_>,
    (replaces, replicas, is_durable, method): (bool, u16, bool, String),
) -> PyResult<PutOptions> {
    let method = method.parse().map_err(gridloom::Error::Usage).or_raise(py)?;
    Ok(PutOptions { replaces, replicas, is_durable, method })
}

fn begin_put(
    py: Python<'_>,
    session: &Session,
    grid: Grid,
    begin: impl FnOnce(&Grid) -> Result<BegunPut, gridloom::Error> + Send + 'static,
) -> PyResult<RawPendingNames> {
    let (grid, begun) = interruptible(py, move || {
        let begun = begin(&grid);
        (grid, begun)
    })?;
    Ok(RawPendingNames::new(session, grid, Begun::Put(begun.or_raise(py)?)))
}

#[pyfunction]
pub(crate) fn find_shared(
    py: Python<'_>,
    grid: &RawGrid,
    name: String,
    timeout_seconds: Option<f64>,
) -> PyResult<RawHandle> {
    let (session, grid) = grid.live(py)?;
    let limit = limit_of(timeout_seconds);
    let found = interruptible(py, move || grid.shared().find(&name, limit))?.or_raise(py)?;
    Ok(RawHandle::alone(&session, found))
}

/// Gets the rows in a range. Negative numbers count from the end, as in a slice.
#[pyfunction]
pub(crate) fn get_shared_rows<'py>(
    py: Python<'py>,
    grid: &RawGrid,
    name: String,
    rows: (Option<i64>, Option<i64>),
    timeout_seconds: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let (_, grid) = grid.live(py)?;
    let limit = limit_of(timeout_seconds);
    let index = |count: u64, at: i64| match u64::try_from(at) {
        Ok(at) => at.min(count),
        Err(_) => count.saturating_sub(at.unsigned_abs()),
    };
    let range =
        move |count: u64| rows.0.map_or(0, |from| index(count, from))..rows.1.map_or(count, |end| index(count, end));
    let value = interruptible(py, move || grid.shared().get_rows(&name, range, limit))?.or_raise(py)?;
    to_python(py, &value, true)
}

#[pyfunction]
pub(crate) fn place_shared(py: Python<'_>, grid: &RawGrid, name: String, servers: Vec<String>) -> PyResult<()> {
    let (_, grid) = grid.live(py)?;
    interruptible(py, move || grid.shared().place(&name, &servers))?.or_raise(py)
}

#[pyfunction]
pub(crate) fn shared_exists(py: Python<'_>, grid: &RawGrid, name: String) -> PyResult<bool> {
    let (_, grid) = grid.live(py)?;
    interruptible(py, move || grid.shared().exists(&name))?.or_raise(py)
}

#[pyfunction]
pub(crate) fn delete_shared(py: Python<'_>, grid: &RawGrid, name: String) -> PyResult<()> {
    let (_, grid) = grid.live(py)?;
    interruptible(py, move || grid.shared().delete(&name))?.or_raise(py)
}

#[pyfunction]
pub(crate) fn share_name(py: Python<'_>, grid: &RawGrid, name: String, users: Vec<String>) -> PyResult<()> {
    let (_, grid) = grid.live(py)?;
    interruptible(py, move || grid.shared().share(&name, &users))?.or_raise(py)
}

/// Lists name, version, description, bytes, replicas, servers, owner and readers of each.
#[pyfunction]
#[allow(clippy::type_complexity, reason = "a tuple of one caller")]
pub(crate) fn list_shared<'py>(
    py: Python<'py>,
    grid: &RawGrid,
    prefix: String,
) -> PyResult<Vec<(String, u64, Bound<'py, PyAny>, u64, u16, Vec<String>, String, Vec<String>)>> {
    let (_, grid) = grid.live(py)?;
    let listed = interruptible(py, move || grid.shared().list(&prefix))?.or_raise(py)?;
    let plain = |one: gridloom::SharedDataEntry| {
        let size_bytes = one.meta.size_bytes();
        let kind = to_plain(py, &one.meta.to_string())?;
        Ok((one.name, one.version, kind, size_bytes, one.replicas, one.servers, one.owner, one.readers))
    };
    listed.into_iter().map(plain).collect()
}
