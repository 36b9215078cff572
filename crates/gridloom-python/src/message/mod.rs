//! Typed messages of Python processes: objects of message classes, encoded like C structs in this machine's memory layout,
//! and decoded from it. `gridloom/messages/declare.py` turns classes into C declarations; this module does the work for each message.
//!
//! | file | content |
//! |---|---|
//! | [`shape`] | memory layout of a class's fields |
//! | [`encode`] | objects to messages |
//! | [`decode`] | messages to objects |
//! | [`path`] | positions in a message, and paths into an object, as errors name them |
//!
//! **Invariants.** A message is checked completely before anything is made of it. Recursion is only as deep as structs
//! are nested by value. Referenced objects are queued, so lists may be long and graphs may have cycles. Arrays are
//! copied by NumPy: once when encoding, never when decoding. A received array is a view of the message's memory, which
//! lives as long as one of its arrays.

mod decode;
mod encode;
mod path;
mod shape;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gridloom_layout::types::Type;
use gridloom_layout::{Abi, LayoutError, MemoryLayout, Receiver, address_of, parse};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, wrong_message};
use crate::lock;
use shape::Shape;

/// A compiled message class.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawMessageType {
    form: MemoryLayout,
    receiver: Mutex<Receiver>,
    /// Shapes by number of declaration.
    shapes: BTreeMap<usize, Shape>,
    /// Types to which pointers lead.
    types: Vec<Type>,
}

impl RawMessageType {
    pub(crate) fn kind(&self) -> &str {
        self.form.schema().name()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.form.schema().hash()
    }

    /// Encodes an object of the class as a message.
    pub(crate) fn message(&self, object: &Bound<'_, PyAny>, described: bool) -> PyResult<Vec<u8>> {
        encode::encode(self, object, described)
    }

    /// Decodes a message from any machine.
    pub(crate) fn object<'py>(&self, py: Python<'py>, payload: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        // No lock may be held while Python code can run, and making an exception runs Python code.
        let opened = self.open(payload);
        let (payload, start, root) = opened.map_err(|error| self.refused(py, &error.to_string()))?;
        decode::decode(py, self, Arc::new(payload), start, root)
    }

    /// Checks a message. Returns bytes that contain its memory in this machine's layout, the start of that memory, and
    /// the position of the object.
    fn open(&self, payload: Vec<u8>) -> Result<(Vec<u8>, usize, u64), LayoutError> {
        let mut receiver = lock(&self.receiver);
        let incoming = receiver.open(&payload)?;
        let root = incoming.root_offset();
        match incoming.native_memory().map(<[u8]>::len) {
            Some(length) => {
                let start = payload.len() - length;
                Ok((payload, start, root))
            }
            None => {
                let mut own = vec![0; incoming.size_bytes()];
                incoming.place(&mut own, address_of(0))?;
                Ok((own, 0, root))
            }
        }
    }

    fn refused(&self, py: Python<'_>, why: &str) -> PyErr {
        wrong_message(py, self.kind(), why)
    }

    /// Reports an error in a field to the program.
    fn wrong(&self, py: Python<'_>, field: &str, why: &str) -> PyErr {
        let place = if field.is_empty() { String::new() } else { format!(", field '{field}'") };
        self.refused(py, &format!("message '{}'{place}: {why}", self.kind()))
    }
}

#[pymethods]
impl RawMessageType {
    /// Compiles C declarations, with the Python classes that fill each struct and union.
    #[new]
    fn new(name: &str, text: &str, shapes: &Bound<'_, PyList>) -> PyResult<RawMessageType> {
        let py = shapes.py();
        let refuse = |why: String| error(py, "InputError", &why);
        let declarations = parse(text, name).map_err(|error| refuse(error.to_string()))?;
        let schema = Arc::new(declarations.schema(name).map_err(|error| refuse(error.to_string()))?);
        let receiver = Receiver::new(schema, Abi::NATIVE).map_err(|error| refuse(error.to_string()))?;
        let form = receiver.form().clone();
        let (shapes, types) = shape::shapes(&form, shapes)?;
        Ok(RawMessageType { form, receiver: Mutex::new(receiver), shapes, types })
    }

    #[getter]
    fn name(&self) -> &str {
        self.kind()
    }

    #[getter]
    fn declaration(&self) -> String {
        self.form.schema().to_string()
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        object: &Bound<'py, PyAny>,
        described: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.message(object, described)?))
    }

    fn decode<'py>(&self, py: Python<'py>, payload: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        self.object(py, payload)
    }

    /// Converts the message to the representation of the named machine; recorded frames of other machines are made with it.
    fn converted<'py>(&self, py: Python<'py>, payload: &[u8], machine: &str) -> PyResult<Bound<'py, PyBytes>> {
        let abi = Abi::from_name(machine).ok_or_else(|| error(py, "InputError", &format!("no machine '{machine}'")))?;
        let schema = self.form.schema().clone();
        let refused = |error: LayoutError| self.refused(py, &error.to_string());
        let mut receiver = Receiver::new(schema, abi).map_err(refused)?;
        let native = receiver.open(payload).map_err(refused)?.to_native().map_err(refused)?;
        Ok(PyBytes::new(py, &native))
    }
}
