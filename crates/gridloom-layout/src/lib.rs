//! Native data representation of typed messages. Data are sent as they are in the sender's memory, with a description of
//! the sender's machine. Only a receiver that represents data differently converts them ("receiver makes right").
//!
//! ```text
//!  C text ──parse──▶ Declarations ──schema(name)──▶ Schema ──Form::new(abi)──▶ Form ──encode──▶ message bytes
//!  #[derive(Message)] ────────────────────────────────┘                                          │
//!                     Graph of Values ◀──to_graph── Incoming ◀──open── Receiver ◀────────────────┘
//!                     memory of the receiver ◀─place─┘
//! ```
//!
//! | file | content |
//! |---|---|
//! | [`types`] | abstract types: the content of a declaration |
//! | [`schema`] | a checked message type, its hash; [`text`](mod@text) prints it, [`differences()`] compares two |
//! | [`c_parse`] | C declarations with annotations; `c_types` their types |
//! | [`abi`] | machines: byte order, sizes, alignments |
//! | `sizes`, `words` | sizes and offsets on a machine; integers in its memory |
//! | [`memory_layout`] | a message type on a machine: its sizes, and the slots of each type that a pointer leads to |
//! | `slots` | the parts of its memory that must be checked: pointers, unions, … |
//! | [`header`] | the bytes before the memory |
//! | `message` | a received message, checked |
//! | `plan` | conversion between two machines |
//! | [`receiver`] | opening messages, placing them in memory |
//! | [`gather`] | a message from the sender's memory |
//! | `blocks` | a message that a language's binding lays out by itself |
//! | [`value`] | a message as abstract values; `value_read`, `value_write` |
//! | [`rust`] | Rust values as messages; `rust_counterpart` declares, writes and reads them, `rust_data` has numbers, strings and the like |
//! | [`error`] | errors in messages, with their location |
//!
//! After GRAS: M. Quinson, *GRAS: a research and development framework for grid and P2P infrastructures*, INRIA research
//! report 5789, 2006. Different from it: messages are untrusted, so blocks are typed and checked before anything is
//! converted. A message is one piece of memory at the receiver, freed at once.
//!
//! **Invariant:** nothing in a message is trusted before `Message::check`; after it, nothing is checked again.
//!
//! Not done: padding bytes of the sender's structs are sent as they are, so they must not hold secrets; `long double`,
//! bit-fields, pointers into the middle of a struct of another type (their target is sent as a copy).

#![forbid(unsafe_code)]

pub mod abi;
mod blocks;
pub mod c_parse;
mod c_types;
mod differences;
pub mod error;
pub mod gather;
pub mod header;
mod integer_slot;
pub mod memory_layout;
mod message;
mod plan;
#[cfg(test)]
mod property_tests;
pub mod receiver;
pub mod rust;
mod rust_counterpart;
mod rust_data;
pub mod rust_layout;
pub mod schema;
mod sizes;
mod slots;
#[cfg(test)]
mod tests;
pub mod text;
pub mod types;
pub mod value;
mod value_read;
mod value_write;

pub use abi::Abi;
pub use blocks::{Blocks, address_of, position_of};
pub use c_parse::{Declarations, UnannotatedPointer, parse};
pub use differences::differences;
pub use error::{LayoutError, Problem};
pub use gather::{MemoryAt, ProcessMemory};
pub use header::MessageParts;
pub use memory_layout::MemoryLayout;
pub use receiver::{CheckedMessage, Receiver};
pub use rust::{Data, Message, MessageCodec};
pub use schema::{Schema, SchemaError};
pub use value::{Graph, Value};
