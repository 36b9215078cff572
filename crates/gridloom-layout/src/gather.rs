//! Builds a message from the sender's memory. Everything that a struct's pointers lead to is copied as it is in memory, and the
//! pointers are replaced.
//!
//! The target of several pointers is sent once; pointers into the middle of an array that is sent point there again. Memory that
//! is the target of pointers of two different types is sent for each. Bytes between fields are sent as they are.
//!
//! Memory is read through [`ProcessMemory`], so that nothing here is unsafe: a C binding implements it over real addresses, a
//! test over an array.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::error::{Fault, LayoutError, Problem};
use super::header::{Block, MessageParts, ORIGIN};
use super::integer_slot::write_unsigned;
use super::memory_layout::MemoryLayout;
use super::message::place_blocks;
use super::slots::{Origin, PointerSlot, Rule, trim, visit};
use gridloom_base::limits::{LAYOUT_BLOCKS_MAX, LAYOUT_BYTES_MAX};

/// A process's memory.
pub trait ProcessMemory {
    /// Returns the bytes at an address, or `None` if they do not exist.
    fn bytes(&self, address: u64, length: u64) -> Option<&[u8]>;

    /// Returns the number of characters from an address to the first NUL, or `None` if there is none within `limit`.
    fn text_length(&self, address: u64, limit: u64) -> Option<u64>;
}

/// An array as the memory at an address.
#[derive(Clone, Copy, Debug)]
pub struct MemoryAt<'a> {
    /// Its first address.
    pub base: u64,
    pub bytes: &'a [u8],
}

impl ProcessMemory for MemoryAt<'_> {
    fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }

    fn text_length(&self, address: u64, limit: u64) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let found = self.bytes.get(start..)?.iter().take(limit as usize).position(|byte| *byte == 0)?;
        Some(found as u64)
    }
}

/// Contiguous elements of one type in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    target: usize,
    address: u64,
    count: u64,
}

impl MemoryLayout {
    /// Builds the message whose struct is at `address`.
    ///
    /// # Errors
    /// If a pointer leads nowhere, a length has no value, a bool or an enum is invalid, or a limit is exceeded.
    pub fn encode(&self, memory: &dyn ProcessMemory, address: u64) -> Result<Vec<u8>, LayoutError> {
        let mut out = Vec::new();
        self.encode_into(&mut out, memory, address, false)?;
        Ok(out)
    }

    /// Same as [`MemoryLayout::encode`], with the declaration's text, so that a receiver that declares the type differently can report
    /// the differences.
    ///
    /// # Errors
    /// Those of [`MemoryLayout::encode`].
    pub fn encode_described(&self, memory: &dyn ProcessMemory, address: u64) -> Result<Vec<u8>, LayoutError> {
        let mut out = Vec::new();
        self.encode_into(&mut out, memory, address, true)?;
        Ok(out)
    }

    /// Same as [`MemoryLayout::encode`] or, if `described`, [`MemoryLayout::encode_described`], into an empty buffer.
    ///
    /// # Errors
    /// Those of [`MemoryLayout::encode`].
    pub fn encode_into(
        &self,
        out: &mut Vec<u8>,
        memory: &dyn ProcessMemory,
        address: u64,
        described: bool,
    ) -> Result<(), LayoutError> {
        self.gather(out, memory, address, described).map_err(|fault| self.fail(fault))
    }

    fn gather(
        &self,
        out: &mut Vec<u8>,
        memory: &dyn ProcessMemory,
        root: u64,
        described: bool,
    ) -> Result<(), Box<Fault>> {
        assert!(out.is_empty(), "a message begins where its buffer does");
        let ranges = merge(self, find(self, memory, root)?);
        let mut blocks: Vec<Block> =
            ranges.iter().map(|r| Block { target: r.target as u32, count: r.count, start: 0 }).collect();
        let length = place_blocks(&mut blocks, self).map_err(Fault::whole)?;
        let index = Index::new(self, &ranges);
        let text = if described { self.schema.description() } else { None };
        let header = MessageParts {
            abi: self.abi,
            name: self.schema.name(),
            hash: self.schema.hash(),
            root: (root - ranges[0].address) / self.targets[0].size,
            blocks: blocks.clone(),
            description: text.as_deref(),
            memory: &[],
        };
        out.reserve(64 + self.schema.name().len() + 12 * blocks.len() + length as usize);
        header.write(out);
        let start = out.len();
        for (range, block) in ranges.iter().zip(&blocks) {
            out.resize(start + block.start as usize, 0);
            let target = &self.targets[range.target];
            let bytes = memory.bytes(range.address, range.count * target.size).ok_or_else(|| absent(self, range))?;
            out.extend_from_slice(bytes);
            if !target.slots.is_empty() {
                self.patch(&mut out[start..], block, &index, &blocks)?;
            }
        }
        Ok(())
    }

    /// Replaces the pointers of a copied block.
    fn patch(&self, out: &mut [u8], block: &Block, index: &Index, blocks: &[Block]) -> Result<(), Box<Fault>> {
        let target = &self.targets[block.target as usize];
        let (bytes, order) = (self.abi.pointer_bytes() as u8, self.abi.byte_order());
        let mut patches = Vec::new();
        for element in 0..block.count {
            let base = block.start + element * target.size;
            trim(&target.slots, out, base);
            visit(self.sizes(), &target.slots, out, base, Origin::Message, &mut |met, address| {
                let position = match address {
                    0 => 0,
                    // A pointer to no elements may have any value in memory; in a message it is null.
                    _ if met.rule == Rule::Count && met.needed == 0 => 0,
                    _ => {
                        let (number, element) = index.find(met.target, address).expect("its target was found before");
                        ORIGIN + blocks[number].start + element * self.targets[met.target].size
                    }
                };
                patches.push((met.at, position));
                Ok(())
            })?;
            for (at, position) in patches.drain(..) {
                write_unsigned(out, at, bytes, order, position);
            }
        }
        Ok(())
    }
}

fn absent(form: &MemoryLayout, range: &Range) -> Box<Fault> {
    Fault::whole(Problem::Pointer { address: range.address, target: form.targets[range.target].name.clone() })
}

/// Finds all reachable ranges, in breadth-first order; parts of one array may be several ranges.
fn find(form: &MemoryLayout, memory: &dyn ProcessMemory, root: u64) -> Result<Vec<Range>, Box<Fault>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open = VecDeque::from([Range { target: 0, address: root, count: 1 }]);
    let mut total = 0u64;
    while let Some(range) = open.pop_front() {
        let target = &form.targets[range.target];
        if !seen.insert((range.target, range.address, range.count)) {
            continue;
        }
        let length = range.count.saturating_mul(target.size);
        total = total.saturating_add(length);
        if total > LAYOUT_BYTES_MAX {
            let problem = Problem::Limit { what: super::error::BYTES_OF_MEMORY, count: total, limit: LAYOUT_BYTES_MAX };
            return Err(Fault::whole(problem));
        }
        found.push(range);
        if found.len() > LAYOUT_BLOCKS_MAX {
            let (count, limit) = (found.len() as u64, LAYOUT_BLOCKS_MAX as u64);
            return Err(Fault::whole(Problem::Limit { what: "blocks", count, limit }));
        }
        if target.slots.is_empty() {
            continue;
        }
        let bytes = memory.bytes(range.address, length).ok_or_else(|| absent(form, &range))?;
        for index in 0..range.count {
            let base = index * target.size;
            visit(form.sizes(), &target.slots, bytes, base, Origin::Program, &mut |met, address| {
                if let Some(next) = follow(form, memory, &met, address)? {
                    open.push_back(next);
                }
                Ok(())
            })
            .map_err(|fault| {
                let fault = if range.count > 1 { fault.element(index) } else { fault };
                if found.len() == 1 { fault } else { fault.field(&format!("({})", target.name)) }
            })?;
        }
    }
    Ok(found)
}

/// Returns the target of a pointer.
fn follow(
    form: &MemoryLayout,
    memory: &dyn ProcessMemory,
    met: &PointerSlot,
    address: u64,
) -> Result<Option<Range>, Problem> {
    let name = || form.targets[met.target].name.clone();
    if address == 0 {
        return match (met.rule, met.needed) {
            (Rule::Count, needed @ 1..) => Err(Problem::Null { needed, target: name() }),
            _ => Ok(None),
        };
    }
    let count = match met.rule {
        Rule::Text => memory.text_length(address, LAYOUT_BYTES_MAX).ok_or(Problem::NoNul)? + 1,
        Rule::One | Rule::Count => met.needed,
    };
    let length = count.saturating_mul(form.targets[met.target].size);
    if length > LAYOUT_BYTES_MAX {
        return Err(Problem::Limit { what: "bytes at one pointer", count: length, limit: LAYOUT_BYTES_MAX });
    }
    if memory.bytes(address, length).is_none() {
        return Err(Problem::Pointer { address, target: name() });
    }
    Ok((count > 0).then_some(Range { target: met.target, address, count }))
}

/// Joins overlapping ranges that are parts of one array, in the order in which each was first found.
fn merge(form: &MemoryLayout, found: Vec<Range>) -> Vec<Range> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    let key = |number: usize| {
        let range = &found[number];
        (range.target, range.address % form.targets[range.target].size, range.address, number)
    };
    order.sort_unstable_by_key(|number| key(*number));
    let mut merged: Vec<(usize, Range)> = Vec::new();
    for number in order {
        let next = found[number];
        let size = form.targets[next.target].size;
        if let Some((first, last)) = merged.last_mut() {
            let same = last.target == next.target && last.address % size == next.address % size;
            if same && next.address < last.address + last.count * size {
                let end = next.address + next.count * size;
                last.count = last.count.max((end - last.address) / size);
                *first = (*first).min(number);
                continue;
            }
        }
        merged.push((number, next));
    }
    merged.sort_unstable_by_key(|(first, _)| *first);
    merged.into_iter().map(|(_, range)| range).collect()
}

/// Maps addresses to blocks.
struct Index {
    /// Blocks by type, address modulo element size, and address.
    starts: BTreeMap<(usize, u64, u64), usize>,
    sizes: Vec<u64>,
}

impl Index {
    fn new(form: &MemoryLayout, ranges: &[Range]) -> Index {
        let sizes: Vec<u64> = form.targets.iter().map(|target| target.size).collect();
        let entry = |(number, r): (usize, &Range)| ((r.target, r.address % sizes[r.target], r.address), number);
        Index { starts: ranges.iter().enumerate().map(entry).collect(), sizes }
    }

    /// Returns the block of an address, and the element in it.
    fn find(&self, target: usize, address: u64) -> Option<(usize, u64)> {
        let size = self.sizes[target];
        let least = (target, address % size, 0);
        let ((_, _, start), number) = self.starts.range(least..=(target, address % size, address)).next_back()?;
        Some((*number, (address - start) / size))
    }
}
