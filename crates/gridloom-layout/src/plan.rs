//! A conversion plan, from one machine's representation to another's. It is compiled once for a pair of machines and run
//! for every message.
//!
//! For one element of each type of block, a plan lists runs of bytes to copy, runs of numbers with bytes to reverse, and
//! integers that change their size. Adjacent runs of one kind are merged, also across equal padding. If an element
//! is a single run, the whole block is one run: a plain copy, or a loop that the compiler vectorizes.

use super::error::{Fault, Problem};
use super::header::{Block, ORIGIN};
use super::integer_slot::{IntegerSlot, write_unsigned};
use super::memory_layout::MemoryLayout;
use super::message::Message;
use super::slots::{PointerSlot, Rule};
use super::types::{Declaration, Integer, Type};

/// Conversion between two forms of one schema.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Steps for each type of block.
    targets: Vec<Vec<Op>>,
}

/// A step for one element; positions are relative to its start.
#[derive(Clone, Debug)]
enum Op {
    Copy { from: u64, to: u64, bytes: u64 },
    Swap { from: u64, to: u64, width: u8, count: u64 },
    Resize { from: IntegerSlot, to: IntegerSlot, count: u64, integer: Integer, path: String },
    Pointer { from: u64, to: u64, target: usize },
    Union { from: u64, to: u64, tag: IntegerSlot, cases: Vec<(i64, Vec<Op>)>, path: String },
    Repeat { from: u64, to: u64, from_stride: u64, to_stride: u64, count: u64, body: Vec<Op>, path: String },
}

impl Plan {
    pub(super) fn new(from: &MemoryLayout, to: &MemoryLayout) -> Plan {
        let compiler = Compiler { from, to };
        let types = from.schema.targets();
        Plan {
            targets: types
                .iter()
                .map(|ty| {
                    let mut ops = Vec::new();
                    compiler.ty(ty, 0, 0, "", &mut ops);
                    ops
                })
                .collect(),
        }
    }

    /// Converts the message's blocks into `out`, which is zeroed and has the size that `to` needs, for the address `base`.
    pub(super) fn run(
        &self,
        message: &Message<'_>,
        to: &MemoryLayout,
        blocks: &[Block],
        out: &mut [u8],
        base: u64,
    ) -> Result<(), Box<Fault>> {
        let mut run = Run { message, to, blocks, base, hint: 0 };
        for (number, (source, made)) in message.blocks.iter().zip(blocks).enumerate() {
            let ops = &self.targets[source.target as usize];
            let name = &message.form.targets[source.target as usize].name;
            run.block(ops, source, made, out).map_err(|fault| {
                if number == 0 { fault } else { fault.field(&format!("({name} in block {number})")) }
            })?;
        }
        Ok(())
    }
}

struct Compiler<'a> {
    from: &'a MemoryLayout,
    to: &'a MemoryLayout,
}

impl Compiler<'_> {
    fn integer(&self, integer: Integer, from: u64, to: u64, path: &str, ops: &mut Vec<Op>) {
        let (source, made) =
            (IntegerSlot::new(&self.from.abi, integer, from), IntegerSlot::new(&self.to.abi, integer, to));
        if source.bytes != made.bytes {
            ops.push(Op::Resize { from: source, to: made, count: 1, integer, path: path.to_string() });
        } else {
            self.number(source.bytes, from, to, ops);
        }
    }

    /// Adds a number of the same size on both machines.
    fn number(&self, width: u8, from: u64, to: u64, ops: &mut Vec<Op>) {
        if width == 1 || self.from.abi.byte_order() == self.to.abi.byte_order() {
            push(Op::Copy { from, to, bytes: u64::from(width) }, ops);
        } else {
            push(Op::Swap { from, to, width, count: 1 }, ops);
        }
    }

    fn ty(&self, ty: &Type, from: u64, to: u64, path: &str, ops: &mut Vec<Op>) {
        match ty {
            Type::Integer(integer) => self.integer(*integer, from, to, path, ops),
            Type::Float32 => self.number(4, from, to, ops),
            Type::Float64 => self.number(8, from, to, ops),
            Type::Bool => self.number(1, from, to, ops),
            Type::Array(element, count) => self.array(element, *count, from, to, path, ops),
            Type::Pointer(pointer) => {
                ops.push(Op::Pointer { from, to, target: self.from.schema.target_number(&pointer.target) });
            }
            Type::Named(index) => self.declaration(*index, from, to, path, ops),
        }
    }

    fn declaration(&self, index: usize, from: u64, to: u64, path: &str, ops: &mut Vec<Op>) {
        let all = self.from.schema.declarations();
        let declared = match &all[index] {
            Declaration::Struct(declared) => declared,
            Declaration::Enum(_) => return self.integer(Integer::Int, from, to, path, ops),
            Declaration::Union(_) => unreachable!("a union is a field, and the struct compiles it"),
        };
        let (froms, tos) = (&self.from.shape(index).offsets, &self.to.shape(index).offsets);
        for ((field, from_offset), to_offset) in declared.fields.iter().zip(froms).zip(tos) {
            let (at, made) = (from + from_offset, to + to_offset);
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            let Some(tag) = field.tag else {
                self.ty(&field.ty, at, made, &path, ops);
                continue;
            };
            let integer = match &declared.fields[tag].ty {
                Type::Integer(integer) => *integer,
                _ => Integer::Int,
            };
            let tag = IntegerSlot::new(&self.from.abi, integer, from + froms[tag]);
            let Type::Named(union) = &field.ty else { unreachable!("only unions have tags") };
            let Declaration::Union(union) = &all[*union] else { unreachable!("only unions have tags") };
            let cases = union
                .cases
                .iter()
                .map(|case| {
                    let mut inner = Vec::new();
                    self.ty(&case.ty, 0, 0, &case.name, &mut inner);
                    (case.tag, inner)
                })
                .collect();
            ops.push(Op::Union { from: at, to: made, tag, cases, path });
        }
    }

    fn array(&self, element: &Type, count: u64, from: u64, to: u64, path: &str, ops: &mut Vec<Op>) {
        let (from_stride, to_stride) = (self.from.size_of(element), self.to.size_of(element));
        let mut body = Vec::new();
        self.ty(element, 0, 0, "", &mut body);
        if let Some(Op::Resize { from: source, to: made, count: 1, integer, .. }) = single(&body)
            && source.bytes as u64 == from_stride
            && made.bytes as u64 == to_stride
        {
            let (source, made) = (IntegerSlot { at: from, ..*source }, IntegerSlot { at: to, ..*made });
            ops.push(Op::Resize { from: source, to: made, count, integer: *integer, path: path.to_string() });
            return;
        }
        match whole(&body, from_stride, to_stride) {
            Some(Op::Copy { bytes, .. }) => push(Op::Copy { from, to, bytes: bytes * count }, ops),
            Some(Op::Swap { width, count: own, .. }) => {
                push(Op::Swap { from, to, width: *width, count: own * count }, ops);
            }
            _ => ops.push(Op::Repeat { from, to, from_stride, to_stride, count, body, path: path.to_string() }),
        }
    }
}

fn single(ops: &[Op]) -> Option<&Op> {
    if let [op] = ops { Some(op) } else { None }
}

/// Returns the only operation, if it covers an element completely on both sides.
fn whole(ops: &[Op], from_stride: u64, to_stride: u64) -> Option<&Op> {
    single(ops).filter(|op| match op {
        Op::Copy { from: 0, to: 0, bytes } => from_stride == *bytes && to_stride == *bytes,
        Op::Swap { from: 0, to: 0, width, count } => {
            let bytes = u64::from(*width) * count;
            from_stride == bytes && to_stride == bytes
        }
        _ => false,
    })
}

/// Appends a run, or extends the last one if there is only padding between the two.
fn push(op: Op, ops: &mut Vec<Op>) {
    match (ops.last_mut(), &op) {
        (Some(Op::Copy { from, to, bytes }), Op::Copy { from: next, to: next_to, bytes: more })
            if *next >= *from + *bytes && next - *from == next_to.wrapping_sub(*to) =>
        {
            *bytes = next - *from + more;
        }
        (Some(Op::Swap { from, to, width, count }), Op::Swap { from: next, to: next_to, width: same, count: more })
            if width == same
                && *next == *from + u64::from(*width) * *count
                && *next_to == *to + u64::from(*width) * *count =>
        {
            *count += more;
        }
        _ => ops.push(op),
    }
}

struct Run<'a, 'm> {
    message: &'a Message<'m>,
    to: &'a MemoryLayout,
    blocks: &'a [Block],
    base: u64,
    hint: usize,
}

impl Run<'_, '_> {
    fn block(&mut self, ops: &[Op], source: &Block, made: &Block, out: &mut [u8]) -> Result<(), Box<Fault>> {
        let number = source.target as usize;
        let (from_stride, to_stride) = (self.message.form.targets[number].size, self.to.targets[number].size);
        match whole(ops, from_stride, to_stride) {
            Some(Op::Copy { bytes, .. }) => {
                copy(self.message.memory, source.start, out, made.start, bytes * source.count);
                return Ok(());
            }
            Some(Op::Swap { width, count, .. }) => {
                swap(self.message.memory, source.start, out, made.start, *width, count * source.count);
                return Ok(());
            }
            _ => {}
        }
        for index in 0..source.count {
            let (from, to) = (source.start + index * from_stride, made.start + index * to_stride);
            self.element(ops, from, to, out)
                .map_err(|fault| if source.count > 1 { fault.element(index) } else { fault })?;
        }
        Ok(())
    }

    fn element(&mut self, ops: &[Op], at: u64, made: u64, out: &mut [u8]) -> Result<(), Box<Fault>> {
        let memory = self.message.memory;
        for op in ops {
            match op {
                Op::Copy { from, to, bytes } => copy(memory, at + from, out, made + to, *bytes),
                Op::Swap { from, to, width, count } => swap(memory, at + from, out, made + to, *width, *count),
                Op::Resize { from, to, count, integer, path } => {
                    for index in 0..*count {
                        let (source, target) = (at + index * u64::from(from.bytes), made + index * u64::from(to.bytes));
                        let value = from.get(memory, source);
                        to.set(out, target, value).map_err(|()| {
                            let (ty, bytes) = (integer.name().to_string(), u64::from(to.bytes));
                            let problem = Problem::Narrow { value, ty, bytes, abi: self.to.abi.to_string() };
                            let fault = Fault::new(source + from.at, problem);
                            let fault = if *count > 1 { fault.element(index) } else { fault };
                            if path.is_empty() { fault } else { fault.field(path) }
                        })?;
                    }
                }
                Op::Pointer { from, to, target } => {
                    let address = self.message.address_at(at + from);
                    if address == 0 {
                        continue;
                    }
                    // The number of elements behind it was checked with the message.
                    let met = PointerSlot { at: at + from, target: *target, needed: 1, rule: Rule::One };
                    let place = self.message.follow(&met, address, &mut self.hint);
                    let place = place.expect("pointers were checked with the message").expect("it is not null");
                    let block = &self.blocks[place.block];
                    let position = block.start + place.index * self.to.targets[*target].size;
                    let (bytes, order) = (self.to.abi.pointer_bytes() as u8, self.to.abi.byte_order());
                    write_unsigned(out, made + to, bytes, order, self.base + position);
                }
                Op::Union { from, to, tag, cases, path } => {
                    let value = tag.get(memory, at);
                    if let Some((_, inner)) = cases.iter().find(|(tag, _)| i128::from(*tag) == value) {
                        self.element(inner, at + from, made + to, out).map_err(|fault| fault.field(path))?;
                    }
                }
                Op::Repeat { from, to, from_stride, to_stride, count, body, path } => {
                    for index in 0..*count {
                        let (from, to) = (at + from + index * from_stride, made + to + index * to_stride);
                        self.element(body, from, to, out).map_err(|fault| {
                            let fault = fault.element(index);
                            if path.is_empty() { fault } else { fault.field(path) }
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn copy(memory: &[u8], from: u64, out: &mut [u8], to: u64, bytes: u64) {
    let (from, to, bytes) = (from as usize, to as usize, bytes as usize);
    out[to..to + bytes].copy_from_slice(&memory[from..from + bytes]);
}

fn swap(memory: &[u8], from: u64, out: &mut [u8], to: u64, width: u8, count: u64) {
    let bytes = u64::from(width) * count;
    let source = &memory[from as usize..(from + bytes) as usize];
    let target = &mut out[to as usize..(to + bytes) as usize];
    match width {
        2 => reverse::<2>(source, target),
        4 => reverse::<4>(source, target),
        8 => reverse::<8>(source, target),
        _ => unreachable!("numbers of one byte are copied"),
    }
}

fn reverse<const N: usize>(source: &[u8], target: &mut [u8]) {
    let (source, target) = (source.as_chunks::<N>().0, target.as_chunks_mut::<N>().0);
    for (from, to) in source.iter().zip(target) {
        *to = *from;
        to.reverse();
    }
}

/// Copies the message's memory, in the sender's representation, for the address `base`.
pub(super) fn relocate(message: &Message<'_>, out: &mut [u8], base: u64) {
    out.copy_from_slice(message.memory);
    if base == ORIGIN {
        return;
    }
    let (bytes, order) = (message.form.abi.pointer_bytes() as u8, message.form.abi.byte_order());
    let patched = message.each_pointer(&mut |_, met, _| {
        let address = message.address_at(met.at);
        write_unsigned(out, met.at, bytes, order, address - ORIGIN + base);
        Ok(())
    });
    patched.expect("the same check passed when the message was received");
}
