//! What methods of chares ask for, as functions of the module.

use gridloom::chares::{Contribution, Pe, Reducer, Value};
use pyo3::prelude::*;

use crate::chare::{Action, Asked, RawEntry, ask, now};
use crate::chare_value::{numbers, pickled};
use crate::errors::error;

#[pyfunction]
pub(crate) fn chare_contribute(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    reducer: &str,
    callback: Option<&Bound<'_, RawEntry>>,
    ordered: bool,
) -> PyResult<()> {
    let (reducer, value) = match reducer {
        "barrier" => (Reducer::Barrier, Value::Nothing),
        "sum" => (Reducer::Sum, numbers(py, value)?),
        "min" => (Reducer::Min, numbers(py, value)?),
        "max" => (Reducer::Max, numbers(py, value)?),
        "gather" => (Reducer::Gather, Value::Bytes(pickled(py, value)?.as_bytes().to_vec())),
        _ => {
            let why = format!("reducer '{reducer}' is not known; there are barrier, sum, min, max, gather");
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
