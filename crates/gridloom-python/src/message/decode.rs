//! Decodes messages to objects, which are made by `object.__new__` and filled field by field. A referenced object is
//! made once and filled later. Arrays are views of the message's memory.
//!
//! **Limits:** a message has at most [`MESSAGE_VALUES_MAX`] values. Strings, bytes and lists to which several pointers
//! of a message lead are copied for each pointer, with the same limit as for Rust values: a short message of shared
//! parts must not exhaust the memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gridloom_base::Meta;
use gridloom_base::limits::LAYOUT_TREE_COPIES_MAX;
use gridloom_layout::position_of;
use gridloom_layout::types::Integer;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyComplex, PyFloat, PyList, PyString, PyTuple};

use super::RawMessageType;
use super::shape::{Class, Extent, Kind, Shape, Word};
use crate::import;
use crate::memory::{Keeper, Memory};

/// Maximum number of values in one message, where an array counts as one: keeps the resulting objects below a gigabyte.
const MESSAGE_VALUES_MAX: u64 = 1 << 22;
/// Number of values after which interrupts are checked.
const SIGNALS_EVERY: u64 = 4096;

/// Returns the object of a checked message in this machine's representation; its memory begins at `start` of the payload.
pub(super) fn decode<'py>(
    py: Python<'py>,
    ty: &RawMessageType,
    payload: Arc<Vec<u8>>,
    start: usize,
    root: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let object = import(py, "builtins")?.getattr("object")?;
    let mut decoder = Decoder {
        py,
        ty,
        memory: &payload[start..],
        payload: &payload,
        shown: None,
        ndarray: None,
        make: object.getattr("__new__")?,
        set: object.getattr("__setattr__")?,
        known: HashMap::new(),
        open: VecDeque::new(),
        left: LAYOUT_TREE_COPIES_MAX * (payload.len() - start) as u64,
        values: 0,
    };
    let root = decoder.instance(0, root)?;
    while let Some((object, number, at)) = decoder.open.pop_front() {
        decoder.fill(&object, number, at)?;
    }
    Ok(root)
}

struct Decoder<'a, 'py> {
    py: Python<'py>,
    ty: &'a RawMessageType,
    memory: &'a [u8],
    payload: &'a Arc<Vec<u8>>,
    /// The memory as an array of bytes, made for the first array in the message.
    shown: Option<Bound<'py, PyAny>>,
    ndarray: Option<Bound<'py, PyAny>>,
    make: Bound<'py, PyAny>,
    set: Bound<'py, PyAny>,
    /// Objects by declaration and position.
    known: HashMap<(usize, u64), Bound<'py, PyAny>>,
    /// Objects not filled yet, with declaration and position.
    open: VecDeque<(Bound<'py, PyAny>, usize, u64)>,
    /// Bytes that may still be copied.
    left: u64,
    /// Number of values and objects made.
    values: u64,
}

impl<'a, 'py> Decoder<'a, 'py> {
    fn wrong(&self, name: &str, why: &str) -> PyErr {
        self.ty.wrong(self.py, name, why)
    }

    /// Returns the object of a struct or union, which is filled later.
    fn instance(&mut self, number: usize, at: u64) -> PyResult<Bound<'py, PyAny>> {
        if let Some(known) = self.known.get(&(number, at)) {
            return Ok(known.clone());
        }
        let (class, body) = match &self.ty.shapes[&number] {
            Shape::Struct(class) => (&class.class, Some((number, at))),
            Shape::Union(union) => {
                let tag = Word::of(Integer::Int).read(self.memory, at + union.tag_at);
                let case = union.cases.iter().find(|(_, own, _)| i128::from(*own) == tag);
                let (class, _, body) = case.expect("tags were checked with the message, and each has a class");
                (class, body.map(|body| (body, at + union.body_at)))
            }
        };
        let object = self.make.call1((class,))?;
        if let Some((body, at)) = body {
            self.open.push_back((object.clone(), body, at));
        }
        self.known.insert((number, at), object.clone());
        Ok(object)
    }

    fn fill(&mut self, object: &Bound<'py, PyAny>, number: usize, at: u64) -> PyResult<()> {
        let ty = self.ty;
        let Shape::Struct(class) = &ty.shapes[&number] else { unreachable!("what is filled is a struct") };
        for slot in &class.slots {
            let value = self.value(&slot.kind, at + slot.at, Some((class, at)), &slot.name)?;
            self.set.call1((object, &slot.attribute, value))?;
        }
        Ok(())
    }

    fn bytes(&self, at: u64, count: usize) -> &'a [u8] {
        &self.memory[at as usize..at as usize + count]
    }

    fn float(&self, at: u64, bytes: usize) -> f64 {
        match bytes {
            8 => f64::from_ne_bytes(self.bytes(at, 8).try_into().expect("of that length")),
            _ => f64::from(f32::from_ne_bytes(self.bytes(at, 4).try_into().expect("of that length"))),
        }
    }

    /// Returns the position to which the pointer at `at` leads.
    fn follow(&self, at: u64) -> Option<u64> {
        let address = Word::of(Integer::SizeT).read(self.memory, at);
        position_of(u64::try_from(address).expect("a pointer is unsigned"))
    }

    /// Counts a value. A Python object takes a hundred or more bytes for a single byte in the message.
    fn count(&mut self, name: &str) -> PyResult<()> {
        self.values += 1;
        if self.values > MESSAGE_VALUES_MAX {
            let why = format!("more than {MESSAGE_VALUES_MAX} values; use arrays for millions of numbers");
            return Err(self.wrong(name, &why));
        }
        if self.values.is_multiple_of(SIGNALS_EVERY) {
            self.py.check_signals()?;
        }
        Ok(())
    }

    /// Charges bytes against the copy limit.
    fn charge(&mut self, bytes: usize, name: &str) -> PyResult<()> {
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let limit = LAYOUT_TREE_COPIES_MAX * self.memory.len() as u64;
                Err(self.wrong(name, &format!("more than {limit} bytes when shared parts are copied")))
            }
        }
    }

    fn wrapped(&self, wrap: &Option<Py<PyAny>>, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        wrap.as_ref().map_or(Ok(value.clone()), |wrap| wrap.bind(self.py).call1((value,)))
    }

    fn value(
        &mut self,
        kind: &'a Kind,
        at: u64,
        owner: Option<(&'a Class, u64)>,
        name: &'a str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        self.count(name)?;
        let length = |decoder: &Self, offset: u64| {
            let start = owner.expect("what has a length is a field").1;
            Word::of(Integer::SizeT).read(decoder.memory, start + offset) as usize
        };
        Ok(match kind {
            Kind::Integer { word, wrap } => {
                let number = word.read(self.memory, at);
                let number = match i64::try_from(number) {
                    Ok(number) => number.into_pyobject(py)?,
                    Err(_) => (number as u64).into_pyobject(py)?,
                };
                self.wrapped(wrap, number.into_any())?
            }
            Kind::Float { bytes, wrap } => self.wrapped(wrap, PyFloat::new(py, self.float(at, *bytes)).into_any())?,
            Kind::Bool { wrap } => {
                let truth = self.memory[at as usize] != 0;
                self.wrapped(wrap, truth.into_pyobject(py)?.to_owned().into_any())?
            }
            Kind::Complex { bytes, wrap } => {
                let half = *bytes as u64;
                let number = PyComplex::from_doubles(py, self.float(at, *bytes), self.float(at + half, *bytes));
                self.wrapped(wrap, number.into_any())?
            }
            Kind::Enum { members, .. } => {
                let number = Word::of(Integer::Int).read(self.memory, at);
                let member = members.iter().find(|(value, _)| i128::from(*value) == number);
                member.expect("enums were checked with the message").1.bind(py).clone()
            }
            Kind::Text { optional } => match self.follow(at) {
                Some(start) => {
                    let rest = &self.memory[start as usize..];
                    let end = rest.iter().position(|byte| *byte == 0).expect("checked with the message");
                    self.charge(end, name)?;
                    let text = std::str::from_utf8(&rest[..end]);
                    PyString::new(py, text.map_err(|_| self.wrong(name, "a string that is not UTF-8"))?).into_any()
                }
                None if *optional => py.None().into_bound(py),
                None => {
                    return Err(self.wrong(name, "a null pointer where a str is needed; annotate it as 'str | None'"));
                }
            },
            Kind::Characters { count } => {
                let bytes = self.bytes(at, *count);
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                PyBytes::new(py, &bytes[..end]).into_any()
            }
            Kind::Bytes { length_at, .. } => {
                let count = length(self, *length_at);
                self.charge(count, name)?;
                let bytes = self.follow(at).map_or(&[][..], |start| self.bytes(start, count));
                PyBytes::new(py, bytes).into_any()
            }
            Kind::List { length_at, stride, element, .. } => {
                let count = length(self, *length_at);
                self.charge(count.saturating_mul(*stride as usize), name)?;
                match self.follow(at) {
                    Some(start) => {
                        let list = PyList::empty(py);
                        for index in 0..count as u64 {
                            list.append(self.behind(element, start + index * stride, name)?)?;
                        }
                        list.into_any()
                    }
                    None => PyList::empty(py).into_any(),
                }
            }
            Kind::Array { dtype, extents, ty } => {
                let (class, start) = owner.map_or((None, 0), |(class, start)| (Some(class), start));
                let shape = extents.iter().map(|extent| self.extent(extent, class, start, name));
                let shape = PyTuple::new(py, shape.collect::<PyResult<Vec<u64>>>()?)?;
                let place = if ty.is_some() { self.follow(at) } else { Some(at) };
                let array = self.array(&shape, dtype, place);
                array.map_err(|error| self.wrong(name, &format!("no array of shape {shape}: {error}")))?
            }
            Kind::Tuple { element, count, stride } => {
                let values = (0..*count as u64).map(|index| self.value(element, at + index * stride, None, name));
                PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any()
            }
            Kind::Struct(_) | Kind::Union(_) => self.behind(kind, at, name)?,
            Kind::Pointer { optional, element, .. } => match self.follow(at) {
                Some(start) => self.behind(element, start, name)?,
                None if *optional => py.None().into_bound(py),
                None => {
                    return Err(self.wrong(name, "a null pointer where an object is needed; annotate it as 'T | None'"));
                }
            },
        })
    }

    /// Returns a value that may be an object with other references to it.
    fn behind(&mut self, kind: &'a Kind, at: u64, name: &'a str) -> PyResult<Bound<'py, PyAny>> {
        match kind {
            Kind::Struct(number) | Kind::Union(number) => {
                self.count(name)?;
                self.instance(*number, at)
            }
            kind => self.value(kind, at, None, name),
        }
    }

    fn extent(&self, extent: &Extent, class: Option<&Class>, start: u64, name: &str) -> PyResult<u64> {
        let word = |field: usize| {
            let (offset, word) = class?.words[field]?;
            Some(word.read(self.memory, start + offset))
        };
        match extent {
            Extent::Number(number) => Ok(*number),
            Extent::Hidden { field, .. } => Ok(word(*field).expect("a size is an integer") as u64),
            Extent::Expression { expression, .. } => {
                let params = class.map_or(&[][..], |class| &class.params);
                expression.evaluate_extent(params, &word).map_err(|error| self.wrong(name, &error.to_string()))
            }
        }
    }

    fn array(
        &mut self,
        shape: &Bound<'py, PyTuple>,
        dtype: &Py<PyAny>,
        place: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numpy = import(self.py, "numpy")?;
        let Some(place) = place else { return numpy.call_method1("empty", (shape, dtype)) };
        let shown = match &self.shown {
            Some(shown) => shown.clone(),
            None => {
                let meta = Meta::Bytes { size_bytes: self.memory.len() as u64 };
                let keeper = Keeper::Message(self.payload.clone());
                let shown = Memory::array(self.py, keeper, self.memory.as_ptr() as usize, meta, true)?;
                self.shown.insert(shown).clone()
            }
        };
        let ndarray = match &self.ndarray {
            Some(ndarray) => ndarray.clone(),
            None => self.ndarray.insert(numpy.getattr("ndarray")?).clone(),
        };
        ndarray.call1((shape, dtype, shown, place))
    }
}
