//! Python objects as values of reductions and as pickles.

use gridloom::chares::Value;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::error;
use crate::import;

pub(crate) fn pickled<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(import(py, "pickle")?.call_method1("dumps", (object, 5))?.cast_into()?)
}

pub(crate) fn unpickled<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    import(py, "pickle")?.call_method1("loads", (PyBytes::new(py, bytes),))
}

/// Converts a number, or several.
pub(crate) fn numbers(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(integer) = value.extract::<i64>() {
        return Ok(Value::from(integer));
    }
    if let Ok(float) = value.extract::<f64>() {
        return Ok(Value::from(float));
    }
    if let Ok(integers) = value.extract::<Vec<i64>>() {
        return Ok(Value::from(integers));
    }
    value.extract::<Vec<f64>>().map(Value::from).map_err(|_| {
        let given = value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        error(
            py,
            "UsageError",
            &format!("'{given}' cannot be summed or compared: give a number, or one dimension of them"),
        )
    })
}

/// Converts a value to Python; several numbers become an array.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Nothing => Ok(py.None().into_bound(py)),
        Value::Floats(floats) => match floats[..] {
            [one] => Ok(one.into_pyobject(py)?.into_any()),
            _ => import(py, "numpy")?.call_method1("array", (floats,)),
        },
        Value::Integers(integers) => match integers[..] {
            [one] => Ok(one.into_pyobject(py)?.into_any()),
            _ => import(py, "numpy")?.call_method1("array", (integers,)),
        },
        Value::Bytes(bytes) => unpickled(py, &bytes),
        Value::Gathered(all) => {
            let all = all.into_iter().map(|(_, value)| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            Ok(all.into_pyobject(py)?.into_any())
        }
    }
}
