//! Typed messages of Python's processes: objects of message classes, written as C structs lie in this machine's memory,
//! and read so. `gridloom/_declare.py` turns classes into C declarations; here is what is done for each message.
//!
//! | file | what it holds |
//! |---|---|
//! | [`shape`] | how a class's fields lie in memory |
//! | [`encode`] | objects to messages |
//! | [`decode`] | messages to objects |
//! | [`path`] | positions in a message, and paths into an object, as errors name them |
//!
//! **Invariants.** A message is checked as a whole before anything is made of it. Nothing recurses deeper than structs stand
//! inside one another by value. What references lead to waits in a queue, so lists may be long and graphs have cycles. Arrays
//! are copied by NumPy, once out and not at all in. A received array shows the message's memory, which lives as long as one of
//! its arrays.

mod decode;
mod encode;
mod path;
mod shape;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gridloom_layout::types::Type;
use gridloom_layout::{Abi, Form, LayoutError, Receiver, address_of, parse};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{error, wrong_message};
use crate::lock;
use shape::Shape;

/// A message class, compiled.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawMessageType {
    form: Form,
    receiver: Mutex<Receiver>,
    /// By number of declaration.
    shapes: BTreeMap<usize, Shape>,
    /// Types that pointers lead to.
    types: Vec<Type>,
}

impl RawMessageType {
    pub(crate) fn kind(&self) -> &str {
        self.form.schema().name()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.form.schema().hash()
    }

    /// The message of an object of the class.
    pub(crate) fn message(&self, object: &Bound<'_, PyAny>, described: bool) -> PyResult<Vec<u8>> {
        encode::encode(self, object, described)
    }

    /// The object of a message from any machine.
    pub(crate) fn object<'py>(&self, py: Python<'py>, payload: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        // No lock is held while Python's code may run, which an exception is made by.
        let opened = self.open(payload);
        let (payload, start, root) = opened.map_err(|error| self.refused(py, &error.to_string()))?;
        decode::decode(py, self, Arc::new(payload), start, root)
    }

    /// Checks a message: bytes that hold its memory as this machine has it, where in them, and where the object is.
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

    /// What is wrong with a field, for the program.
    fn wrong(&self, py: Python<'_>, field: &str, why: &str) -> PyErr {
        let place = if field.is_empty() { String::new() } else { format!(", field '{field}'") };
        self.refused(py, &format!("message '{}'{place}: {why}", self.kind()))
    }
}

#[pymethods]
impl RawMessageType {
    /// Of C declarations, and for each struct and union how Python's classes fill it.
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

    /// The message as a machine of that name would have sent it: recorded frames of other machines come from it.
    fn converted<'py>(&self, py: Python<'py>, payload: &[u8], machine: &str) -> PyResult<Bound<'py, PyBytes>> {
        let abi = Abi::from_name(machine).ok_or_else(|| error(py, "InputError", &format!("no machine '{machine}'")))?;
        let schema = self.form.schema().clone();
        let refused = |error: LayoutError| self.refused(py, &error.to_string());
        let mut receiver = Receiver::new(schema, abi).map_err(refused)?;
        let native = receiver.open(payload).map_err(refused)?.to_native().map_err(refused)?;
        Ok(PyBytes::new(py, &native))
    }
}
