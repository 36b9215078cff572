//! Slots: the parts of a value's memory that must be checked. They are pointers, bools, enums, unions and dynamic arrays.
//! All other bytes are valid whatever they are, so a block without slots is never walked.
//!
//! Nested structs are flattened when slots are compiled; arrays of values with slots stay loops.

use super::error::{Fault, Problem};
use super::integer_slot::{IntegerSlot, read_unsigned};
use super::schema::params;
use super::sizes::Sizes;
use super::types::{Declaration, Extent, Integer, Type};
use gridloom_idl::Expr;
use gridloom_idl::signature::Param;

/// A part to check, `at` bytes into the element.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) path: String,
    pub(super) at: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Pointer { target: usize, extent: SlotExtent },
    Bool,
    Enum { word: IntegerSlot, declaration: usize },
    Union { tag: IntegerSlot, cases: Vec<(i64, Vec<Slot>)> },
    Repeat { stride: u64, count: u64, body: Vec<Slot> },
    Capacity { length: IntegerSlot, capacity: IntegerSlot },
}

#[derive(Clone, Debug)]
pub(super) enum SlotExtent {
    One,
    Text,
    /// The value of one field.
    Field(IntegerSlot),
    Expression(Box<Count>),
}

/// The length of a counted pointer.
#[derive(Clone, Debug)]
pub(super) struct Count {
    expr: Expr,
    params: Vec<Param>,
    /// The integer fields, by index.
    words: Vec<Option<IntegerSlot>>,
}

/// A pointer found in an element: its position, and the required number of elements (0 for a string: up to its NUL).
#[derive(Clone, Copy, Debug)]
pub(super) struct PointerSlot {
    pub(super) at: u64,
    pub(super) target: usize,
    pub(super) needed: u64,
    pub(super) rule: Rule,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    One,
    Count,
    Text,
}

/// The source of the memory that is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Message,
    Program,
}

/// Maximum number of slots of one value, over all its parts: bounds the cost of a declaration of nested arrays.
const SLOTS_MAX: usize = 1 << 16;

pub(super) fn compile(sizes: Sizes<'_>, ty: &Type) -> Result<Vec<Slot>, Box<Fault>> {
    let mut compiler = Compiler { sizes, made: 0 };
    let mut slots = Vec::new();
    compiler.ty(ty, 0, "", &mut slots)?;
    Ok(slots)
}

struct Compiler<'a> {
    sizes: Sizes<'a>,
    made: usize,
}

impl Compiler<'_> {
    fn push(&mut self, slots: &mut Vec<Slot>, path: &str, at: u64, kind: Kind) -> Result<(), Box<Fault>> {
        self.made += 1;
        if self.made > SLOTS_MAX {
            let (count, limit) = (self.made as u64, SLOTS_MAX as u64);
            return Err(Fault::whole(Problem::Limit { what: "pointers and the like in one value", count, limit }));
        }
        slots.push(Slot { path: path.to_string(), at, kind });
        Ok(())
    }

    fn ty(&mut self, ty: &Type, at: u64, path: &str, slots: &mut Vec<Slot>) -> Result<(), Box<Fault>> {
        match ty {
            Type::Integer(_) | Type::Float32 | Type::Float64 => Ok(()),
            Type::Bool => self.push(slots, path, at, Kind::Bool),
            Type::Array(element, count) => {
                let mut body = Vec::new();
                self.ty(element, 0, "", &mut body)?;
                if body.is_empty() {
                    return Ok(());
                }
                let stride = self.sizes.of(element);
                self.push(slots, path, at, Kind::Repeat { stride, count: *count, body })
            }
            Type::Pointer(pointer) => {
                let target = self.sizes.schema.target_number(&pointer.target);
                let extent = match pointer.extent {
                    Extent::One => SlotExtent::One,
                    Extent::Text => SlotExtent::Text,
                    Extent::Count(_) => unreachable!("a counted pointer is a field, and the struct compiles it"),
                };
                self.push(slots, path, at, Kind::Pointer { target, extent })
            }
            Type::Named(index) => self.declaration(*index, at, path, slots),
        }
    }

    fn declaration(&mut self, index: usize, at: u64, path: &str, slots: &mut Vec<Slot>) -> Result<(), Box<Fault>> {
        let Sizes { schema, abi, shapes } = self.sizes;
        let declared = match &schema.declarations()[index] {
            Declaration::Struct(declared) => declared,
            Declaration::Enum(_) => {
                let word = IntegerSlot::new(abi, Integer::Int, at);
                return self.push(slots, path, at, Kind::Enum { word, declaration: index });
            }
            Declaration::Union(_) => unreachable!("a union is a field, and the struct compiles it"),
        };
        let offsets = &shapes[index].offsets;
        let words: Vec<Option<IntegerSlot>> = declared
            .fields
            .iter()
            .zip(offsets)
            .map(|(field, offset)| match &field.ty {
                Type::Integer(integer) => Some(IntegerSlot::new(abi, *integer, at + offset)),
                // Among the remaining types only an enum can be a tag.
                Type::Named(_) => Some(IntegerSlot::new(abi, Integer::Int, at + offset)),
                _ => None,
            })
            .collect();
        for (number, (field, offset)) in declared.fields.iter().zip(offsets).enumerate() {
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            let at = at + offset;
            if let Some(tag) = field.tag {
                let tag = words[tag].expect("a tag is an integer or an enum");
                let Type::Named(union) = field.ty else { unreachable!("only unions have tags") };
                let Declaration::Union(union) = &schema.declarations()[union] else {
                    unreachable!("only unions have tags")
                };
                let mut cases = Vec::new();
                for case in &union.cases {
                    let mut inner = Vec::new();
                    self.ty(&case.ty, 0, &case.name, &mut inner)?;
                    cases.push((case.tag, inner));
                }
                if cases.iter().any(|(_, slots)| !slots.is_empty()) {
                    self.push(slots, &path, at, Kind::Union { tag, cases })?;
                }
                continue;
            }
            match &field.ty {
                Type::Pointer(pointer) if matches!(pointer.extent, Extent::Count(_)) => {
                    let Extent::Count(expr) = &pointer.extent else { unreachable!("just matched") };
                    let target = schema.target_number(&pointer.target);
                    let extent = match expr {
                        Expr::Param(index) => SlotExtent::Field(words[*index].expect("lengths use integers")),
                        expr => SlotExtent::Expression(Box::new(Count {
                            expr: expr.clone(),
                            params: params(&declared.fields),
                            words: words.clone(),
                        })),
                    };
                    self.push(slots, &path, at, Kind::Pointer { target, extent })?;
                }
                ty => self.ty(ty, at, &path, slots)?,
            }
            if declared.dynamic && number == 2 {
                let (length, capacity) = (words[1].expect("a size_t"), words[2].expect("a size_t"));
                self.push(slots, &path, at, Kind::Capacity { length, capacity })?;
            }
        }
        Ok(())
    }
}

impl SlotExtent {
    /// Returns the required number of elements.
    fn needed(&self, memory: &[u8], base: u64) -> Result<(u64, Rule), Problem> {
        match self {
            SlotExtent::One => Ok((1, Rule::One)),
            SlotExtent::Text => Ok((0, Rule::Text)),
            SlotExtent::Field(word) => match u64::try_from(word.get(memory, base)) {
                Ok(count) => Ok((count, Rule::Count)),
                Err(_) => Err(Problem::Count(format!("its length is {}, expected 0 or more", word.get(memory, base)))),
            },
            SlotExtent::Expression(count) => {
                let value = |index: usize| count.words[index].map(|word: IntegerSlot| word.get(memory, base));
                match count.expr.evaluate_extent(&count.params, &value) {
                    Ok(extent) => Ok((extent, Rule::Count)),
                    Err(error) => Err(Problem::Count(format!("its length has no value: {error}"))),
                }
            }
        }
    }
}

/// Checks the slots of the element of `memory` that begins at `base`; `on_pointer` receives each pointer's position and value.
/// In a program's own memory, the capacity of a dynamic array may exceed its length; in a message it may not.
pub(super) fn visit(
    sizes: Sizes<'_>,
    slots: &[Slot],
    memory: &[u8],
    base: u64,
    from: Origin,
    on_pointer: &mut dyn FnMut(PointerSlot, u64) -> Result<(), Problem>,
) -> Result<(), Box<Fault>> {
    for slot in slots {
        let at = base + slot.at;
        let wrong = |problem: Problem| Fault::new(at, problem).field(&slot.path);
        match &slot.kind {
            Kind::Pointer { target, extent } => {
                let (needed, rule) = extent.needed(memory, base).map_err(wrong)?;
                let address = read_unsigned(memory, at, sizes.abi.pointer_bytes() as u8, sizes.abi.byte_order());
                on_pointer(PointerSlot { at, target: *target, needed, rule }, address).map_err(wrong)?;
            }
            Kind::Bool => {
                let byte = memory[at as usize];
                if byte > 1 {
                    return Err(wrong(Problem::Bool(byte)));
                }
            }
            Kind::Enum { word, declaration } => {
                let value = word.get(memory, base) as i64;
                if let Declaration::Enum(declared) = &sizes.schema.declarations()[*declaration]
                    && declared.constant(value).is_none()
                {
                    return Err(wrong(Problem::Enum { name: declared.name.clone(), value }));
                }
            }
            Kind::Union { tag, cases } => {
                let value = tag.get(memory, base);
                if let Some((_, inner)) = cases.iter().find(|(tag, _)| i128::from(*tag) == value) {
                    visit(sizes, inner, memory, at, from, on_pointer).map_err(|fault| fault.field(&slot.path))?;
                }
            }
            Kind::Repeat { stride, count, body } => {
                for index in 0..*count {
                    visit(sizes, body, memory, at + index * stride, from, on_pointer)
                        .map_err(|fault| fault.element(index).field(&slot.path))?;
                }
            }
            Kind::Capacity { length, capacity } => {
                let (length, capacity) = (length.get(memory, base) as u64, capacity.get(memory, base) as u64);
                if from == Origin::Message && length != capacity {
                    return Err(wrong(Problem::Capacity { length, capacity }));
                }
            }
        }
    }
    Ok(())
}

/// Sets the capacity of each dynamic array to its length: reserved space is not sent.
pub(super) fn trim(slots: &[Slot], memory: &mut [u8], base: u64) {
    for slot in slots {
        let at = base + slot.at;
        match &slot.kind {
            Kind::Pointer { .. } | Kind::Bool | Kind::Enum { .. } => {}
            Kind::Union { tag, cases } => {
                let value = tag.get(memory, base);
                if let Some((_, inner)) = cases.iter().find(|(tag, _)| i128::from(*tag) == value) {
                    trim(inner, memory, at);
                }
            }
            Kind::Repeat { stride, count, body } => {
                if body.iter().any(|slot| !matches!(slot.kind, Kind::Pointer { .. } | Kind::Bool | Kind::Enum { .. })) {
                    (0..*count).for_each(|index| trim(body, memory, at + index * stride));
                }
            }
            Kind::Capacity { length, capacity } => {
                let length = length.get(memory, base);
                capacity.set(memory, base, length).expect("both are size_t");
            }
        }
    }
}

/// Returns the target types of the pointers among the slots.
pub(super) fn targets(slots: &[Slot]) -> Vec<usize> {
    let mut found = Vec::new();
    for slot in slots {
        match &slot.kind {
            Kind::Pointer { target, .. } => found.push(*target),
            Kind::Union { cases, .. } => cases.iter().for_each(|(_, inner)| found.extend(targets(inner))),
            Kind::Repeat { body, .. } => found.extend(targets(body)),
            Kind::Bool | Kind::Enum { .. } | Kind::Capacity { .. } => {}
        }
    }
    found
}
