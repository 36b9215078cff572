//! Encodes values as a message, in the representation of any machine.
//!
//! Fields that follow from others may be left out: the length of one counted array, the tag of a union.
//! The targets of pointers are written breadth first, without recursion, so a value may have any depth.

use std::collections::VecDeque;

use super::error::{Fault, LayoutError, Problem};
use super::header::{Block, MessageParts, ORIGIN};
use super::integer_slot::{IntegerSlot, write_unsigned};
use super::memory_layout::MemoryLayout;
use super::message::{Message, place_blocks};
use super::schema::params;
use super::types::{Declaration, Extent, Field, Integer, Pointer, Struct, Type, Union};
use super::value::{Graph, Value};
use gridloom_base::limits::{LAYOUT_BLOCKS_MAX, LAYOUT_BYTES_MAX};
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_idl::Expr;

impl MemoryLayout {
    /// Encodes the values as a message.
    ///
    /// # Errors
    /// If a value does not fit its field: the field, the value and the expected kind.
    pub fn encode_values(&self, graph: &Graph) -> Result<Vec<u8>, LayoutError> {
        let bytes = self.write_values(graph).map_err(|fault| self.fail(fault))?;
        // Inconsistent references and lengths are found by the receiver's check.
        let header = MessageParts::parse(&bytes).map_err(|problem| self.fail(Fault::whole(problem)))?;
        Message::check(header, self)?;
        Ok(bytes)
    }

    fn write_values(&self, graph: &Graph) -> Result<Vec<u8>, Box<Fault>> {
        let mut writer = Writer {
            form: self,
            graph,
            blocks: Vec::new(),
            shared: vec![None; graph.shared.len()],
            links: Vec::new(),
            open: VecDeque::new(),
            total: 0,
        };
        let root = match &graph.root {
            Value::Reference { shared, index } => {
                writer.shared_block(*shared, 0)?;
                *index
            }
            root => {
                writer.block(0, Content::One(root))?;
                0
            }
        };
        while let Some(number) = writer.open.pop_front() {
            writer.fill(number).map_err(|fault| {
                let name = &self.targets[writer.blocks[number].target].name;
                if number == 0 { fault } else { fault.field(&format!("({name})")) }
            })?;
        }
        writer.finish(root)
    }
}

/// The content of a block.
#[derive(Clone, Copy)]
enum Content<'v> {
    One(&'v Value),
    Many(&'v [Value]),
    Bytes(&'v [u8]),
    /// Followed by a NUL.
    Text(&'v [u8]),
}

impl Content<'_> {
    fn count(&self) -> u64 {
        match self {
            Content::One(_) => 1,
            Content::Many(values) => values.len() as u64,
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Text(bytes) => bytes.len() as u64 + 1,
        }
    }
}

struct Out<'v> {
    target: usize,
    content: Content<'v>,
    memory: Vec<u8>,
}

struct Writer<'v> {
    form: &'v MemoryLayout,
    graph: &'v Graph,
    blocks: Vec<Out<'v>>,
    /// The block of each shared array that was referred to.
    shared: Vec<Option<usize>>,
    /// Pointers to set: block, position in it, target block and element.
    links: Vec<(usize, u64, usize, u64)>,
    open: VecDeque<usize>,
    total: u64,
}

impl<'v> Writer<'v> {
    fn block(&mut self, target: usize, content: Content<'v>) -> Result<usize, Box<Fault>> {
        let length = content.count().saturating_mul(self.form.targets[target].size);
        self.total = self.total.saturating_add(length);
        if self.total > LAYOUT_BYTES_MAX {
            let problem =
                Problem::Limit { what: super::error::BYTES_OF_MEMORY, count: self.total, limit: LAYOUT_BYTES_MAX };
            return Err(Fault::whole(problem));
        }
        if self.blocks.len() == LAYOUT_BLOCKS_MAX {
            let (count, limit) = (LAYOUT_BLOCKS_MAX as u64 + 1, LAYOUT_BLOCKS_MAX as u64);
            return Err(Fault::whole(Problem::Limit { what: "blocks", count, limit }));
        }
        self.blocks.push(Out { target, content, memory: vec![0; length as usize] });
        self.open.push_back(self.blocks.len() - 1);
        Ok(self.blocks.len() - 1)
    }

    /// Returns the block of a shared array, which has one type.
    fn shared_block(&mut self, shared: usize, target: usize) -> Result<usize, Box<Fault>> {
        let graph = self.graph;
        let Some(values) = graph.shared.get(shared).filter(|values| !values.is_empty()) else {
            let expected = format!("a reference to one of {} shared arrays with elements", graph.shared.len());
            return Err(mismatch(expected, format!("#{shared}")));
        };
        if let Some(number) = self.shared[shared] {
            let known = self.blocks[number].target;
            if known == target {
                return Ok(number);
            }
            let name = |target: usize| self.form.targets[target].name.clone();
            return Err(mismatch(name(target), format!("#{shared}, which is {} elsewhere", name(known))));
        }
        let content = match values.as_slice() {
            [Value::Bytes(bytes)] if self.form.schema.targets()[target] == Type::Integer(Integer::Char) => {
                Content::Bytes(bytes)
            }
            values => Content::Many(values),
        };
        let number = self.block(target, content)?;
        self.shared[shared] = Some(number);
        Ok(number)
    }

    fn fill(&mut self, number: usize) -> Result<(), Box<Fault>> {
        let Out { target, content, .. } = self.blocks[number];
        let ty = &self.form.schema.targets()[target];
        match content {
            Content::Bytes(bytes) | Content::Text(bytes) => {
                self.blocks[number].memory[..bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Content::One(value) => self.value(number, 0, ty, value),
            Content::Many(values) => {
                let stride = self.form.targets[target].size;
                for (index, value) in values.iter().enumerate() {
                    let index = index as u64;
                    self.value(number, index * stride, ty, value).map_err(|fault| fault.element(index))?;
                }
                Ok(())
            }
        }
    }

    fn value(&mut self, block: usize, at: u64, ty: &'v Type, value: &'v Value) -> Result<(), Box<Fault>> {
        let order = self.form.abi.byte_order();
        let memory = &mut self.blocks[block].memory;
        match (ty, value) {
            (Type::Integer(integer), Value::Integer(number)) => self.integer(block, *integer, at, *number),
            (Type::Float32, value) => {
                let bits = u64::from((number(value, "a number")? as f32).to_bits());
                write_unsigned(memory, at, 4, order, bits);
                Ok(())
            }
            (Type::Float64, value) => {
                let bits = number(value, "a number")?.to_bits();
                write_unsigned(memory, at, 8, order, bits);
                Ok(())
            }
            (Type::Bool, Value::Bool(truth)) => {
                memory[at as usize] = u8::from(*truth);
                Ok(())
            }
            (Type::Array(element, count), Value::Bytes(bytes))
                if **element == Type::Integer(Integer::Char) && bytes.len() as u64 <= *count =>
            {
                memory[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            (Type::Array(element, count), Value::List(values)) if values.len() as u64 == *count => {
                let stride = self.form.size_of(element);
                for (index, value) in values.iter().enumerate() {
                    let index = index as u64;
                    self.value(block, at + index * stride, element, value).map_err(|fault| fault.element(index))?;
                }
                Ok(())
            }
            (Type::Array(_, count), value) => Err(mismatch(format!("a list of {count} elements"), value.kind())),
            (Type::Pointer(pointer), value) => self.pointer(block, at, pointer, value),
            (Type::Named(index), value) => self.declaration(block, at, *index, value),
            (Type::Integer(_), value) => Err(mismatch("an integer".into(), value.kind())),
            (Type::Bool, value) => Err(mismatch("true or false".into(), value.kind())),
        }
    }

    fn integer(&mut self, block: usize, integer: Integer, at: u64, value: i128) -> Result<(), Box<Fault>> {
        let word: IntegerSlot = IntegerSlot::new(&self.form.abi, integer, at);
        word.set(&mut self.blocks[block].memory, 0, value).map_err(|()| {
            let (ty, bytes) = (integer.name().to_string(), u64::from(word.bytes));
            Fault::whole(Problem::Narrow { value, ty, bytes, abi: self.form.abi.to_string() })
        })
    }

    fn pointer(&mut self, block: usize, at: u64, pointer: &'v Pointer, value: &'v Value) -> Result<(), Box<Fault>> {
        let target = self.form.schema.target_number(&pointer.target);
        let content = match (&pointer.extent, value) {
            (_, Value::Reference { shared, index }) => {
                let number = self.shared_block(*shared, target)?;
                self.links.push((block, at, number, *index));
                return Ok(());
            }
            (Extent::One | Extent::Text, Value::Null) => return Ok(()),
            (Extent::One, Value::Pointee(value)) => Content::One(value),
            (Extent::Text, Value::Text(text)) if !text.contains('\0') => Content::Text(text.as_bytes()),
            (Extent::Text, Value::Bytes(text)) if !text.contains(&0) => Content::Text(text),
            (Extent::Text, Value::Text(_) | Value::Bytes(_)) => {
                return Err(Fault::whole(Problem::Text("a string with a NUL inside, where C would see its end")));
            }
            (Extent::Count(_), Value::List(values)) => Content::Many(values),
            (Extent::Count(_), Value::Bytes(bytes)) if pointer.target == Type::Integer(Integer::Char) => {
                Content::Bytes(bytes)
            }
            (extent, value) => {
                let expected = match extent {
                    Extent::One => "a pointer, a reference or null",
                    Extent::Text => "a string, a reference or null",
                    Extent::Count(_) => "a list or a reference",
                };
                return Err(mismatch(expected.to_string(), value.kind()));
            }
        };
        if content.count() > 0 {
            let number = self.block(target, content)?;
            self.links.push((block, at, number, 0));
        }
        Ok(())
    }

    fn declaration(&mut self, block: usize, at: u64, index: usize, value: &'v Value) -> Result<(), Box<Fault>> {
        let declared = match (&self.form.schema.declarations()[index], value) {
            (Declaration::Enum(declared), Value::Constant(name)) => {
                let known = declared.constants.iter().find(|(own, _)| own == name);
                let Some((_, number)) = known else {
                    let near = near_names(name, declared.constants.iter().map(|(name, _)| name.as_str()));
                    let expected = format!("a constant of enum '{}'{}", declared.name, did_you_mean(&near));
                    return Err(mismatch(expected, format!("'{name}'")));
                };
                return self.integer(block, Integer::Int, at, i128::from(*number));
            }
            (Declaration::Enum(_), Value::Integer(number)) => return self.integer(block, Integer::Int, at, *number),
            (Declaration::Enum(declared), value) => {
                return Err(mismatch(format!("a constant of enum '{}'", declared.name), value.kind()));
            }
            (Declaration::Union(_), _) => unreachable!("a union is a field, and the struct writes it"),
            (Declaration::Struct(declared), _) => declared,
        };
        let form = self.form;
        let offsets = &form.shape(index).offsets;
        if declared.dynamic {
            let length = match value {
                Value::List(values) => values.len(),
                Value::Bytes(bytes) => bytes.len(),
                value => return Err(mismatch("a list".into(), value.kind())),
            };
            self.integer(block, Integer::SizeT, at + offsets[1], length as i128)?;
            self.integer(block, Integer::SizeT, at + offsets[2], length as i128)?;
            return self.value(block, at + offsets[0], &declared.fields[0].ty, value);
        }
        let Value::Struct(given) = value else {
            return Err(mismatch(format!("struct '{}'", declared.name), value.kind()));
        };
        if let Some((name, _)) = given.iter().find(|(name, _)| !declared.fields.iter().any(|own| own.name == *name)) {
            let near = near_names(name, declared.fields.iter().map(|own| own.name.as_str()));
            let expected = format!("a field of struct '{}'{}", declared.name, did_you_mean(&near));
            return Err(mismatch(expected, format!("'{name}'")));
        }
        for (number, (field, offset)) in declared.fields.iter().zip(offsets).enumerate() {
            let at = at + offset;
            let own = given.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value);
            let written = match own {
                Some(value) if field.tag.is_some() => self.union(block, at, field, declared, given, value),
                Some(value) => self.value(block, at, &field.ty, value),
                None => match implied(number, declared, given, form.schema.declarations()) {
                    Some(value) => self.implied(block, at, field, value),
                    None => Err(mismatch("a value".into(), "none".into())),
                },
            };
            written.map_err(|fault| fault.field(&field.name))?;
        }
        self.check_lengths(block, index, at, given)
    }

    fn implied(&mut self, block: usize, at: u64, field: &Field, value: i128) -> Result<(), Box<Fault>> {
        let integer = if let Type::Integer(integer) = &field.ty { *integer } else { Integer::Int };
        self.integer(block, integer, at, value)
    }

    fn union(
        &mut self,
        block: usize,
        at: u64,
        field: &'v Field,
        declared: &'v Struct,
        given: &'v [(String, Value)],
        value: &'v Value,
    ) -> Result<(), Box<Fault>> {
        let all = self.form.schema.declarations();
        let union = union_of(field, all);
        let tag = &declared.fields[field.tag.expect("the caller saw it")];
        let told = given.iter().find(|(name, _)| *name == tag.name).map(|(_, value)| value);
        let told = told.and_then(|value| tag_value(value, &tag.ty, all));
        match value {
            Value::Null => match union.cases.iter().find(|case| told == Some(i128::from(case.tag))) {
                Some(case) => Err(mismatch(format!("case '{}', as its tag says", case.name), "null".into())),
                None => Ok(()),
            },
            Value::Case(name, inner) => {
                let Some(case) = union.cases.iter().find(|case| case.name == *name) else {
                    let near = near_names(name, union.cases.iter().map(|case| case.name.as_str()));
                    let expected = format!("a case of union '{}'{}", union.name, did_you_mean(&near));
                    return Err(mismatch(expected, format!("'{name}'")));
                };
                if told.is_some_and(|told| told != i128::from(case.tag)) {
                    let expected = format!("the case of tag {}", told.unwrap_or_default());
                    return Err(mismatch(expected, format!("case '{name}' of tag {}", case.tag)));
                }
                self.value(block, at, &case.ty, inner).map_err(|fault| fault.field(name))
            }
            value => Err(mismatch(format!("a case of union '{}' or null", union.name), value.kind())),
        }
    }

    /// Checks that each list has the length that the fields state: a receiver would not notice one that is too long.
    fn check_lengths(&self, block: usize, index: usize, at: u64, given: &[(String, Value)]) -> Result<(), Box<Fault>> {
        let form = self.form;
        let Declaration::Struct(declared) = &form.schema.declarations()[index] else { return Ok(()) };
        let offsets = &form.shape(index).offsets;
        let memory = &self.blocks[block].memory;
        for field in &declared.fields {
            let Type::Pointer(pointer) = &field.ty else { continue };
            let Extent::Count(count) = &pointer.extent else { continue };
            let integer = |number: usize| match &declared.fields[number].ty {
                Type::Integer(integer) => {
                    Some(IntegerSlot::new(&form.abi, *integer, at + offsets[number]).get(memory, 0))
                }
                _ => None,
            };
            let needed = count
                .evaluate_extent(&params(&declared.fields), &integer)
                .map_err(|error| Fault::whole(Problem::Count(error.to_string())).field(&field.name))?;
            let length = match given.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value) {
                Some(Value::List(values)) => values.len(),
                Some(Value::Bytes(bytes)) => bytes.len(),
                _ => continue,
            };
            if length as u64 != needed {
                let count = count.display(&params(&declared.fields)).to_string();
                let expected = format!("{needed} elements, as {count} says");
                return Err(mismatch(expected, format!("{length}")).field(&field.name));
            }
        }
        Ok(())
    }

    fn finish(self, root: u64) -> Result<Vec<u8>, Box<Fault>> {
        let form = self.form;
        let mut blocks: Vec<Block> = self
            .blocks
            .iter()
            .map(|out| Block { target: out.target as u32, count: out.content.count(), start: 0 })
            .collect();
        let length = place_blocks(&mut blocks, form).map_err(Fault::whole)?;
        let header = MessageParts {
            abi: form.abi,
            name: form.schema.name(),
            hash: form.schema.hash(),
            root,
            blocks: blocks.clone(),
            description: None,
            memory: &[],
        };
        let mut out = Vec::with_capacity(64 + length as usize + 12 * blocks.len());
        header.write(&mut out);
        let start = out.len();
        for (block, made) in blocks.iter().zip(&self.blocks) {
            out.resize(start + block.start as usize, 0);
            out.extend_from_slice(&made.memory);
        }
        for (block, at, to, index) in &self.links {
            let size = form.targets[blocks[*to].target as usize].size;
            let position = index.checked_mul(size).and_then(|offset| offset.checked_add(ORIGIN + blocks[*to].start));
            let Some(position) = position.filter(|_| *index < blocks[*to].count) else {
                let expected = format!("an element of {} shared ones", blocks[*to].count);
                return Err(mismatch(expected, format!("number {index}")));
            };
            let (bytes, order) = (form.abi.pointer_bytes() as u8, form.abi.byte_order());
            write_unsigned(&mut out[start..], blocks[*block].start + at, bytes, order, position);
        }
        Ok(out)
    }
}

fn mismatch(expected: String, got: String) -> Box<Fault> {
    Fault::whole(Problem::Value { expected, got })
}

fn number(value: &Value, expected: &str) -> Result<f64, Box<Fault>> {
    match value {
        Value::Float(number) => Ok(*number),
        Value::Integer(number) => Ok(*number as f64),
        value => Err(mismatch(expected.to_string(), value.kind())),
    }
}

fn union_of<'a>(field: &Field, all: &'a [Declaration]) -> &'a Union {
    match &field.ty {
        Type::Named(index) => match &all[*index] {
            Declaration::Union(union) => union,
            Declaration::Struct(_) | Declaration::Enum(_) => unreachable!("only unions have tags"),
        },
        _ => unreachable!("only unions have tags"),
    }
}

fn tag_value(value: &Value, ty: &Type, all: &[Declaration]) -> Option<i128> {
    match (value, ty) {
        (Value::Integer(number), _) => Some(*number),
        (Value::Constant(name), Type::Named(index)) => match &all[*index] {
            Declaration::Enum(declared) => {
                declared.constants.iter().find(|(own, _)| own == name).map(|(_, number)| i128::from(*number))
            }
            Declaration::Struct(_) | Declaration::Union(_) => None,
        },
        _ => None,
    }
}

/// Returns the value of a field that was left out, if it follows from another one.
fn implied(number: usize, declared: &Struct, given: &[(String, Value)], all: &[Declaration]) -> Option<i128> {
    for field in &declared.fields {
        let value = given.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value);
        match (&field.ty, value) {
            (Type::Pointer(pointer), Some(value)) if pointer.extent == Extent::Count(Expr::Param(number)) => {
                match value {
                    Value::List(values) => return Some(values.len() as i128),
                    Value::Bytes(bytes) => return Some(bytes.len() as i128),
                    _ => {}
                }
            }
            (_, Some(Value::Case(name, _))) if field.tag == Some(number) => {
                let case = union_of(field, all).cases.iter().find(|case| case.name == *name)?;
                return Some(i128::from(case.tag));
            }
            _ => {}
        }
    }
    None
}
