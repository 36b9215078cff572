//! Declared graphs, built from inputs and calls in the format of their files.

use std::path::PathBuf;
use std::sync::Mutex;

use gridloom::{Graph, GraphRef};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::lock;
use crate::plain::value_of;
use crate::wait::detached;

/// A graph that is being declared.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawGraph(Mutex<Graph>);

impl RawGraph {
    /// Returns a copy of its current state.
    pub(crate) fn graph(&self) -> Graph {
        lock(&self.0).clone()
    }
}

#[pymethods]
impl RawGraph {
    #[new]
    fn new() -> RawGraph {
        RawGraph(Mutex::default())
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<RawGraph> {
        detached(py, move || Graph::load(path)).or_raise(py).map(|graph| RawGraph(Mutex::new(graph)))
    }

    /// Returns the graph in the format of its file.
    fn json(&self) -> String {
        lock(&self.0).to_json()
    }

    /// Adds an input, in the format of the file.
    fn input(&self, py: Python<'_>, described: &Bound<'_, PyAny>) -> PyResult<()> {
        lock(&self.0).input_of(value_of(described)?).or_raise(py).map(drop)
    }

    /// Adds a call, in the format of the file.
    fn call(&self, py: Python<'_>, described: &Bound<'_, PyAny>) -> PyResult<()> {
        lock(&self.0).call_of(value_of(described)?).or_raise(py).map(drop)
    }

    /// Declares wanted results: all of them or, if one is invalid, none.
    fn want(&self, py: Python<'_>, results: Vec<String>) -> PyResult<()> {
        let mut graph = lock(&self.0);
        let mut wanting = graph.clone();
        results.iter().try_for_each(|result| wanting.want_result(&GraphRef::named(result))).or_raise(py)?;
        *graph = wanting;
        Ok(())
    }

    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        lock(&self.0).remove(name).or_raise(py)
    }

    /// Names of the calls.
    fn calls(&self) -> Vec<String> {
        lock(&self.0).calls().map(str::to_string).collect()
    }
}
