//! Converts values to Python objects.
//!
//! Results are views of the memory in which they are stored. The bits of every element are preserved, including byte
//! order and NaNs.

use std::borrow::Cow;
use std::sync::Arc;

use gridloom::Value;
use gridloom_base::{ByteOrder, Dtype, Meta, Order};
use gridloom_net::payload::Payload;
use gridloom_net::segment::{Mapping, Segment};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::import;
use crate::memory::{Keeper, Memory, element, type_string};

/// Makes an array in memory that is sent without a copy.
pub(crate) fn empty<'py>(py: Python<'py>, segment: Arc<Segment>, meta: Meta) -> PyResult<Bound<'py, PyAny>> {
    let address = segment.as_ptr() as usize;
    Memory::array(py, Keeper::Shared(segment), address, meta, true)
}

/// Converts a result to Python. `is_kept` is true if the session keeps the value too.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value, is_kept: bool) -> PyResult<Bound<'py, PyAny>> {
    // Zeros replace results of a simulated function.
    let absent = || Cow::Owned(vec![0; value.meta().size_bytes() as usize]);
    let bytes = || value.payload().map_or_else(absent, |payload| Cow::Borrowed(payload.bytes()));
    match value.meta() {
        Meta::Text { .. } => Ok(PyString::new(py, &String::from_utf8_lossy(&bytes())).into_any()),
        Meta::Bytes { .. } => Ok(PyBytes::new(py, &bytes()).into_any()),
        Meta::List { .. } => {
            let item = |item: &Option<&[u8]>| match item.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
                None => py.None().into_bound(py),
                Some((_, Ok(text))) => PyString::new(py, text).into_any(),
                Some((bytes, Err(_))) => PyBytes::new(py, bytes).into_any(),
            };
            let items = value.items().unwrap_or_default();
            Ok(PyList::new(py, items.iter().map(item))?.into_any())
        }
        Meta::Scalar { dtype, byte_order } => number(py, *dtype, *byte_order, &bytes()),
        Meta::Array { .. } => match value.payload() {
            Some(payload) => array(py, value.meta(), payload, is_kept),
            None => zeros(py, value.meta()),
        },
    }
}

/// Returns Python's own number if it has the type, else NumPy's.
fn number<'py>(py: Python<'py>, dtype: Dtype, byte_order: ByteOrder, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let zeros = vec![0; dtype.size_bytes() as usize];
    let bytes = if bytes.is_empty() { &zeros } else { bytes };
    let array =
        import(py, "numpy")?.call_method1("frombuffer", (PyBytes::new(py, bytes), type_string(dtype, byte_order)))?;
    match dtype {
        Dtype::Bool | Dtype::Int64 | Dtype::Float64 | Dtype::Complex128 => array.call_method1("item", (0,)),
        _ => array.get_item(0),
    }
}

fn array<'py>(py: Python<'py>, meta: &Meta, payload: &Payload, is_kept: bool) -> PyResult<Bound<'py, PyAny>> {
    match payload {
        Payload::Segment { segment, offset, size_bytes } if *size_bytes > 0 => {
            // One owner is `payload` itself, which the caller is about to drop.
            if !is_kept && Arc::strong_count(segment) == 1 {
                let address = segment.as_ptr() as usize + *offset as usize;
                return Memory::array(py, Keeper::Payload(payload.clone()), address, meta.clone(), true);
            }
            let mapping = Mapping::private(segment.fd(), offset + size_bytes)?;
            let address = mapping.as_ptr() as usize + *offset as usize;
            Memory::array(py, Keeper::Private(payload.clone(), mapping), address, meta.clone(), true)
        }
        Payload::Segment { .. } => zeros(py, meta),
        Payload::Inline(_) | Payload::Foreign(_) => {
            let keywords = layout(py, meta)?;
            keywords.set_item("buffer", PyByteArray::new(py, payload.bytes()))?;
            import(py, "numpy")?.getattr("ndarray")?.call((), Some(&keywords))
        }
    }
}

fn layout<'py>(py: Python<'py>, meta: &Meta) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    if let Meta::Array { order, shape, .. } = meta {
        keywords.set_item("shape", PyTuple::new(py, shape)?)?;
        keywords.set_item("order", if *order == Order::F { "F" } else { "C" })?;
    }
    let (dtype, byte_order) = element(meta);
    keywords.set_item("dtype", type_string(dtype, byte_order))?;
    Ok(keywords)
}

/// Minimum size of placeholders that get pages of their own.
const OWN_PAGES_BYTES_MIN: u64 = 1 << 16;

/// Makes the placeholder for a result that was never computed; if memory cannot hold it, a single zero is shown everywhere.
fn zeros<'py>(py: Python<'py>, meta: &Meta) -> PyResult<Bound<'py, PyAny>> {
    let numpy = import(py, "numpy")?;
    let keywords = layout(py, meta)?;
    if meta.size_bytes() >= OWN_PAGES_BYTES_MIN {
        // Pages of its own take no memory until they are written. Pages of the heap may have been used before, and are
        // cleared immediately.
        let mmap = import(py, "mmap")?;
        let flags = mmap.getattr("MAP_PRIVATE")?.bitor(mmap.getattr("MAP_ANONYMOUS")?)?;
        if let Ok(pages) = mmap.getattr("mmap")?.call1((-1, meta.size_bytes(), flags)) {
            keywords.set_item("buffer", pages)?;
            return numpy.getattr("ndarray")?.call((), Some(&keywords));
        }
    }
    match numpy.getattr("zeros")?.call((), Some(&keywords)) {
        Err(error) if error.is_instance_of::<PyMemoryError>(py) => {
            let (dtype, byte_order) = element(meta);
            let zero = numpy.call_method1("zeros", ((), type_string(dtype, byte_order)))?;
            numpy.call_method1("broadcast_to", (zero, keywords.get_item("shape")?))
        }
        other => other,
    }
}
