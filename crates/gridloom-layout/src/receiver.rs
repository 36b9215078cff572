//! The receiver makes right: it takes messages of one type from any machine, and gives them in its own representation.
//!
//! From a machine of equal representation that is a copy and a correction of the pointers. For any other a plan is
//! compiled at its first message and kept.

use std::sync::Arc;

use super::abi::Abi;
use super::error::{Fault, LayoutError, Problem};
use super::form::Form;
use super::header::{Block, Header, ORIGIN};
use super::message::{Message, place_blocks, same_type};
use super::plan::{Plan, relocate};
use super::schema::Schema;
use super::value::Graph;
#[cfg(doc)]
use gridloom_base::limits::LAYOUT_SHOWN_FACTOR;

/// Plans that are kept, one for each other representation. More than there are kinds of machines in any grid; a hostile
/// sender that invents machines only makes us compile again.
const PLANS_MAX: usize = 16;
/// Other declarations of the type that are remembered: a sender may describe its messages only once.
const STRANGERS_MAX: usize = 16;

/// Takes messages of one type.
#[derive(Clone, Debug)]
pub struct Receiver {
    own: Form,
    others: Vec<(Form, Plan)>,
    /// Hashes of other declarations of the type, and where they differ.
    strangers: Vec<(u64, Vec<String>)>,
}

impl Receiver {
    /// For a message type on this machine.
    ///
    /// # Errors
    /// If a type's size exceeds the limit.
    pub fn new(schema: Arc<Schema>, abi: Abi) -> Result<Receiver, LayoutError> {
        Ok(Receiver { own: Form::new(schema, abi)?, others: Vec::new(), strangers: Vec::new() })
    }

    /// The message type on this machine.
    pub fn form(&self) -> &Form {
        &self.own
    }

    /// Checks a message completely.
    ///
    /// # Errors
    /// If it is of another type or declaration, or anything in it is not as it must be.
    pub fn open<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Incoming<'a>, LayoutError> {
        let header = Header::parse(bytes).map_err(|problem| self.own.fail(Fault::whole(problem)))?;
        self.recognise(&header).map_err(|problem| self.own.fail(Fault::whole(problem)))?;
        if header.abi == self.own.abi {
            let message = Message::check(header, &self.own)?;
            let blocks = message.blocks.clone();
            let bytes = message.memory.len() as u64;
            return Ok(Incoming { message, own: &self.own, plan: None, blocks, bytes });
        }
        let known = self.others.iter().position(|(form, _)| form.abi == header.abi);
        let known = match known {
            Some(known) => known,
            None => {
                let form = Form::new(self.own.schema.clone(), header.abi)?;
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
        Ok(Incoming { message, own: &self.own, plan: Some(plan), blocks, bytes })
    }

    /// Checks the message's type; differences that one message has told are known for those after it.
    fn recognise(&mut self, header: &Header<'_>) -> Result<(), Problem> {
        let mut problem = match same_type(header, &self.own) {
            Ok(()) => return Ok(()),
            Err(problem) => problem,
        };
        if let Problem::OtherDeclaration(found) = &mut problem {
            match self.strangers.iter().find(|(hash, _)| *hash == header.hash) {
                Some((_, known)) => found.clone_from(known),
                None if found.is_empty() => {}
                None => {
                    if self.strangers.len() == STRANGERS_MAX {
                        self.strangers.remove(0);
                    }
                    self.strangers.push((header.hash, found.clone()));
                }
            }
        }
        Err(problem)
    }
}

/// A checked message that waits to be placed.
#[derive(Clone, Debug)]
pub struct Incoming<'a> {
    message: Message<'a>,
    own: &'a Form,
    plan: Option<&'a Plan>,
    /// The blocks in the receiver's representation.
    blocks: Vec<Block>,
    bytes: u64,
}

impl Incoming<'_> {
    /// Bytes that the message takes in the receiver's memory, in one piece, aligned to 8.
    pub fn size_bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Whether the sender represents data as the receiver does.
    pub fn is_native(&self) -> bool {
        self.plan.is_none()
    }

    /// The sender's machine.
    pub fn abi(&self) -> &Abi {
        &self.message.form.abi
    }

    /// Writes the message into `memory`, with pointers as they must be when it stands at the address `base`; the address
    /// of the message's struct.
    ///
    /// # Errors
    /// If a number does not fit the receiver's type: the field, the number, the type.
    ///
    /// # Panics
    /// If `memory` has not [`Incoming::size_bytes`] bytes, or would reach beyond the receiver's addresses.
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

    /// The message as one of the receiver's own machine: what [`Form::encode`] would have made of it here.
    ///
    /// # Errors
    /// As [`Incoming::place`].
    pub fn to_native(&self) -> Result<Vec<u8>, LayoutError> {
        let schema = self.own.schema.clone();
        let header = Header {
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

    /// The message's values, whatever machines they come from and go to.
    ///
    /// # Errors
    /// None for a message that was opened; the type is there for what may come.
    pub fn to_graph(&self) -> Result<Graph, LayoutError> {
        super::value_read::read(&self.message, u64::MAX)
    }

    /// The message's values for a reader that is short of room: of each array the first `elements`, of all together
    /// and in characters of a string [`LAYOUT_SHOWN_FACTOR`] times as many.
    ///
    /// # Errors
    /// As [`Incoming::to_graph`].
    pub fn to_graph_of_first(&self, elements: u64) -> Result<Graph, LayoutError> {
        super::value_read::read(&self.message, elements)
    }

    /// The memory as it came, the last bytes of the message, if the sender represents data as the receiver does. Its
    /// pointers are those of [`address_of`](super::address_of).
    pub fn native_memory(&self) -> Option<&[u8]> {
        self.plan.is_none().then_some(self.message.memory)
    }

    /// Where the message's struct stands in the memory.
    pub fn root_offset(&self) -> u64 {
        self.blocks[0].start + self.message.root * self.own.targets[0].size
    }
}
