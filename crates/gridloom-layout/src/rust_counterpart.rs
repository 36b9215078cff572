//! Rust types with a counterpart in C, and the code that declares, writes and reads the counterpart.

use std::any::TypeId;

use super::abi::Abi;
use super::error::{Fault, Problem};
use super::header::{BLOCK_ALIGN, Block, MessageParts, ORIGIN};
use super::memory_layout::MemoryLayout;
use super::types::{Declaration, Type};
use gridloom_base::limits::{LAYOUT_BLOCKS_MAX, LAYOUT_BYTES_MAX, LAYOUT_TREE_COPIES_MAX, LAYOUT_TREE_DEPTH_MAX};
use gridloom_idl::{Expr, parse_expression};

/// A Rust type that corresponds to a C type. Derived with `#[derive(Message)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no corresponding C type in messages",
    note = "derive `Message` for it; a `Vec` must be a field of a struct of its own"
)]
pub trait Data: Sized + 'static {
    /// Size of the C type on this machine, bytes.
    const SIZE: usize;
    /// Its alignment.
    const ALIGN: usize;

    /// The C type.
    fn ty(declare: &mut Declare) -> Type;

    /// Writes the value as the C type.
    ///
    /// # Errors
    /// If C cannot hold it.
    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>>;

    /// Reads the value from the C type.
    ///
    /// # Errors
    /// If Rust cannot hold it: a null pointer in a `Box`, a string that is not UTF-8, a cycle.
    fn read(reader: &mut Reader<'_>, at: usize) -> Result<Self, Box<Fault>>;

    /// Writes an array.
    ///
    /// # Errors
    /// Those of [`Data::write`].
    fn write_all(values: &[Self], writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        for (index, value) in values.iter().enumerate() {
            value.write(writer, at + index * Self::SIZE).map_err(|fault| fault.element(index as u64))?;
        }
        Ok(())
    }

    /// Reads an array.
    ///
    /// # Errors
    /// Those of [`Data::read`].
    fn read_all(reader: &mut Reader<'_>, at: usize, count: usize) -> Result<Vec<Self>, Box<Fault>> {
        (0..count)
            .map(|index| Self::read(reader, at + index * Self::SIZE).map_err(|fault| fault.element(index as u64)))
            .collect()
    }
}

/// A [`Data`] type that corresponds to a C struct, so that it can be a message by itself.
pub trait Message: Data {
    /// The name of an enum's variant, or of a struct, in Rust.
    fn variant(&self) -> &'static str;
}

/// Collects declarations.
#[derive(Debug, Default)]
pub struct Declare {
    pub(super) declarations: Vec<Option<Declaration>>,
    known: Vec<(TypeId, usize)>,
    /// Requested types of pointers' targets.
    pub(super) types: Vec<(TypeId, Type)>,
}

impl Declare {
    /// Returns the type of `T`. On first use `make` declares it; `make` may refer to `T` again.
    pub fn named<T: 'static>(&mut self, make: impl FnOnce(&mut Declare) -> Declaration) -> Type {
        let id = TypeId::of::<T>();
        if let Some((_, index)) = self.known.iter().find(|(known, _)| *known == id) {
            return Type::Named(*index);
        }
        let index = self.declarations.len();
        self.declarations.push(None);
        self.known.push((id, index));
        let made = make(self);
        self.declarations[index] = Some(made);
        Type::Named(index)
    }

    /// Adds a declaration that is used by only one other.
    pub fn inner(&mut self, declaration: Declaration) -> Type {
        self.declarations.push(Some(declaration));
        Type::Named(self.declarations.len() - 1)
    }

    /// Returns the type of a pointer's target.
    pub fn target<T: Data>(&mut self) -> Type {
        let ty = T::ty(self);
        self.record_type::<T>(&ty);
        ty
    }

    /// Records the type of the blocks of `T`.
    pub fn record_type<T: 'static>(&mut self, ty: &Type) {
        let id = TypeId::of::<T>();
        if !self.types.iter().any(|(known, _)| *known == id) {
            self.types.push((id, ty.clone()));
        }
    }

    /// Parses a length over those fields.
    ///
    /// # Panics
    /// If it is invalid, which the derive macro has checked.
    pub fn length(text: &str, fields: &[&str]) -> Expr {
        parse_expression(text, fields).unwrap_or_else(|error| panic!("length '{text}' of a derived message: {error}"))
    }
}

/// Represents the characters of strings among the types of blocks.
pub(super) struct Characters;

/// The output for writing a value.
#[derive(Debug)]
pub struct Writer<'a> {
    memory: Vec<u8>,
    blocks: Vec<Block>,
    targets: &'a [(TypeId, u32)],
    depth: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(targets: &'a [(TypeId, u32)], size: usize) -> Writer<'a> {
        let blocks = vec![Block { target: 0, count: 1, start: 0 }];
        Writer { memory: vec![0; size], blocks, targets, depth: 0 }
    }

    /// The bytes at that position.
    pub fn bytes(&mut self, at: usize, length: usize) -> &mut [u8] {
        &mut self.memory[at..at + length]
    }

    /// Writes the target of a pointer at `at`.
    ///
    /// # Errors
    /// If a value cannot be written, or a limit is exceeded.
    pub fn pointer<T: Data>(&mut self, at: usize, values: &[T]) -> Result<(), Box<Fault>> {
        if values.is_empty() {
            return Ok(());
        }
        let start = self.block(TypeId::of::<T>(), at, values.len(), T::SIZE)?;
        self.depth += 1;
        if self.depth > LAYOUT_TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        T::write_all(values, self, start)?;
        self.depth -= 1;
        Ok(())
    }

    /// Writes a string with its NUL.
    ///
    /// # Errors
    /// If the string contains a NUL, or a limit is exceeded.
    pub fn text(&mut self, at: usize, text: &str) -> Result<(), Box<Fault>> {
        if text.as_bytes().contains(&0) {
            let why = "a string with a NUL inside, where C would see its end";
            return Err(Fault::new(at as u64, Problem::Text(why)));
        }
        let start = self.block(TypeId::of::<Characters>(), at, text.len() + 1, 1)?;
        self.bytes(start, text.len()).copy_from_slice(text.as_bytes());
        Ok(())
    }

    /// Checks that a list has the length given by the other fields.
    ///
    /// # Errors
    /// If not.
    pub fn counted<T: Data>(&mut self, at: usize, values: &[T], needed: Option<i128>) -> Result<(), Box<Fault>> {
        if needed != Some(values.len() as i128) {
            let expected = needed.map_or_else(|| "a length with a value".into(), |needed| format!("{needed} elements"));
            return Err(Fault::new(at as u64, Problem::Value { expected, got: values.len().to_string() }));
        }
        self.pointer(at, values)
    }

    fn block(&mut self, id: TypeId, at: usize, count: usize, size: usize) -> Result<usize, Box<Fault>> {
        let start = self.memory.len().next_multiple_of(BLOCK_ALIGN as usize);
        let end = count.checked_mul(size).and_then(|length| length.checked_add(start)).unwrap_or(usize::MAX);
        if end as u64 > LAYOUT_BYTES_MAX {
            let problem =
                Problem::Limit { what: super::error::BYTES_OF_MEMORY, count: end as u64, limit: LAYOUT_BYTES_MAX };
            return Err(Fault::new(at as u64, problem));
        }
        if self.blocks.len() == LAYOUT_BLOCKS_MAX {
            let (count, limit) = (LAYOUT_BLOCKS_MAX as u64 + 1, LAYOUT_BLOCKS_MAX as u64);
            return Err(Fault::new(at as u64, Problem::Limit { what: "blocks", count, limit }));
        }
        let target = self.targets.iter().find(|(known, _)| *known == id).expect("each pointer declared its target").1;
        self.blocks.push(Block { target, count: count as u64, start: start as u64 });
        self.memory.resize(end, 0);
        self.bytes(at, size_of::<usize>()).copy_from_slice(&(start + ORIGIN as usize).to_ne_bytes());
        Ok(start)
    }

    pub(super) fn finish(self, form: &MemoryLayout, description: Option<&str>) -> Vec<u8> {
        let Writer { memory, blocks, .. } = self;
        let schema = form.schema();
        let mut out = Vec::with_capacity(64 + schema.name().len() + 12 * blocks.len() + memory.len());
        let (name, hash) = (schema.name(), schema.hash());
        MessageParts { abi: Abi::NATIVE, name, hash, root: 0, blocks, description, memory: &[] }.write(&mut out);
        out.extend_from_slice(&memory);
        out
    }
}

/// The input for reading a value: the memory of a checked message in this machine's representation.
#[derive(Debug)]
pub struct Reader<'a> {
    memory: &'a [u8],
    depth: usize,
    /// Remaining number of bytes that may be reached through pointers.
    left: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(memory: &'a [u8]) -> Reader<'a> {
        Reader { memory, depth: 0, left: LAYOUT_TREE_COPIES_MAX * memory.len() as u64 }
    }

    /// The bytes at that position.
    pub fn bytes(&self, at: usize, length: usize) -> &'a [u8] {
        &self.memory[at..at + length]
    }

    fn follow(&mut self, at: usize, length: Option<usize>) -> Result<Option<usize>, Box<Fault>> {
        let mut word = [0; size_of::<usize>()];
        word.copy_from_slice(self.bytes(at, size_of::<usize>()));
        let Some(start) = usize::from_ne_bytes(word).checked_sub(ORIGIN as usize) else { return Ok(None) };
        let text = || self.memory[start..].iter().position(|byte| *byte == 0).expect("checked with the message");
        let length = length.unwrap_or_else(text);
        match self.left.checked_sub(length as u64) {
            Some(left) => self.left = left,
            None => {
                let limit = LAYOUT_TREE_COPIES_MAX * self.memory.len() as u64;
                let problem = Problem::Limit { what: "bytes when shared parts are copied", count: limit + 1, limit };
                return Err(Fault::new(at as u64, problem));
            }
        }
        Ok(Some(start))
    }

    /// Reads the target of a pointer to one value.
    ///
    /// # Errors
    /// If it cannot be read, or is nested too deep, as a cycle is.
    pub fn one<T: Data>(&mut self, at: usize) -> Result<Option<T>, Box<Fault>> {
        let Some(start) = self.follow(at, Some(T::SIZE))? else { return Ok(None) };
        self.depth += 1;
        if self.depth > LAYOUT_TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        let value = T::read(self, start)?;
        self.depth -= 1;
        Ok(Some(value))
    }

    /// Reads the target of a counted pointer.
    ///
    /// # Errors
    /// Those of [`Reader::one`].
    pub fn counted<T: Data>(&mut self, at: usize, needed: Option<i128>) -> Result<Vec<T>, Box<Fault>> {
        let count = needed.and_then(|needed| usize::try_from(needed).ok()).expect("checked with the message");
        let Some(start) = self.follow(at, Some(count * T::SIZE))? else { return Ok(Vec::new()) };
        self.depth += 1;
        if self.depth > LAYOUT_TREE_DEPTH_MAX {
            return Err(too_deep());
        }
        let values = T::read_all(self, start, count)?;
        self.depth -= 1;
        Ok(values)
    }

    /// Reads the target of a string pointer.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&mut self, at: usize) -> Result<Option<String>, Box<Fault>> {
        let Some(start) = self.follow(at, None)? else { return Ok(None) };
        let rest = &self.memory[start..];
        let length = rest.iter().position(|byte| *byte == 0).expect("checked with the message");
        match std::str::from_utf8(&rest[..length]) {
            Ok(text) => Ok(Some(text.to_string())),
            Err(_) => Err(Fault::new(at as u64, Problem::Text("a string that is not UTF-8"))),
        }
    }
}

fn too_deep() -> Box<Fault> {
    let (count, limit) = (LAYOUT_TREE_DEPTH_MAX as u64 + 1, LAYOUT_TREE_DEPTH_MAX as u64);
    Fault::whole(Problem::Limit { what: "pointers inside one another (or a cycle)", count, limit })
}
