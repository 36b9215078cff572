//! Requests of chare methods, as functions of the module.

use gridloom::chares::{Contribution, Pe, Reducer, Value};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::chare::{Action, Asked, RawEntry, ask, now};
use crate::chare_value::{numbers, pickled};
use crate::errors::error;

#[pyfunction]
pub(crate) fn chare_contribute(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    reducer: &Bound<'_, PyAny>,
    callback: Option<&Bound<'_, RawEntry>>,
    ordered: bool,
) -> PyResult<()> {
    let any = || PyResult::Ok(Value::Bytes(pickled(py, value)?.as_bytes().to_vec()));
    let own = reducer.cast::<PyInt>().ok().and_then(|own| own.extract::<u16>().ok());
    let (reducer, value) = match (own, reducer.extract::<String>().as_deref()) {
        (Some(own), _) => (Reducer::Own(own), any()?),
        (None, Ok("barrier")) => (Reducer::Barrier, Value::Nothing),
        (None, Ok("sum")) => (Reducer::Sum, numbers(py, value)?),
        (None, Ok("min")) => (Reducer::Min, numbers(py, value)?),
        (None, Ok("max")) => (Reducer::Max, numbers(py, value)?),
        (None, Ok("gather")) => (Reducer::Gather, any()?),
        (None, _) => {
            let why = format!(
                "reducer {} is not known; there are barrier, sum, min, max, gather, and those that job.reducer \
                    registers",
                reducer.repr()?
            );
            return Err(error(py, "UsageError", &why));
        }
    };
    let contribution = Contribution::new(reducer, value);
    let contribution = if ordered { contribution.ordered() } else { contribution };
    ask(Action::Contribute { contribution, callback: Asked::read(callback)? });
    Ok(())
}

#[pyfunction]
pub(crate) fn chare_when_quiet(callback: Option<&Bound<'_, RawEntry>>) -> PyResult<()> {
    ask(Action::AwaitQuiet(Asked::read(callback)?));
    Ok(())
}

#[pyfunction]
pub(crate) fn chare_checkpoint(callback: Option<&Bound<'_, RawEntry>>) -> PyResult<()> {
    ask(Action::Checkpoint(Asked::read(callback)?));
    Ok(())
}

#[pyfunction]
pub(crate) fn chare_resize(elements: u32) {
    ask(Action::Resize(elements));
}

#[pyfunction]
pub(crate) fn chare_exit(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    ask(Action::Exit(Value::Bytes(pickled(py, value)?.as_bytes().to_vec())));
    Ok(())
}

#[pyfunction]
pub(crate) fn chare_compute(flops: f64) {
    ask(Action::Compute(flops));
}

#[pyfunction]
pub(crate) fn chare_migrate(element: u32) {
    ask(Action::Migrate(Pe(element)));
}

#[pyfunction]
pub(crate) fn chare_now() -> f64 {
    now()
}
