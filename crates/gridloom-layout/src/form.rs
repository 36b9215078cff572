//! A message type in the memory of one machine: sizes, alignments and offsets, and which bytes need a look.
//!
//! As C compilers do it: each field at the next multiple of its alignment, a struct aligned as its most aligned field
//! and its size a multiple of that; an enum as an `int`; a packed struct without any gap and alignment 1.
//!
//! **Invariant:** every size is at least 1 and at most `LAYOUT_BYTES_MAX`.

use std::sync::Arc;

use super::abi::Abi;
use super::error::{LayoutError, Problem};
use super::schema::Schema;
use super::slots::{Slot, compile};
use super::types::{Declaration, Integer, Type};
use gridloom_base::ByteOrder;
use gridloom_base::limits::LAYOUT_BYTES_MAX;

/// A schema laid out for one ABI.
#[derive(Clone, Debug)]
pub struct Form {
    pub(super) schema: Arc<Schema>,
    pub(super) abi: Abi,
    shapes: Vec<Shape>,
    pub(super) targets: Vec<Target>,
}

/// Size and place of a declaration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Bytes, padding included.
    pub size: u64,
    pub align: u64,
    /// Where each field of a struct begins; all 0 in a union, none in an enum.
    pub offsets: Vec<u64>,
}

/// What blocks of one type are.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) size: u64,
    /// Pointers and whatever else must be checked in one element. Empty: any bytes will do.
    pub(super) slots: Vec<Slot>,
    /// The type as text.
    pub(super) name: String,
    /// Whether a value can reach another of its type through pointers.
    pub(super) recursive: bool,
}

impl Form {
    /// Lays it out.
    ///
    /// # Errors
    /// If a type's size exceeds the limit.
    pub fn new(schema: Arc<Schema>, abi: Abi) -> Result<Form, LayoutError> {
        let mut shapes = vec![Shape::default(); schema.declarations().len()];
        let name = schema.name().to_string();
        for index in schema.by_value() {
            shapes[*index] = shape(&schema.declarations()[*index], &abi, &shapes).map_err(|problem| LayoutError {
                message: name.clone(),
                path: String::new(),
                offset: None,
                problem,
            })?;
        }
        let mut form = Form { schema, abi, shapes, targets: Vec::new() };
        let types = form.schema.targets().to_vec();
        for ty in &types {
            let size = form.size_of(ty);
            let slots = compile(&form, ty).map_err(|fault| fault.of(&name))?;
            let text = super::text::declarator(ty, "", form.schema.declarations()).trim_end().to_string();
            form.targets.push(Target { size, slots, name: text, recursive: false });
        }
        let edges: Vec<Vec<usize>> = form.targets.iter().map(|target| super::slots::targets(&target.slots)).collect();
        for (number, target) in form.targets.iter_mut().enumerate() {
            target.recursive = reaches(&edges, number);
        }
        Ok(form)
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub fn abi(&self) -> &Abi {
        &self.abi
    }

    /// Size, alignment and offsets of a declaration of the schema.
    pub fn shape(&self, declaration: usize) -> &Shape {
        &self.shapes[declaration]
    }

    /// Bytes of a value of that type.
    pub fn size_of(&self, ty: &Type) -> u64 {
        size_align(ty, &self.abi, &self.shapes).expect("sizes were checked when the form was made").0
    }

    /// Alignment of that type.
    pub fn align_of(&self, ty: &Type) -> u64 {
        size_align(ty, &self.abi, &self.shapes).expect("sizes were checked when the form was made").1
    }

    pub(super) fn word(&self, integer: Integer, at: u64) -> Word {
        Word { at, bytes: self.abi.size_of(integer) as u8, signed: integer.is_signed(), order: self.abi.byte_order() }
    }

    #[allow(clippy::boxed_local, reason = "it comes boxed from all that can fail")]
    pub(super) fn fail(&self, fault: Box<super::error::Fault>) -> LayoutError {
        fault.of(self.schema.name())
    }
}

/// Whether a way along the edges leads from `start` back to it.
fn reaches(edges: &[Vec<usize>], start: usize) -> bool {
    let mut seen = vec![false; edges.len()];
    let mut open = edges[start].clone();
    while let Some(next) = open.pop() {
        if next == start {
            return true;
        }
        if !std::mem::replace(&mut seen[next], true) {
            open.extend(&edges[next]);
        }
    }
    false
}

fn shape(declaration: &Declaration, abi: &Abi, shapes: &[Shape]) -> Result<Shape, Problem> {
    let mut made = Shape { size: 0, align: 1, offsets: Vec::new() };
    match declaration {
        Declaration::Struct(declared) => {
            for field in &declared.fields {
                let (size, align) = size_align(&field.ty, abi, shapes)?;
                let align = if declared.packed { 1 } else { align };
                let offset = made.size.next_multiple_of(align);
                made.offsets.push(offset);
                made.size = bounded(offset + size)?;
                made.align = made.align.max(align);
            }
        }
        Declaration::Union(declared) => {
            for case in &declared.cases {
                let (size, align) = size_align(&case.ty, abi, shapes)?;
                made.offsets.push(0);
                made.size = made.size.max(size);
                made.align = made.align.max(align);
            }
        }
        Declaration::Enum(_) => {
            made.size = abi.size_of(Integer::Int);
            made.align = abi.align_of(Integer::Int);
        }
    }
    made.size = made.size.next_multiple_of(made.align);
    Ok(made)
}

fn size_align(ty: &Type, abi: &Abi, shapes: &[Shape]) -> Result<(u64, u64), Problem> {
    Ok(match ty {
        Type::Integer(integer) => (abi.size_of(*integer), abi.align_of(*integer)),
        Type::Float32 => (4, abi.align_float()),
        Type::Float64 => (8, abi.align_double()),
        Type::Bool => (1, 1),
        Type::Named(index) => (shapes[*index].size, shapes[*index].align),
        Type::Array(element, count) => {
            let (size, align) = size_align(element, abi, shapes)?;
            (bounded(size.saturating_mul(*count))?, align)
        }
        Type::Pointer(_) => (abi.pointer_bytes(), abi.align_pointer()),
    })
}

fn bounded(size: u64) -> Result<u64, Problem> {
    if size > LAYOUT_BYTES_MAX {
        return Err(Problem::Limit { what: "bytes in one value", count: size, limit: LAYOUT_BYTES_MAX });
    }
    Ok(size)
}

/// Where an integer lies, and how to read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word {
    pub(super) at: u64,
    pub(super) bytes: u8,
    pub(super) signed: bool,
    pub(super) order: ByteOrder,
}

impl Word {
    /// The integer in the element that begins at `base`.
    pub(super) fn get(&self, memory: &[u8], base: u64) -> i128 {
        let unsigned = read_unsigned(memory, base + self.at, self.bytes, self.order);
        let unused = 64 - 8 * u32::from(self.bytes);
        if self.signed { i128::from((unsigned << unused) as i64 >> unused) } else { i128::from(unsigned) }
    }

    /// Writes it, or says that it does not fit.
    pub(super) fn set(&self, memory: &mut [u8], base: u64, value: i128) -> Result<(), ()> {
        let bits = 8 * u32::from(self.bytes);
        let (least, most) =
            if self.signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
        if value < least || value > most {
            return Err(());
        }
        write_unsigned(memory, base + self.at, self.bytes, self.order, value as u64);
        Ok(())
    }
}

/// The low bytes of an integer.
pub(super) fn read_unsigned(memory: &[u8], at: u64, bytes: u8, order: ByteOrder) -> u64 {
    let at = at as usize;
    match (bytes, order) {
        (8, ByteOrder::Little) => u64::from_le_bytes(array(&memory[at..at + 8])),
        (8, ByteOrder::Big) => u64::from_be_bytes(array(&memory[at..at + 8])),
        (4, ByteOrder::Little) => u64::from(u32::from_le_bytes(array(&memory[at..at + 4]))),
        (4, ByteOrder::Big) => u64::from(u32::from_be_bytes(array(&memory[at..at + 4]))),
        (2, ByteOrder::Little) => u64::from(u16::from_le_bytes(array(&memory[at..at + 2]))),
        (2, ByteOrder::Big) => u64::from(u16::from_be_bytes(array(&memory[at..at + 2]))),
        _ => u64::from(memory[at]),
    }
}

pub(super) fn write_unsigned(memory: &mut [u8], at: u64, bytes: u8, order: ByteOrder, value: u64) {
    let (at, bytes) = (at as usize, usize::from(bytes));
    match order {
        ByteOrder::Little => memory[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]),
        ByteOrder::Big => memory[at..at + bytes].copy_from_slice(&value.to_be_bytes()[8 - bytes..]),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("a slice of that length")
}
