//! Plain data between Rust and Python: dictionaries, lists, texts and numbers, for all types that serde supports.
//!
//! Numbers that JSON does not have (infinities, not a number) are `None`.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde::Serialize;
use serde_json::{Number, Value};

/// Converts data to Python objects.
pub(crate) fn to_plain<'py>(py: Python<'py>, data: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    object_of(py, &serde_json::to_value(data).expect("names and numbers"))
}

/// Converts a value to a Python object.
pub(crate) fn object_of<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(truth) => truth.into_bound_py_any(py),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => whole.into_bound_py_any(py),
            (None, Some(whole)) => whole.into_bound_py_any(py),
            (None, None) => number.as_f64().into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(items) => {
            let items = items.iter().map(|item| object_of(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items).map(Bound::into_any)
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            fields.iter().try_for_each(|(name, field)| dict.set_item(name, object_of(py, field)?))?;
            Ok(dict.into_any())
        }
    }
}

/// Converts a Python object to a value.
///
/// # Errors
/// If an object has another type, or a number is not a JSON number.
pub(crate) fn value_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        // Beyond 64 bits, integers become JSON reals.
        let whole = object.extract::<i64>().map(Number::from).or_else(|_| object.extract::<u64>().map(Number::from));
        return whole.map(Value::Number).or_else(|_| real(object));
    }
    if object.is_instance_of::<PyFloat>() {
        return real(object);
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::String(text.to_cow()?.into_owned()));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        let field = |(name, field): (Bound<'_, PyAny>, _)| Ok((name.extract::<String>()?, value_of(&field)?));
        return dict.iter().map(field).collect::<PyResult<_>>().map(Value::Object);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let items = object.try_iter()?.map(|item| value_of(&item?));
        return items.collect::<PyResult<_>>().map(Value::Array);
    }
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("Object of type {kind} is neither a number nor a text")))
}

fn real(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    let number = Number::from_f64(object.extract()?).map(Value::Number);
    number.ok_or_else(|| PyTypeError::new_err(format!("{object} is not a number that can be declared")))
}
