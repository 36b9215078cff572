//! NumPy arrays over memory that Rust owns, and NumPy's names of element types.

use std::sync::Arc;

use gridloom_base::{ByteOrder, Dtype, Meta, Order};
use gridloom_net::payload::Payload;
use gridloom_net::segment::{Mapping, Segment};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::import;

/// The owner of the memory behind an array.
pub(crate) enum Keeper {
    /// A result.
    Payload(#[allow(dead_code, reason = "kept for its memory")] Payload),
    /// A private view of a result that others may see too: writes are not shared. The payload keeps the file's
    /// contents, the mapping the view of them.
    Private(
        #[allow(dead_code, reason = "kept for its memory")] Payload,
        #[allow(dead_code, reason = "kept for its memory")] Mapping,
    ),
    /// Memory of `Grid.empty`.
    Shared(Arc<Segment>),
    /// An argument in a worker.
    Mapping(#[allow(dead_code, reason = "kept for its memory")] Arc<Mapping>),
    /// A received message, which only its arrays still use.
    Message(#[allow(dead_code, reason = "kept for its memory")] Arc<Vec<u8>>),
    /// The caller, which drops the array before it frees the memory.
    Caller,
}

/// The base object of an array in memory that Rust owns.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct Memory {
    pub(crate) keeper: Keeper,
    address: usize,
    meta: Meta,
    writable: bool,
}

impl Memory {
    /// Makes an array over `meta.size_bytes()` bytes at `address`.
    pub(crate) fn array<'py>(
        py: Python<'py>,
        keeper: Keeper,
        address: usize,
        meta: Meta,
        writable: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let memory = Bound::new(py, Memory { keeper, address, meta, writable })?;
        import(py, "numpy")?.call_method1("asarray", (memory,))
    }

    pub(crate) fn offset_of(&self, address: usize) -> Option<u64> {
        address.checked_sub(self.address).map(|offset| offset as u64)
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (shape, order) = match &self.meta {
            Meta::Array { shape, order, .. } => (shape.as_slice(), *order),
            Meta::Scalar { .. } => (&[][..], Order::C),
            Meta::Text { size_bytes } | Meta::Bytes { size_bytes } | Meta::List { size_bytes } => {
                (std::slice::from_ref(size_bytes), Order::C)
            }
        };
        let (dtype, byte_order) = element(&self.meta);
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, shape)?)?;
        interface.set_item("typestr", type_string(dtype, byte_order))?;
        interface.set_item("data", (self.address, !self.writable))?;
        if order == Order::F && !shape.contains(&0) {
            let mut stride = dtype.size_bytes();
            let strides = shape.iter().map(|extent| {
                let this = stride;
                stride *= extent;
                this
            });
            interface.set_item("strides", PyTuple::new(py, strides.collect::<Vec<_>>())?)?;
        }
        Ok(interface)
    }
}

/// Returns the element type and byte order of a value.
pub(crate) fn element(meta: &Meta) -> (Dtype, ByteOrder) {
    match meta {
        Meta::Scalar { dtype, byte_order } | Meta::Array { dtype, byte_order, .. } => (*dtype, *byte_order),
        Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => (Dtype::Uint8, ByteOrder::NATIVE),
    }
}

/// Returns NumPy's short name, such as `<f8`.
pub(crate) fn type_string(dtype: Dtype, byte_order: ByteOrder) -> String {
    let kind = match dtype {
        Dtype::Bool => 'b',
        Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64 => 'i',
        Dtype::Uint8 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64 => 'u',
        Dtype::Float16 | Dtype::Float32 | Dtype::Float64 | Dtype::LongDouble => 'f',
        Dtype::Complex64 | Dtype::Complex128 | Dtype::ComplexLongDouble => 'c',
    };
    let order = match byte_order {
        _ if dtype.size_bytes() == 1 => '|',
        ByteOrder::Little => '<',
        ByteOrder::Big => '>',
    };
    format!("{order}{kind}{}", dtype.size_bytes())
}

/// Returns the element type for a NumPy description, if it is supported.
pub(crate) fn element_of(descr: &Bound<'_, PyArrayDescr>) -> Option<(Dtype, ByteOrder)> {
    let dtype = match (descr.kind(), descr.itemsize()) {
        (b'b', 1) => Dtype::Bool,
        (b'i', 1) => Dtype::Int8,
        (b'i', 2) => Dtype::Int16,
        (b'i', 4) => Dtype::Int32,
        (b'i', 8) => Dtype::Int64,
        (b'u', 1) => Dtype::Uint8,
        (b'u', 2) => Dtype::Uint16,
        (b'u', 4) => Dtype::Uint32,
        (b'u', 8) => Dtype::Uint64,
        (b'f', 2) => Dtype::Float16,
        (b'f', 4) => Dtype::Float32,
        (b'f', 8) => Dtype::Float64,
        (b'f', 16) => Dtype::LongDouble,
        (b'c', 8) => Dtype::Complex64,
        (b'c', 16) => Dtype::Complex128,
        (b'c', 32) => Dtype::ComplexLongDouble,
        _ => return None,
    };
    let byte_order = match descr.byteorder() {
        b'<' => ByteOrder::Little,
        b'>' => ByteOrder::Big,
        _ => ByteOrder::NATIVE,
    };
    Some((dtype, byte_order))
}
