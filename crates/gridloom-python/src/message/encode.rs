//! Encodes objects as messages: structs are filled field by field, referenced objects are queued, and NumPy copies arrays
//! when all positions are known.
//!
//! Object identity is kept: all references to an object lead to one position. An object that a list holds by value is
//! found there by later references. A list's elements are placed before the references of its struct.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use gridloom_base::Meta;
use gridloom_layout::types::{Integer, Type};
use gridloom_layout::{Blocks, address_of};
use pyo3::exceptions::{PyFloatingPointError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyComplexMethods, PyDict, PyString, PyTuple};

use super::RawMessageType;
use super::path::{At, Path};
use super::shape::{Class, Extent, Kind, Shape, Word};
use crate::import;
use crate::memory::{Keeper, Memory};

pub(super) fn encode(ty: &RawMessageType, object: &Bound<'_, PyAny>, described: bool) -> PyResult<Vec<u8>> {
    let py = object.py();
    let mut encoder = Encoder {
        py,
        ty,
        blocks: Blocks::new(&ty.form),
        scratch: Vec::new(),
        pieces: Vec::new(),
        arrays: Vec::new(),
        known: HashMap::new(),
        kept: Vec::new(),
        open: VecDeque::new(),
    };
    let root = Kind::Struct(0);
    let at = encoder.block(&Type::Named(0), 1)?;
    if let Some(number) = ty.types.iter().position(|target| *target == Type::Named(0)) {
        encoder.known.insert((object.as_ptr() as usize, number), at.position);
    }
    encoder.put(&root, object, at, at, &Path::Of(""))?;
    while let Some(Open { object, kind, at, path }) = encoder.open.pop_front() {
        encoder.put(kind, &object, at, at, &Path::Of(&path))?;
    }
    encoder.finish(described)
}

struct Encoder<'t, 'py> {
    py: Python<'py>,
    ty: &'t RawMessageType,
    blocks: Blocks<'t>,
    /// Memory of all blocks except those that NumPy fills.
    scratch: Vec<u8>,
    /// Parts of `scratch` in the message: position, offset in `scratch`, length in bytes.
    pieces: Vec<(u64, usize, usize)>,
    arrays: Vec<Copied<'t, 'py>>,
    /// Positions of objects, by identity and type.
    known: HashMap<(usize, usize), u64>,
    /// Keeps the objects alive, so that identities stay unique.
    kept: Vec<Bound<'py, PyAny>>,
    open: VecDeque<Open<'t, 'py>>,
}

/// An array to copy to a position.
struct Copied<'t, 'py> {
    array: Bound<'py, PyAny>,
    dtype: &'t Py<PyAny>,
    position: u64,
    path: String,
}

/// A value with a known position that is not written yet.
struct Open<'t, 'py> {
    object: Bound<'py, PyAny>,
    kind: &'t Kind,
    at: At,
    path: Rc<str>,
}

impl<'t, 'py> Encoder<'t, 'py> {
    fn wrong(&self, path: &Path<'_>, why: &str) -> PyErr {
        self.ty.wrong(self.py, &path.text(), why)
    }

    fn mismatch(&self, path: &Path<'_>, expected: &str, got: &Bound<'py, PyAny>) -> PyErr {
        let kind = got.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
        let shown = got.repr().map_or_else(|_| String::new(), |text| text.to_string());
        let shown = if shown.len() > 60 { kind } else { format!("{shown} ({kind})") };
        self.wrong(path, &format!("expected {expected}, got {shown}"))
    }

    fn add(&mut self, ty: &Type, count: u64) -> PyResult<u64> {
        self.blocks.add(ty, count).map_err(|error| self.ty.refused(self.py, &error.to_string()))
    }

    /// Adds a block whose memory is written here.
    fn block(&mut self, ty: &Type, count: u64) -> PyResult<At> {
        let position = self.add(ty, count)?;
        let (scratch, bytes) = (self.scratch.len(), (count * self.ty.form.size_of(ty)) as usize);
        self.scratch.resize(scratch + bytes, 0);
        self.pieces.push((position, scratch, bytes));
        Ok(At { scratch, position })
    }

    fn integer(&mut self, word: Word, at: At, value: i128) -> bool {
        word.write(&mut self.scratch, at.scratch, value)
    }

    fn point(&mut self, at: At, position: u64) {
        let fits = self.integer(Word::of(Integer::SizeT), at, i128::from(address_of(position)));
        assert!(fits, "positions are far below what a pointer holds");
    }

    /// Writes a value; `owner` is the start of the struct of which it is a field.
    fn put(&mut self, kind: &'t Kind, value: &Bound<'py, PyAny>, at: At, owner: At, path: &Path<'_>) -> PyResult<()> {
        let bytes = |at: At, length: usize| at.scratch..at.scratch + length;
        match kind {
            Kind::Integer { word, .. } => {
                let number: i128 = match value.extract() {
                    Ok(number) => number,
                    Err(error) if error.is_instance_of::<PyOverflowError>(self.py) => i128::MAX,
                    Err(_) => return Err(self.mismatch(path, "an integer", value)),
                };
                if !self.integer(*word, at, number) {
                    let why =
                        format!("{value} does not fit {}, which has {} bytes here", word.integer.name(), word.bytes);
                    return Err(self.wrong(path, &why));
                }
            }
            Kind::Float { bytes: width, .. } => {
                let number: f64 = value.extract().map_err(|_| self.mismatch(path, "a number", value))?;
                if *width == 8 {
                    self.scratch[bytes(at, 8)].copy_from_slice(&number.to_ne_bytes());
                } else {
                    let narrow = number as f32;
                    if narrow.is_infinite() && number.is_finite() {
                        return Err(self.wrong(path, &format!("{number:e} does not fit float, which has 4 bytes")));
                    }
                    self.scratch[bytes(at, 4)].copy_from_slice(&narrow.to_ne_bytes());
                }
            }
            Kind::Bool { .. } => {
                let truth: bool = value.extract().map_err(|_| self.mismatch(path, "True or False", value))?;
                self.scratch[at.scratch] = u8::from(truth);
            }
            Kind::Complex { bytes: width, .. } => {
                let number = match value.cast::<PyComplex>() {
                    Ok(number) => number.clone(),
                    Err(_) => {
                        let number = self.py.get_type::<PyComplex>().call1((value,));
                        number.map_err(|_| self.mismatch(path, "a complex number", value))?.cast_into::<PyComplex>()?
                    }
                };
                let parts = [number.real(), number.imag()];
                let raw: Vec<u8> = match width {
                    8 => parts.iter().flat_map(|part| part.to_ne_bytes()).collect(),
                    _ => parts.iter().flat_map(|part| (*part as f32).to_ne_bytes()).collect(),
                };
                self.scratch[bytes(at, raw.len())].copy_from_slice(&raw);
            }
            Kind::Enum { class, members } => {
                let Some((number, _)) = members.iter().find(|(_, member)| member.is(value)) else {
                    let class = class.bind(self.py).getattr("__name__")?;
                    return Err(self.mismatch(path, &format!("a member of {class}"), value));
                };
                self.integer(Word::of(Integer::Int), at, i128::from(*number));
            }
            Kind::Text { optional: true } if value.is_none() => {}
            Kind::Text { .. } => {
                let text = value.cast::<PyString>().map_err(|_| self.mismatch(path, "a str", value))?;
                let text = text.to_cow().map_err(|_| self.mismatch(path, "a str that is Unicode", value))?;
                if text.contains('\0') {
                    return Err(self.wrong(path, "a string with a NUL inside, where C would see its end"));
                }
                let place = self.block(&Type::Integer(Integer::Char), text.len() as u64 + 1)?;
                self.scratch[bytes(place, text.len())].copy_from_slice(text.as_bytes());
                self.point(at, place.position);
            }
            Kind::Characters { count } => {
                let given = value.cast::<PyBytes>().map_err(|_| self.mismatch(path, "bytes", value))?.as_bytes();
                if given.len() > *count {
                    return Err(self.wrong(path, &format!("{} bytes, at most {count} fit", given.len())));
                }
                self.scratch[bytes(at, given.len())].copy_from_slice(given);
            }
            Kind::Bytes { length_at, ty } => {
                let owned: Vec<u8> = match value.cast::<PyString>() {
                    Ok(_) => return Err(self.mismatch(path, "bytes", value)),
                    Err(_) => value.extract().map_err(|_| self.mismatch(path, "bytes", value))?,
                };
                self.integer(Word::of(Integer::SizeT), owner.plus(*length_at), owned.len() as i128);
                if !owned.is_empty() {
                    let place = self.block(&self.ty.types[*ty], owned.len() as u64)?;
                    self.scratch[bytes(place, owned.len())].copy_from_slice(&owned);
                    self.point(at, place.position);
                }
            }
            Kind::List { length_at, ty, stride, element } => {
                self.list(value, at, owner.plus(*length_at), *ty, *stride, element, path)?;
            }
            Kind::Tuple { element, count, stride } => {
                let values: Vec<Bound<'py, PyAny>> = self.items(value, path)?;
                if values.len() != *count {
                    return Err(self.wrong(path, &format!("expected {count} elements, got {}", values.len())));
                }
                for (index, value) in values.iter().enumerate() {
                    self.put(element, value, at.plus(index as u64 * stride), owner, &Path::Element(path, index))?;
                }
            }
            Kind::Struct(number) => match &self.ty.shapes[number] {
                Shape::Struct(class) => self.fill(class, value, at, path)?,
                Shape::Union(_) => unreachable!("a union is a kind of its own"),
            },
            Kind::Union(number) => self.union(*number, value, at, path)?,
            Kind::Pointer { optional: true, .. } if value.is_none() => {}
            Kind::Pointer { ty, element, .. } => {
                let key = (value.as_ptr() as usize, *ty);
                if let Some(position) = self.known.get(&key).filter(|_| element.is_object()) {
                    self.point(at, *position);
                    return Ok(());
                }
                let place = self.block(&self.ty.types[*ty], 1)?;
                self.point(at, place.position);
                self.remember(element, key, place.position, value);
                self.open.push_back(Open { object: value.clone(), kind: element, at: place, path: path.text().into() });
            }
            Kind::Array { .. } => unreachable!("the struct writes its arrays together"),
        }
        Ok(())
    }

    fn remember(&mut self, element: &Kind, key: (usize, usize), position: u64, value: &Bound<'py, PyAny>) {
        if element.is_object() {
            self.known.entry(key).or_insert(position);
            self.kept.push(value.clone());
        }
    }

    fn items(&self, value: &Bound<'py, PyAny>, path: &Path<'_>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        if value.is_instance_of::<PyString>() {
            return Err(self.mismatch(path, "a list", value));
        }
        value.try_iter().map_err(|_| self.mismatch(path, "a list", value))?.collect()
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one kind")]
    fn list(
        &mut self,
        value: &Bound<'py, PyAny>,
        at: At,
        length_at: At,
        ty: usize,
        stride: u64,
        element: &'t Kind,
        path: &Path<'_>,
    ) -> PyResult<()> {
        let values = self.items(value, path)?;
        self.integer(Word::of(Integer::SizeT), length_at, values.len() as i128);
        if values.is_empty() {
            return Ok(());
        }
        let place = self.block(&self.ty.types[ty], values.len() as u64)?;
        self.point(at, place.position);
        for (index, value) in values.into_iter().enumerate() {
            let at = place.plus(index as u64 * stride);
            let path = Path::Element(path, index);
            if element.is_object() {
                self.remember(element, (value.as_ptr() as usize, ty), at.position, &value);
                self.open.push_back(Open { object: value, kind: element, at, path: path.text().into() });
            } else {
                self.put(element, &value, at, at, &path)?;
            }
        }
        Ok(())
    }

    fn union(&mut self, number: usize, value: &Bound<'py, PyAny>, at: At, path: &Path<'_>) -> PyResult<()> {
        let Shape::Union(union) = &self.ty.shapes[&number] else { unreachable!("a struct is a kind of its own") };
        for (class, tag, body) in &union.cases {
            if !value.get_type().is(class) {
                continue;
            }
            self.integer(Word::of(Integer::Int), at.plus(union.tag_at), i128::from(*tag));
            return match body.map(|body| &self.ty.shapes[&body]) {
                Some(Shape::Struct(class)) => self.fill(class, value, at.plus(union.body_at), path),
                _ => Ok(()),
            };
        }
        let names: Vec<String> = union.cases.iter().map(|(class, ..)| self.class_name(class.bind(self.py))).collect();
        Err(self.mismatch(path, &format!("one of {}", names.join(", ")), value))
    }

    fn class_name(&self, class: &Bound<'py, PyAny>) -> String {
        class.getattr("__name__").map_or_else(|_| "a class".into(), |name| name.to_string())
    }

    fn fill(&mut self, class: &'t Class, object: &Bound<'py, PyAny>, at: At, path: &Path<'_>) -> PyResult<()> {
        if !object.is_instance(class.class.bind(self.py))? {
            let expected = format!("a {}", self.class_name(class.class.bind(self.py)));
            return Err(self.mismatch(path, &expected, object));
        }
        let (mut arrays, mut pointers) = (false, false);
        for slot in &class.slots {
            match slot.kind {
                Kind::Array { .. } => arrays = true,
                Kind::Pointer { .. } => pointers = true,
                _ => {
                    let value = self.attribute(object, &slot.attribute, &slot.name, path)?;
                    self.put(&slot.kind, &value, at.plus(slot.at), at, &Path::Field(path, &slot.name))?;
                }
            }
        }
        if arrays {
            self.arrays(class, object, at, path)?;
        }
        for slot in class.slots.iter().filter(|slot| pointers && matches!(slot.kind, Kind::Pointer { .. })) {
            let value = self.attribute(object, &slot.attribute, &slot.name, path)?;
            self.put(&slot.kind, &value, at.plus(slot.at), at, &Path::Field(path, &slot.name))?;
        }
        Ok(())
    }

    fn attribute(
        &self,
        object: &Bound<'py, PyAny>,
        attribute: &Py<PyString>,
        name: &str,
        path: &Path<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        object.getattr(attribute.bind(self.py)).map_err(|_| self.wrong(&Path::Field(path, name), "it has no value"))
    }

    /// Adds the arrays of a struct: their shapes must agree with its fields and with each other.
    fn arrays(&mut self, class: &'t Class, object: &Bound<'py, PyAny>, at: At, path: &Path<'_>) -> PyResult<()> {
        let numpy = import(self.py, "numpy")?;
        let mut found = Vec::new();
        // Sizes without a field, with the array that determined each.
        let mut sizes: BTreeMap<usize, (u64, &str)> = BTreeMap::new();
        for slot in &class.slots {
            let Kind::Array { dtype, extents, ty } = &slot.kind else { continue };
            let path = Path::Field(path, &slot.name);
            let given = self.attribute(object, &slot.attribute, &slot.name, &path)?;
            let is_record = !dtype.bind(self.py).getattr("names")?.is_none();
            let array = match is_record && !given.hasattr("dtype")? {
                true => numpy.call_method1("asarray", (&given, dtype)),
                false => numpy.call_method1("asarray", (&given,)),
            };
            let array = array.map_err(|_| self.mismatch(&path, &format!("an array of {dtype}"), &given))?;
            let shape: Vec<u64> = array.getattr("shape")?.extract()?;
            if shape.len() != extents.len() {
                return Err(self.shape(&path, &shape, extents, ""));
            }
            for (size, extent) in shape.iter().zip(extents) {
                match extent {
                    Extent::Number(number) if number != size => return Err(self.shape(&path, &shape, extents, "")),
                    Extent::Hidden { name, field } => match sizes.get(field) {
                        Some((known, _)) if known == size => {}
                        Some((known, other)) => {
                            let why = format!(" with {name} = {known} from field '{other}'");
                            return Err(self.shape(&path, &shape, extents, &why));
                        }
                        None => {
                            sizes.insert(*field, (*size, &slot.name));
                        }
                    },
                    Extent::Number(_) | Extent::Expression { .. } => {}
                }
            }
            found.push((slot, array, shape, dtype, extents, *ty));
        }
        for (field, (size, _)) in &sizes {
            let (offset, word) = class.words[*field].expect("a size is an integer");
            self.integer(word, at.plus(offset), i128::from(*size));
        }
        for (slot, array, shape, dtype, extents, ty) in found {
            let path = Path::Field(path, &slot.name);
            for (size, extent) in shape.iter().zip(extents) {
                let Extent::Expression { text, expression } = extent else { continue };
                let value = |field: usize| {
                    class.words[field].map(|(offset, word)| word.read(&self.scratch, at.scratch as u64 + offset))
                };
                let known = expression.evaluate_extent(&class.params, &value);
                let known = known.map_err(|error| self.wrong(&path, &error.to_string()))?;
                if known != *size {
                    return Err(self.shape(&path, &shape, extents, &format!(" with {text} = {known}")));
                }
            }
            let position = match ty {
                None => at.plus(slot.at).position,
                Some(ty) => {
                    let count = shape.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
                    match count.unwrap_or(u64::MAX) {
                        0 => continue,
                        count => {
                            let position = self.add(&self.ty.types[ty], count)?;
                            self.point(at.plus(slot.at), position);
                            position
                        }
                    }
                }
            };
            self.arrays.push(Copied { array, dtype, position, path: path.text() });
        }
        Ok(())
    }

    fn shape(&self, path: &Path<'_>, shape: &[u64], extents: &[Extent], why: &str) -> PyErr {
        let parts: Vec<String> = extents
            .iter()
            .map(|extent| match extent {
                Extent::Number(number) => number.to_string(),
                Extent::Hidden { name, .. } => name.clone(),
                Extent::Expression { text, .. } => text.clone(),
            })
            .collect();
        self.wrong(path, &format!("it has shape {shape:?}, expected [{}]{why}", parts.join(", ")))
    }

    fn finish(self, described: bool) -> PyResult<Vec<u8>> {
        let header = self.blocks.header(described);
        let mut out = vec![0; header.len() + self.blocks.size_bytes() as usize];
        out[..header.len()].copy_from_slice(&header);
        for (position, scratch, bytes) in &self.pieces {
            let start = header.len() + *position as usize;
            out[start..start + bytes].copy_from_slice(&self.scratch[*scratch..scratch + bytes]);
        }
        if self.arrays.is_empty() {
            return Ok(out);
        }
        let meta = Meta::Bytes { size_bytes: out.len() as u64 };
        let memory = Memory::array(self.py, Keeper::Caller, out.as_mut_ptr() as usize, meta, true)?;
        let numpy = import(self.py, "numpy")?;
        for copied in &self.arrays {
            let offset = header.len() as u64 + copied.position;
            let shape = copied.array.getattr("shape")?;
            let mut place = numpy.getattr("ndarray")?.call1((shape, copied.dtype, &memory, offset))?;
            let mut array = copied.array.clone();
            let dtype = copied.dtype.bind(self.py);
            let casting = PyDict::new(self.py);
            casting.set_item("casting", self.casting(&numpy, copied)?)?;
            if !dtype.getattr("names")?.is_none() && array.getattr("dtype")?.eq(dtype)? {
                // NumPy copies structs field by field, unless their structure is hidden from it.
                let bytes = format!("V{}", dtype.getattr("itemsize")?);
                (place, array) = (place.call_method1("view", (&bytes,))?, array.call_method1("view", (&bytes,))?);
            }
            // A number that becomes infinite is rejected, as in a plain field; NumPy would only warn.
            let state = PyDict::new(self.py);
            state.set_item("over", "raise")?;
            let strict = numpy.call_method("errstate", (), Some(&state))?;
            strict.call_method0("__enter__")?;
            let done = numpy.call_method("copyto", (place, array), Some(&casting));
            strict.call_method1("__exit__", (self.py.None(), self.py.None(), self.py.None()))?;
            done.map_err(|error| match error.is_instance_of::<PyFloatingPointError>(self.py) {
                true => {
                    let why = format!("a number of it does not fit an element of {}", copied.dtype);
                    self.ty.wrong(self.py, &copied.path, &why)
                }
                false => self.other_elements(copied),
            })?;
        }
        Ok(out)
    }

    fn other_elements(&self, copied: &Copied<'_, 'py>) -> PyErr {
        let got = copied.array.getattr("dtype").map_or_else(|_| "?".into(), |dtype| dtype.to_string());
        self.ty.wrong(self.py, &copied.path, &format!("expected an array of {}, got one of {got}", copied.dtype))
    }

    /// Returns NumPy's casting rule for an array. Integers may become narrower if their values fit; otherwise elements
    /// may change within NumPy's kinds: floats are rounded, and rejected if they would become infinite.
    fn casting(&self, numpy: &Bound<'py, PyModule>, copied: &Copied<'_, 'py>) -> PyResult<&'static str> {
        let (from, to) = (copied.array.getattr("dtype")?, copied.dtype.bind(self.py));
        if numpy.call_method1("can_cast", (&from, to, "safe"))?.extract()? {
            return Ok("safe");
        }
        let (kind, other): (String, String) = (from.getattr("kind")?.extract()?, to.getattr("kind")?.extract()?);
        if !("iu".contains(&kind) && "iu".contains(&other)) {
            return Ok("same_kind");
        }
        let limits = numpy.call_method1("iinfo", (to,))?;
        let range: (i128, i128) = (limits.getattr("min")?.extract()?, limits.getattr("max")?.extract()?);
        let values = PyTuple::new(self.py, [copied.array.call_method0("min")?, copied.array.call_method0("max")?])?;
        let values: (i128, i128) = values.extract()?;
        if values.0 < range.0 || values.1 > range.1 {
            let value = if values.0 < range.0 { values.0 } else { values.1 };
            return Err(self.ty.wrong(self.py, &copied.path, &format!("{value} does not fit an element of {to}")));
        }
        Ok("unsafe")
    }
}
