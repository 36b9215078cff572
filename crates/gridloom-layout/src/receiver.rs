//! "Receiver makes right": receives messages of one type from any machine, and converts them to its own representation.
//!
//! From a machine of equal representation that is a copy with adjusted pointers. For any other, a plan is
//! compiled at its first message and kept.

use std::sync::Arc;

use super::abi::Abi;
use super::error::{Fault, LayoutError, Problem};
use super::header::{Block, MessageParts, ORIGIN};
use super::memory_layout::MemoryLayout;
use super::message::{Message, place_blocks, same_type};
use super::plan::{Plan, relocate};
use super::schema::Schema;
use super::value::Graph;
#[cfg(doc)]
use gridloom_base::limits::LAYOUT_DISPLAY_FACTOR;

/// Maximum number of plans kept, one for each other representation. It is above the number of kinds of machines in any grid; a
/// hostile sender that invents machines only causes more compilations.
const PLANS_MAX: usize = 16;
/// Maximum number of other declarations of the type that are remembered: a sender may describe its messages only once.
const OTHER_DECLARATIONS_MAX: usize = 16;

/// A receiver of messages of one type.
#[derive(Clone, Debug)]
pub struct Receiver {
    own: MemoryLayout,
    others: Vec<(MemoryLayout, Plan)>,
    /// Hashes of other declarations of the type, and their differences.
    other_declarations: Vec<(u64, Vec<String>)>,
}

impl Receiver {
    /// Creates a receiver for a message type on this machine.
    ///
    /// # Errors
    /// If a type's size exceeds the limit.
    pub fn new(schema: Arc<Schema>, abi: Abi) -> Result<Receiver, LayoutError> {
        Ok(Receiver { own: MemoryLayout::new(schema, abi)?, others: Vec::new(), other_declarations: Vec::new() })
    }

    /// The message type on this machine.
    pub fn form(&self) -> &MemoryLayout {
        &self.own
    }

    /// Checks a message completely.
    ///
    /// # Errors
    /// If it has another type or declaration, or any part of it is invalid.
    pub fn open<'a>(&'a mut self, bytes: &'a [u8]) -> Result<CheckedMessage<'a>, LayoutError> {
        let header = MessageParts::parse(bytes).map_err(|problem| self.own.fail(Fault::whole(problem)))?;
        self.check_type(&header).map_err(|problem| self.own.fail(Fault::whole(problem)))?;
        if header.abi == self.own.abi {
            let message = Message::check(header, &self.own)?;
            let blocks = message.blocks.clone();
            let bytes = message.memory.len() as u64;
            return Ok(CheckedMessage { message, own: &self.own, plan: None, blocks, bytes });
        }
        let known = self.others.iter().position(|(form, _)| form.abi == header.abi);
        let known = match known {
            Some(known) => known,
            None => {
                let form = MemoryLayout::new(self.own.schema.clone(), header.abi)?;
                let plan = Plan::new(&form, &self.own);
                if self.others.len() == PLANS_MAX {
                    self.others.remove(0);
                }
                self.others.push((form, plan));
                self.others.len() - 1
            }
        };
        let (form, plan) = &self.others[known];
        let message = Message::check(header, form)?;
        let mut blocks = message.blocks.clone();
        let bytes = place_blocks(&mut blocks, &self.own).map_err(|problem| self.own.fail(Fault::whole(problem)))?;
        Ok(CheckedMessage { message, own: &self.own, plan: Some(plan), blocks, bytes })
    }

    /// Checks the message's type. Differences described by one message are remembered for later ones.
    fn check_type(&mut self, header: &MessageParts<'_>) -> Result<(), Problem> {
        let mut problem = match same_type(header, &self.own) {
            Ok(()) => return Ok(()),
            Err(problem) => problem,
        };
        if let Problem::OtherDeclaration(found) = &mut problem {
            match self.other_declarations.iter().find(|(hash, _)| *hash == header.hash) {
                Some((_, known)) => found.clone_from(known),
                None if found.is_empty() => {}
                None => {
                    if self.other_declarations.len() == OTHER_DECLARATIONS_MAX {
                        self.other_declarations.remove(0);
                    }
                    self.other_declarations.push((header.hash, found.clone()));
                }
            }
        }
        Err(problem)
    }
}

/// A checked message that is ready to be placed.
#[derive(Clone, Debug)]
pub struct CheckedMessage<'a> {
    message: Message<'a>,
    own: &'a MemoryLayout,
    plan: Option<&'a Plan>,
    /// The blocks in the receiver's representation.
    blocks: Vec<Block>,
    bytes: u64,
}

impl CheckedMessage<'_> {
    /// Size of the message in the receiver's memory, in one piece, aligned to 8.
    pub fn size_bytes(&self) -> usize {
        self.bytes as usize
    }

    /// True if the sender has the same data representation as the receiver.
    pub fn is_native(&self) -> bool {
        self.plan.is_none()
    }

    /// The sender's machine.
    pub fn abi(&self) -> &Abi {
        &self.message.form.abi
    }

    /// Writes the message into `memory`, with pointers for the address `base`; returns the address of the message's struct.
    ///
    /// # Errors
    /// If a number does not fit the receiver's type: the field, the number, the type.
    ///
    /// # Panics
    /// If the length of `memory` is not [`CheckedMessage::size_bytes`], or it would reach beyond the receiver's addresses.
    pub fn place(&self, memory: &mut [u8], base: u64) -> Result<u64, LayoutError> {
        assert_eq!(memory.len() as u64, self.bytes, "the memory has the size of the message");
        let last = base.checked_add(self.bytes).expect("the memory ends below 2^64");
        let pointers = self.own.abi.pointer_bytes();
        assert!(pointers == 8 || last <= 1 << (8 * pointers), "the memory can be addressed");
        match self.plan {
            None => relocate(&self.message, memory, base),
            Some(plan) => {
                memory.fill(0);
                plan.run(&self.message, self.own, &self.blocks, memory, base).map_err(|fault| self.own.fail(fault))?;
            }
        }
        Ok(base + self.root_offset())
    }

    /// Returns the message as one of the receiver's own machine, as [`MemoryLayout::encode`] would have built it here.
    ///
    /// # Errors
    /// Those of [`CheckedMessage::place`].
    pub fn to_native(&self) -> Result<Vec<u8>, LayoutError> {
        let schema = self.own.schema.clone();
        let header = MessageParts {
            abi: self.own.abi,
            name: schema.name(),
            hash: schema.hash(),
            root: self.message.root,
            blocks: self.blocks.clone(),
            description: None,
            memory: &[],
        };
        let mut out = Vec::new();
        header.write(&mut out);
        let start = out.len();
        out.resize(start + self.size_bytes(), 0);
        self.place(&mut out[start..], ORIGIN)?;
        Ok(out)
    }

    /// Returns the message's values, independent of any machine.
    ///
    /// # Errors
    /// None for an opened message; the return type allows for future errors.
    pub fn to_graph(&self) -> Result<Graph, LayoutError> {
        super::value_read::read(&self.message, u64::MAX)
    }

    /// Returns the message's values for a reader with little space: the first `elements` of each array, and
    /// [`LAYOUT_DISPLAY_FACTOR`] times as many elements in total and characters of a string.
    ///
    /// # Errors
    /// Those of [`CheckedMessage::to_graph`].
    pub fn to_graph_of_first(&self, elements: u64) -> Result<Graph, LayoutError> {
        super::value_read::read(&self.message, elements)
    }

    /// The memory as received, the last bytes of the message, if the sender has the same data representation as the receiver. Its
    /// pointers are those of [`address_of`](super::address_of).
    pub fn native_memory(&self) -> Option<&[u8]> {
        self.plan.is_none().then_some(self.message.memory)
    }

    /// Offset of the message's struct in the memory.
    pub fn root_offset(&self) -> u64 {
        self.blocks[0].start + self.message.root * self.own.targets[0].size
    }
}
