//! Memory layout of the fields of Python classes. It is determined once for a class, from its C declaration and from
//! the descriptions of fields by `gridloom/messages/declare.py`.

use std::collections::BTreeMap;

use gridloom_base::Dtype;
use gridloom_idl::signature::Param;
use gridloom_idl::{BaseType, Expr, Mode, parse_expression};
use gridloom_layout::types::{Declaration, Extent as Length, Integer, Struct, Type};
use gridloom_layout::{Abi, MemoryLayout};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple, PyType};

use crate::errors::error;

/// The Python side of a C struct.
pub(super) enum Shape {
    Struct(Class),
    Union(Union),
}

pub(super) struct Class {
    pub(super) class: Py<PyType>,
    pub(super) slots: Vec<Slot>,
    /// The struct's fields as parameters of extents; `words` has the offsets of its integers.
    pub(super) params: Vec<Param>,
    pub(super) words: Vec<Option<(u64, Word)>>,
}

/// A tagged union: one of several classes fills it.
pub(super) struct Union {
    /// The class, its tag, and the declaration of its struct, which is missing if the class has no fields.
    pub(super) cases: Vec<(Py<PyType>, i32, Option<usize>)>,
    pub(super) tag_at: u64,
    pub(super) body_at: u64,
}

/// A field of a class.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) attribute: Py<PyString>,
    /// Offset in the struct.
    pub(super) at: u64,
    pub(super) kind: Kind,
}

/// An integer in memory.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) integer: Integer,
    pub(super) bytes: usize,
}

impl Word {
    pub(super) fn of(integer: Integer) -> Word {
        Word { integer, bytes: Abi::NATIVE.size_of(integer) as usize }
    }

    /// Reads the integer at `at`.
    pub(super) fn read(self, memory: &[u8], at: u64) -> i128 {
        let at = at as usize;
        let mut bytes = [0u8; 8];
        let place = if cfg!(target_endian = "little") { 0 } else { 8 - self.bytes };
        bytes[place..place + self.bytes].copy_from_slice(&memory[at..at + self.bytes]);
        let unsigned = u64::from_ne_bytes(bytes);
        let unused = 64 - 8 * self.bytes as u32;
        if self.integer.is_signed() { i128::from((unsigned << unused) as i64 >> unused) } else { i128::from(unsigned) }
    }

    /// Writes the integer; returns false if it does not fit.
    pub(super) fn write(self, memory: &mut [u8], at: usize, value: i128) -> bool {
        let bits = 8 * self.bytes as u32;
        let (least, most) = match self.integer.is_signed() {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        if value < least || value > most {
            return false;
        }
        let bytes = (value as u64).to_ne_bytes();
        let place = if cfg!(target_endian = "little") { 0 } else { 8 - self.bytes };
        memory[at..at + self.bytes].copy_from_slice(&bytes[place..place + self.bytes]);
        true
    }
}

/// The kind of a C value.
pub(super) enum Kind {
    Integer {
        word: Word,
        wrap: Option<Py<PyAny>>,
    },
    /// `float` or `double`.
    Float {
        bytes: usize,
        wrap: Option<Py<PyAny>>,
    },
    Bool {
        wrap: Option<Py<PyAny>>,
    },
    /// Two floats.
    Complex {
        bytes: usize,
        wrap: Option<Py<PyAny>>,
    },
    Enum {
        class: Py<PyAny>,
        members: Vec<(i32, Py<PyAny>)>,
    },
    /// A string that ends with a NUL.
    Text {
        optional: bool,
    },
    /// A fixed number of characters.
    Characters {
        count: usize,
    },
    /// Bytes whose length is a field of the struct, as for lists.
    Bytes {
        length_at: u64,
        ty: usize,
    },
    List {
        length_at: u64,
        ty: usize,
        stride: u64,
        element: Box<Kind>,
    },
    /// An array: inside the struct, or behind a pointer to elements of that type.
    Array {
        dtype: Py<PyAny>,
        extents: Vec<Extent>,
        ty: Option<usize>,
    },
    Tuple {
        element: Box<Kind>,
        count: usize,
        stride: u64,
    },
    /// A struct by value, with the number of its declaration.
    Struct(usize),
    Union(usize),
    Pointer {
        optional: bool,
        ty: usize,
        element: Box<Kind>,
    },
}

impl Kind {
    /// True if its objects have an identity that references preserve.
    pub(super) fn is_object(&self) -> bool {
        matches!(self, Kind::Struct(_) | Kind::Union(_))
    }
}

pub(super) enum Extent {
    Number(u64),
    /// A field of the struct that the class does not have.
    Hidden {
        name: String,
        field: usize,
    },
    Expression {
        text: String,
        expression: Expr,
    },
}

/// Returns the shapes by declaration, and the types to which pointers lead.
pub(super) fn shapes(form: &MemoryLayout, given: &Bound<'_, PyList>) -> PyResult<(BTreeMap<usize, Shape>, Vec<Type>)> {
    let py = given.py();
    let all = form.schema().declarations();
    let mut maker = Maker { py, form, types: Vec::new() };
    let mut shapes = BTreeMap::new();
    for shape in given {
        let (what, name): (String, String) = (shape.get_item(0)?.extract()?, shape.get_item(1)?.extract()?);
        // Declarations that no part of the message needs are not in the schema.
        let Some(number) = all.iter().position(|declared| declared.name() == name) else { continue };
        let made = match what.as_str() {
            "struct" => maker.class(number, shape.get_item(2)?, shape.get_item(3)?)?,
            _ => maker.union(number, shape.get_item(2)?)?,
        };
        shapes.insert(number, made);
    }
    Ok((shapes, maker.types))
}

struct Maker<'a, 'py> {
    py: Python<'py>,
    form: &'a MemoryLayout,
    types: Vec<Type>,
}

impl<'py> Maker<'_, 'py> {
    fn declared(&self, number: usize) -> &Struct {
        match &self.form.schema().declarations()[number] {
            Declaration::Struct(declared) => declared,
            Declaration::Union(_) | Declaration::Enum(_) => unreachable!("classes are structs"),
        }
    }

    fn number(&self, name: &str) -> PyResult<usize> {
        let all = self.form.schema().declarations();
        let found = all.iter().position(|declared| declared.name() == name);
        found.ok_or_else(|| error(self.py, "InputError", &format!("'{name}' is not declared")))
    }

    fn target(&mut self, ty: &Type) -> usize {
        if let Some(known) = self.types.iter().position(|known| known == ty) {
            return known;
        }
        self.types.push(ty.clone());
        self.types.len() - 1
    }

    fn class(&mut self, number: usize, class: Bound<'py, PyAny>, fields: Bound<'py, PyAny>) -> PyResult<Shape> {
        let declared = self.declared(number).clone();
        let offsets = self.form.shape(number).offsets.clone();
        let scalar = |name: &str| Param::scalar(name, Mode::In, BaseType::Number(Dtype::Int64));
        let words = declared.fields.iter().zip(&offsets).map(|(field, at)| match &field.ty {
            Type::Integer(integer) => Some((*at, Word::of(*integer))),
            _ => None,
        });
        let words = words.collect();
        let mut slots = Vec::new();
        for field in fields.try_iter()? {
            let (name, spec): (String, Bound<'py, PyTuple>) = field?.extract()?;
            let at = declared.fields.iter().position(|own| own.name == name).expect("the class was declared so");
            let kind = self.kind(&spec, &declared.fields[at].ty, Some((&declared, &offsets)))?;
            let attribute = PyString::intern(self.py, &name).unbind();
            slots.push(Slot { name, attribute, at: offsets[at], kind });
        }
        let params = declared.fields.iter().map(|field| scalar(&field.name)).collect();
        Ok(Shape::Struct(Class { class: class.cast_into::<PyType>()?.unbind(), slots, params, words }))
    }

    fn union(&mut self, number: usize, cases: Bound<'py, PyAny>) -> PyResult<Shape> {
        let offsets = &self.form.shape(number).offsets;
        let (tag_at, body_at) = (offsets[0], offsets[1]);
        let mut made = Vec::new();
        for case in cases.try_iter()? {
            let (class, tag, name): (Bound<'py, PyType>, i32, Option<String>) = case?.extract()?;
            let body = name.map(|name| self.number(&name)).transpose()?;
            made.push((class.unbind(), tag, body));
        }
        Ok(Shape::Union(Union { cases: made, tag_at, body_at }))
    }

    /// Interprets a spec for a C type; `owner` is the struct of which it is a field.
    fn kind(&mut self, spec: &Bound<'py, PyTuple>, ty: &Type, owner: Option<(&Struct, &[u64])>) -> PyResult<Kind> {
        let what: String = spec.get_item(0)?.extract()?;
        let wrap = || -> PyResult<Option<Py<PyAny>>> {
            if spec.len() > 1 { Ok(Some(spec.get_item(1)?.unbind())) } else { Ok(None) }
        };
        let inner = |at: usize| -> PyResult<Bound<'py, PyTuple>> { Ok(spec.get_item(at)?.cast_into::<PyTuple>()?) };
        Ok(match (what.as_str(), ty) {
            ("plain", Type::Integer(integer)) => Kind::Integer { word: Word::of(*integer), wrap: wrap()? },
            ("plain", Type::Float32) => Kind::Float { bytes: 4, wrap: wrap()? },
            ("plain", Type::Float64) => Kind::Float { bytes: 8, wrap: wrap()? },
            ("plain", Type::Bool) => Kind::Bool { wrap: wrap()? },
            ("complex", Type::Array(part, 2)) => {
                Kind::Complex { bytes: self.form.size_of(part) as usize, wrap: wrap()? }
            }
            ("enum", Type::Named(_)) => {
                Kind::Enum { class: spec.get_item(1)?.unbind(), members: spec.get_item(2)?.extract()? }
            }
            ("text", _) => Kind::Text { optional: spec.get_item(1)?.extract()? },
            ("characters", Type::Array(_, count)) => Kind::Characters { count: *count as usize },
            ("bytes", Type::Pointer(pointer)) => {
                Kind::Bytes { length_at: length_at(&pointer.extent, owner), ty: self.target(&pointer.target) }
            }
            ("list", Type::Pointer(pointer)) => Kind::List {
                length_at: length_at(&pointer.extent, owner),
                ty: self.target(&pointer.target),
                stride: self.form.size_of(&pointer.target),
                element: Box::new(self.kind(&inner(1)?, &pointer.target, None)?),
            },
            ("array", ty) => {
                let dtype = spec.get_item(1)?;
                let counted = match ty {
                    Type::Pointer(pointer) => Some(&pointer.target),
                    _ => None,
                };
                if let Some(target) = counted {
                    let bytes: u64 = dtype.getattr("itemsize")?.extract()?;
                    assert_eq!(bytes, self.form.size_of(target), "NumPy's element lies as C's does");
                }
                let ty = counted.map(|target| self.target(target));
                Kind::Array { dtype: dtype.unbind(), extents: self.extents(&spec.get_item(2)?, owner)?, ty }
            }
            ("tuple", Type::Array(element, count)) => Kind::Tuple {
                element: Box::new(self.kind(&inner(1)?, element, None)?),
                count: *count as usize,
                stride: self.form.size_of(element),
            },
            ("struct", Type::Named(number)) => Kind::Struct(*number),
            ("union", Type::Named(number)) => Kind::Union(*number),
            ("pointer", Type::Pointer(pointer)) => Kind::Pointer {
                optional: spec.get_item(1)?.extract()?,
                ty: self.target(&pointer.target),
                element: Box::new(self.kind(&inner(2)?, &pointer.target, None)?),
            },
            (what, ty) => unreachable!("a field '{what}' was declared as {ty:?}"),
        })
    }

    fn extents(&self, given: &Bound<'py, PyAny>, owner: Option<(&Struct, &[u64])>) -> PyResult<Vec<Extent>> {
        let fields = owner.map_or(&[][..], |(declared, _)| &declared.fields);
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let mut extents = Vec::new();
        for extent in given.try_iter()? {
            let extent = extent?;
            if let Ok(number) = extent.extract() {
                extents.push(Extent::Number(number));
                continue;
            }
            let (text, hidden): (String, bool) = extent.extract()?;
            let expression = parse_expression(&text, &names)
                .map_err(|why| error(self.py, "InputError", &format!("extent '{text}': {why}")))?;
            extents.push(match expression {
                Expr::Param(field) if hidden => Extent::Hidden { name: text, field },
                expression => Extent::Expression { text, expression },
            });
        }
        Ok(extents)
    }
}

fn length_at(length: &Length, owner: Option<(&Struct, &[u64])>) -> u64 {
    match (length, owner) {
        (Length::Count(Expr::Param(field)), Some((_, offsets))) => offsets[*field],
        _ => unreachable!("lists are fields with a length field of their own"),
    }
}
