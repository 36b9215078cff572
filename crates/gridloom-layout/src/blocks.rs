//! The table of blocks of a message whose memory a language binding lays out itself. It corresponds to
//! [`gather`](super::gather) for C's memory and [`rust`](super::rust) for Rust's values.
//!
//! The binding adds each block before it knows its contents, and receives its position in the memory. It writes that
//! position's address into every pointer to the block. The message is the header, then the memory.
//!
//! **Invariant:** blocks are added in the order of the memory, each at a multiple of 8; the first is the message's struct.

use super::error::{Fault, LayoutError, Problem};
use super::header::{BLOCK_ALIGN, Block, MessageParts, ORIGIN};
use super::memory_layout::MemoryLayout;
use super::types::Type;
use gridloom_base::limits::{LAYOUT_BLOCKS_MAX, LAYOUT_BYTES_MAX};

/// The value of a pointer to that position of a message's memory.
pub const fn address_of(position: u64) -> u64 {
    ORIGIN + position
}

/// The position that a message's pointer refers to; `None` for null.
pub const fn position_of(address: u64) -> Option<u64> {
    address.checked_sub(ORIGIN)
}

/// The blocks of a message under construction.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    form: &'a MemoryLayout,
    blocks: Vec<Block>,
    end: u64,
}

impl<'a> Blocks<'a> {
    /// Starts without blocks. The memory must be in the form's representation.
    pub fn new(form: &'a MemoryLayout) -> Blocks<'a> {
        Blocks { form, blocks: Vec::new(), end: 0 }
    }

    /// Adds a block of `count` elements, at least one; returns its start in the memory.
    ///
    /// # Errors
    /// If there are more blocks or bytes than a message may have.
    ///
    /// # Panics
    /// If there is no element, or no pointer of the schema has that target type.
    pub fn add(&mut self, ty: &Type, count: u64) -> Result<u64, LayoutError> {
        assert!(count > 0, "a pointer to nothing is null");
        let target = self.form.schema.target_number(ty);
        assert!(target == 0 || !self.blocks.is_empty(), "the first block is the message's struct");
        let start = self.end.next_multiple_of(BLOCK_ALIGN);
        let end = count.saturating_mul(self.form.targets[target].size).saturating_add(start);
        let over = |what: &'static str, count: u64, limit: u64| {
            Err(self.form.fail(Fault::whole(Problem::Limit { what, count, limit })))
        };
        if end > LAYOUT_BYTES_MAX {
            return over(super::error::BYTES_OF_MEMORY, end, LAYOUT_BYTES_MAX);
        }
        if self.blocks.len() == LAYOUT_BLOCKS_MAX {
            return over("blocks", LAYOUT_BLOCKS_MAX as u64 + 1, LAYOUT_BLOCKS_MAX as u64);
        }
        self.blocks.push(Block { target: target as u32, count, start });
        self.end = end;
        Ok(start)
    }

    pub fn size_bytes(&self) -> u64 {
        self.end
    }

    /// Returns the bytes before the memory. If `described`, they include the text of the declaration.
    pub fn header(&self, described: bool) -> Vec<u8> {
        let schema = &self.form.schema;
        let description = if described { schema.description() } else { None };
        let mut out = Vec::new();
        MessageParts {
            abi: self.form.abi,
            name: schema.name(),
            hash: schema.hash(),
            root: 0,
            blocks: self.blocks.clone(),
            description: description.as_deref(),
            memory: &[],
        }
        .write(&mut out);
        out
    }
}
