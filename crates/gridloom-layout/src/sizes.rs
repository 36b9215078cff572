//! Sizes, alignments and offsets of a message type on one machine.
//!
//! The rules are those of C compilers: each field is at the next multiple of its alignment. A struct is aligned as its most
//! aligned field, and its size is a multiple of that. An enum is an `int`. A packed struct has no gaps and alignment 1.

use super::abi::Abi;
use super::error::Problem;
use super::schema::Schema;
use super::types::{Declaration, Integer, Type};
use gridloom_base::limits::LAYOUT_BYTES_MAX;

/// Size, alignment and offsets of a declaration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Bytes, including padding.
    pub size: u64,
    pub align: u64,
    /// Offset of each field of a struct; all 0 in a union, none in an enum.
    pub offsets: Vec<u64>,
}

/// A schema with the shapes of its declarations on one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes<'a> {
    pub(super) schema: &'a Schema,
    pub(super) abi: &'a Abi,
    /// Result of [`shapes`].
    pub(super) shapes: &'a [Shape],
}

impl Sizes<'_> {
    /// Size of a value of that type, bytes.
    pub(super) fn of(self, ty: &Type) -> u64 {
        self.size_align(ty).0
    }

    pub(super) fn align_of(self, ty: &Type) -> u64 {
        self.size_align(ty).1
    }

    fn size_align(self, ty: &Type) -> (u64, u64) {
        size_align(ty, self.abi, self.shapes).expect("sizes were checked when the shapes were made")
    }
}

/// The shapes of all declarations.
///
/// # Errors
/// If a type's size exceeds the limit.
pub(super) fn shapes(schema: &Schema, abi: &Abi) -> Result<Vec<Shape>, Problem> {
    let mut shapes = vec![Shape::default(); schema.declarations().len()];
    for index in schema.by_value() {
        shapes[*index] = shape(&schema.declarations()[*index], abi, &shapes)?;
    }
    Ok(shapes)
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
