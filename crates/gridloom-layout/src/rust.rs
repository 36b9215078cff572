//! Rust values as messages that C programs can declare too.
//!
//! Rust guarantees no layout. So a value is written and read field by field, as the corresponding C struct of
//! this machine would be laid out in memory. The correspondence:
//!
//! | Rust | C |
//! |---|---|
//! | `i8` … `u64`, `f32`, `f64`, `bool` | `int8_t` … `uint64_t`, `float`, `double`, `bool` |
//! | `usize` | `size_t` |
//! | another integer type, by `#[message(c = "unsigned long")]` | that type; it must have the field's size on this machine |
//! | `[T; N]` | `T name[N]` |
//! | `String`, `Option<String>` | `char *name`; null is `None` |
//! | `Vec<T>` | `size_t name_length; T *name GRIDLOOM_LENGTH(name_length)` |
//! | `Vec<T>` with `#[message(length = "m * n")]` | `T *name GRIDLOOM_LENGTH(m * n)`, over integer fields of the struct |
//! | `Box<T>`, `Option<Box<T>>` | `T *name`; null is `None` |
//! | a struct, by `#[derive(Message)]` | a struct of the same name; without fields it has one, `uint8_t unused` |
//! | an enum without data | an enum, its constants named `Enum_Variant` |
//! | an enum with data | `struct Enum { enum Enum_tag tag; union Enum_body body GRIDLOOM_TAG(tag); }` |
//!
//! In an enum with data, a variant's case has the name of the variant. It holds a struct `Enum_Variant` of the variant's
//! fields (`value0`, `value1`, … if they have no names). A variant without fields has no case. `#[message(name = "…")]`
//! gives a type, field or variant another name in C.
//!
//! A Rust value is a tree. A shared part of a message is copied for each pointer to it, up to a limit, and a cycle is an
//! error.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use super::abi::Abi;
use super::error::LayoutError;
use super::header::ORIGIN;
use super::memory_layout::MemoryLayout;
use super::receiver::Receiver;
use super::schema::{Schema, SchemaError, renumber};
use super::types::{Declaration, Integer, Type};

pub use super::rust_counterpart::{Data, Declare, Message, Reader, Writer};

/// Messages of the Rust type `T`: writes them, and reads them from any machine.
#[derive(Clone, Debug)]
pub struct MessageCodec<T> {
    receiver: Receiver,
    /// Numbers of block types.
    targets: Vec<(TypeId, u32)>,
    of: PhantomData<fn() -> T>,
}

impl<T: Message> MessageCodec<T> {
    /// Declares `T` and all types that it consists of.
    ///
    /// # Errors
    /// If two of its parts have the same name in C, or a limit is exceeded.
    pub fn new() -> Result<MessageCodec<T>, SchemaError> {
        let mut declare = Declare::default();
        let Type::Named(root) = T::ty(&mut declare) else { unreachable!("a message is a struct") };
        let declarations: Vec<Declaration> =
            declare.declarations.into_iter().map(|made| made.expect("each declaration was completed")).collect();
        let (schema, numbers) = Schema::numbered(&declarations, root)?;
        let mut targets = Vec::new();
        for (id, mut ty) in declare.types {
            let known = renumber(&mut ty, 0, &mut |old| Ok(*numbers.get(&old).unwrap_or(&usize::MAX)));
            if let (Ok(()), Some(number)) = (known, schema.targets().iter().position(|target| *target == ty)) {
                targets.push((id, number as u32));
            }
        }
        let name = schema.name().to_string();
        let receiver = Receiver::new(Arc::new(schema), Abi::NATIVE)
            .map_err(|error| SchemaError { name, why: error.to_string() })?;
        assert_eq!(receiver.form().shape(0).size, T::SIZE as u64, "the derived size is that of the declaration");
        Ok(MessageCodec { receiver, targets, of: PhantomData })
    }

    /// The message type; its text is its C declaration.
    pub fn schema(&self) -> &Arc<Schema> {
        self.receiver.form().schema()
    }

    /// The message type on this machine.
    pub fn form(&self) -> &MemoryLayout {
        self.receiver.form()
    }

    /// Encodes a value as a message.
    ///
    /// # Errors
    /// If C cannot hold the value (a NUL in a string, a list whose length differs from its fields), or a limit is
    /// exceeded.
    pub fn encode(&self, value: &T) -> Result<Vec<u8>, LayoutError> {
        self.write(value, None)
    }

    /// Same as [`MessageCodec::encode`], with the declaration's text, so that a receiver that declares the type differently
    /// can report the differences, for this message and for later ones with the same declaration.
    ///
    /// # Errors
    /// Those of [`MessageCodec::encode`].
    pub fn encode_described(&self, value: &T) -> Result<Vec<u8>, LayoutError> {
        self.write(value, self.schema().description().as_deref())
    }

    fn write(&self, value: &T, description: Option<&str>) -> Result<Vec<u8>, LayoutError> {
        let form = self.receiver.form();
        let mut writer = Writer::new(&self.targets, T::SIZE);
        value.write(&mut writer, 0).map_err(|fault| form.fail(fault))?;
        Ok(writer.finish(form, description))
    }

    /// Decodes a message from any machine.
    ///
    /// # Errors
    /// If the message is invalid, or Rust cannot hold its value.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<T, LayoutError> {
        let name = self.schema().clone();
        let incoming = self.receiver.open(bytes)?;
        let mut own = Vec::new();
        let memory = match incoming.native_memory() {
            Some(memory) => memory,
            None => {
                own.resize(incoming.size_bytes(), 0);
                incoming.place(&mut own, ORIGIN)?;
                &own
            }
        };
        let root = incoming.root_offset() as usize;
        T::read(&mut Reader::new(memory), root).map_err(|fault| fault.of(name.name()))
    }
}

/// Returns a type with its integers replaced by one of C's integer types. Only the derive macro uses this function.
///
/// # Panics
/// If there is no such integer type, which [`check_integer`] has rejected at compile time.
pub fn as_integer(ty: Type, name: &str) -> Type {
    match ty {
        Type::Integer(_) => Type::Integer(Integer::from_name(name).expect("checked by the compiler")),
        Type::Array(element, count) => Type::array(as_integer(*element, name), count),
        other => other,
    }
}

/// Checks that a C integer type exists and has the size of the Rust type. Only the derive macro uses this function.
///
/// # Panics
/// If not; at compile time.
pub const fn check_integer<T: Data>(name: &str) {
    let mut at = 0;
    while at < Integer::ALL.len() {
        let integer = Integer::ALL[at];
        if same(integer.name(), name) {
            let size = Abi::NATIVE.size_of(integer) as usize;
            assert!(T::ALIGN == Abi::NATIVE.align_of(integer) as usize, "the C type is laid out differently");
            assert!(T::SIZE.is_multiple_of(size), "the C type has another size on this machine");
            return;
        }
        at += 1;
    }
    panic!("no integer type of C has this name; write it as 'unsigned long', 'size_t', 'int', …");
}

const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}
