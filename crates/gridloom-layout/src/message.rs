//! A received message, in its sender's representation, checked as a whole.
//!
//! **Invariants** of a [`Message`]:
//! - every block is inside the memory;
//! - every pointer in a checked block is null or points to a block of its target's type, at the start of an
//!   element, and as many elements as it needs follow (a string: its block ends with a NUL);
//! - every bool is 0 or 1, every enum a constant.
//!
//! So code that converts or reads it cannot leave its memory.
//!
//! The check is one pass over the blocks that have anything to check. It follows no pointer and does not recurse, so
//! cycles and long chains cost nothing.

use super::error::{Fault, LayoutError, Problem};
use super::header::{BLOCK_ALIGN, Block, MessageParts, ORIGIN};
use super::integer_slot::read_unsigned;
use super::memory_layout::MemoryLayout;
use super::slots::{Origin, PointerSlot, Rule, visit};
use super::{differences, parse};
use gridloom_base::limits::LAYOUT_BYTES_MAX;

/// A checked message.
#[derive(Clone, Debug)]
pub(super) struct Message<'a> {
    /// The message type on the sender's machine.
    pub(super) form: &'a MemoryLayout,
    pub(super) blocks: Vec<Block>,
    /// Index of the message in block 0.
    pub(super) root: u64,
    pub(super) memory: &'a [u8],
}

/// The target of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) block: usize,
    /// Index of the element in the block.
    pub(super) index: u64,
}

impl<'a> Message<'a> {
    /// Checks a message against the declaration that `form` lays out for the sender's machine.
    pub(super) fn check(header: MessageParts<'a>, form: &'a MemoryLayout) -> Result<Message<'a>, LayoutError> {
        assert_eq!(header.abi, form.abi, "the form is for the sender's machine");
        same_type(&header, form).map_err(|problem| form.fail(Fault::whole(problem)))?;
        let MessageParts { mut blocks, root, memory, .. } = header;
        let length = place_blocks(&mut blocks, form).map_err(|problem| form.fail(Fault::whole(problem)))?;
        if length != memory.len() as u64 {
            let problem = Problem::Length { expected: length, got: memory.len() as u64 };
            return Err(form.fail(Fault::whole(problem)));
        }
        match blocks.first() {
            Some(Block { target: 0, count, .. }) if root < *count => {}
            _ => return Err(form.fail(Fault::whole(Problem::Header("it has no root".into())))),
        }
        let message = Message { form, blocks, root, memory };
        message.each_pointer(&mut |_, _, _| Ok(())).map_err(|fault| form.fail(fault))?;
        Ok(message)
    }

    /// Checks all slots, and calls `on_place` for each pointer that is not null with its block, its requirements, and its target.
    pub(super) fn each_pointer(
        &self,
        on_place: &mut dyn FnMut(usize, PointerSlot, Target) -> Result<(), Problem>,
    ) -> Result<(), Box<Fault>> {
        let mut hint = 0;
        for (number, block) in self.blocks.iter().enumerate() {
            let target = &self.form.targets[block.target as usize];
            if target.slots.is_empty() {
                continue;
            }
            for index in 0..block.count {
                let base = block.start + index * target.size;
                let mut on_pointer = |met: PointerSlot, address: u64| match self.follow(&met, address, &mut hint)? {
                    Some(place) => on_place(number, met, place),
                    None => Ok(()),
                };
                visit(self.form.sizes(), &target.slots, self.memory, base, Origin::Message, &mut on_pointer).map_err(
                    |fault| {
                        let fault = if block.count > 1 { fault.element(index) } else { fault };
                        if number == 0 { fault } else { fault.field(&format!("({} in block {number})", target.name)) }
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Validates a pointer and returns its target. `hint` is a block near the target of the last pointer.
    pub(super) fn follow(&self, met: &PointerSlot, address: u64, hint: &mut usize) -> Result<Option<Target>, Problem> {
        let target = &self.form.targets[met.target];
        let absent = || Problem::Pointer { address, target: target.name.clone() };
        if address == 0 {
            return match (met.rule, met.needed) {
                (Rule::One | Rule::Text, _) | (Rule::Count, 0) => Ok(None),
                (Rule::Count, needed) => Err(Problem::Null { needed, target: target.name.clone() }),
            };
        }
        let block = self.locate(address, hint).ok_or_else(absent)?;
        let found = &self.blocks[block];
        let offset = address - ORIGIN - found.start;
        if found.target as usize != met.target || !offset.is_multiple_of(target.size) {
            return Err(absent());
        }
        let index = offset / target.size;
        let available = found.count.checked_sub(index).filter(|available| *available > 0).ok_or_else(absent)?;
        match met.rule {
            Rule::Text => {
                let end = found.start + found.count;
                if self.memory[end as usize - 1] != 0 {
                    return Err(Problem::NoNul);
                }
            }
            Rule::Count if met.needed == 0 => return Err(absent()),
            Rule::One | Rule::Count => {
                if met.needed > available {
                    return Err(Problem::Short { available, needed: met.needed, target: target.name.clone() });
                }
            }
        }
        Ok(Some(Target { block, index }))
    }

    /// Returns the last block that starts at or before an address; the caller checks its length.
    fn locate(&self, address: u64, hint: &mut usize) -> Option<usize> {
        let position = address.checked_sub(ORIGIN)?;
        let inside = |block: usize| {
            let next = self.blocks.get(block + 1).map_or(u64::MAX, |next| next.start);
            self.blocks.get(block).is_some_and(|found| found.start <= position && position < next)
        };
        for near in [*hint, *hint + 1] {
            if inside(near) {
                *hint = near;
                return Some(near);
            }
        }
        let behind = self.blocks.partition_point(|block| block.start <= position);
        // Blocks without elements begin where the next one does, and contain nothing.
        *hint = behind.checked_sub(1)?;
        Some(*hint)
    }

    /// Reads the pointer at that position of the memory.
    pub(super) fn address_at(&self, at: u64) -> u64 {
        read_unsigned(self.memory, at, self.form.abi.pointer_bytes() as u8, self.form.abi.byte_order())
    }

    /// The bytes of a string from that position on, without its NUL.
    pub(super) fn text(&self, place: Target) -> &'a [u8] {
        let block = &self.blocks[place.block];
        let bytes = &self.memory[(block.start + place.index) as usize..(block.start + block.count) as usize];
        let end = bytes.iter().position(|byte| *byte == 0).expect("its block ends with a NUL");
        &bytes[..end]
    }
}

/// Sets the start of each block; returns their total length.
pub(super) fn place_blocks(blocks: &mut [Block], form: &MemoryLayout) -> Result<u64, Problem> {
    let mut end = 0u64;
    for block in blocks {
        let Some(target) = form.targets.get(block.target as usize) else {
            return Err(Problem::Header(format!("a block of type {}, of {}", block.target, form.targets.len())));
        };
        if block.count == 0 {
            return Err(Problem::Header("a block without elements".into()));
        }
        block.start = end.next_multiple_of(BLOCK_ALIGN);
        end = block.count.checked_mul(target.size).map_or(u64::MAX, |length| block.start.saturating_add(length));
        if end > LAYOUT_BYTES_MAX {
            return Err(Problem::Limit { what: super::error::BYTES_OF_MEMORY, count: end, limit: LAYOUT_BYTES_MAX });
        }
    }
    Ok(end)
}

/// Checks that the message is of the expected type, as declared here.
pub(super) fn same_type(header: &MessageParts<'_>, form: &MemoryLayout) -> Result<(), Problem> {
    let schema = &form.schema;
    if header.name != schema.name() {
        return Err(Problem::OtherType { got: header.name.to_string(), expected: schema.name().to_string() });
    }
    if header.hash == schema.hash() {
        return Ok(());
    }
    let theirs = header.description.and_then(|text| parse(text, "sender").ok()?.schema(header.name).ok());
    Err(Problem::OtherDeclaration(theirs.map_or_else(Vec::new, |theirs| differences(&theirs, schema))))
}
