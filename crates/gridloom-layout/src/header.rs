//! The header of a message, which precedes its memory.
//!
//! ```text
//!  "GLM" 1 | machine | flags | name     | hash   | root   | blocks | block …         | [text]   | memory
//!  4 bytes   1 or 15    u8     n, bytes   u64 LE   number   number   type, elements    n, bytes
//! ```
//! Numbers and lengths `n` are LEB128 of at most 64 bits. The *machine* is the sender's ABI. The hash is the message
//! type's. Each block of memory has a type and a number of elements. The type is a number: both sides collect the targets
//! of the declaration's pointers in the same way, and 0 is the message itself. *Root* is the index of the message in
//! block 0. The flag 1 means that the declaration's text follows. The memory consists of the blocks in order, as they are in the
//! sender's memory, each beginning at a multiple of 8. The memory itself begins at a multiple of 8, counted from the
//! message's first byte, so that a receiver may use it in place. Extra bytes in the number of blocks provide this alignment.
//!
//! A pointer in it is [`ORIGIN`] plus the position of its target in the memory. The position is the start of the
//! target's block plus the offset within; null is 0.

use super::abi::Abi;
use super::error::Problem;
use gridloom_base::limits::{LAYOUT_BLOCKS_MAX, LAYOUT_TEXT_BYTES_MAX, NAME_BYTES_MAX};

/// The address of the first byte of a message's memory.
pub(super) const ORIGIN: u64 = 8;
/// Every block begins at a multiple of this: no type has a larger alignment.
pub(super) const BLOCK_ALIGN: u64 = 8;

const MAGIC: [u8; 4] = *b"GLM\x01";
const DESCRIBED: u8 = 1;

/// A run of elements of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) target: u32,
    pub(super) count: u64,
    /// Its start in the memory, once the sizes are known.
    pub(super) start: u64,
}

/// A message split into its parts, which are not validated yet.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageParts<'a> {
    pub(super) abi: Abi,
    pub(super) name: &'a str,
    pub(super) hash: u64,
    pub(super) root: u64,
    pub(super) blocks: Vec<Block>,
    pub(super) description: Option<&'a str>,
    pub(super) memory: &'a [u8],
}

impl<'a> MessageParts<'a> {
    /// Splits a message.
    ///
    /// # Errors
    /// If it is not a message. Nothing is allocated beyond a small multiple of the bytes received.
    pub fn parse(bytes: &'a [u8]) -> Result<MessageParts<'a>, Problem> {
        let malformed = |why: &str| Problem::Header(why.to_string());
        let rest = bytes.strip_prefix(&MAGIC).ok_or(Problem::Untyped)?;
        let (abi, rest) = Abi::read(rest).map_err(Problem::Header)?;
        let (flags, rest) = rest.split_first().ok_or_else(|| malformed("it ends before its flags"))?;
        if flags & !DESCRIBED != 0 {
            return Err(Problem::Header(format!("unknown flags {flags:#x}")));
        }
        let mut reader = Reader(rest);
        let name = reader.text("name", NAME_BYTES_MAX)?;
        let (hash, rest) = reader.0.split_first_chunk::<8>().ok_or_else(|| malformed("it ends inside its hash"))?;
        reader.0 = rest;
        let root = reader.number()?;
        let count = reader.number()?;
        if count > LAYOUT_BLOCKS_MAX as u64 {
            return Err(Problem::Limit { what: "blocks", count, limit: LAYOUT_BLOCKS_MAX as u64 });
        }
        // A block takes at least two bytes.
        if count > reader.0.len() as u64 / 2 {
            return Err(malformed("it ends inside its table of blocks"));
        }
        let mut blocks = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let target = u32::try_from(reader.number()?).map_err(|_| malformed("a block of no known type"))?;
            blocks.push(Block { target, count: reader.number()?, start: 0 });
        }
        let described = flags & DESCRIBED != 0;
        let description = if described { Some(reader.text("declaration", LAYOUT_TEXT_BYTES_MAX)?) } else { None };
        let hash = u64::from_le_bytes(*hash);
        Ok(MessageParts { abi, name, hash, root, blocks, description, memory: reader.0 })
    }

    /// The message type's name, by which a receiver finds its own declaration.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The message type's hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The sender's machine.
    pub fn abi(&self) -> &Abi {
        &self.abi
    }

    /// The sender's declaration as C text, if it was sent.
    pub fn description(&self) -> Option<&'a str> {
        self.description
    }

    /// Writes the header as the beginning of a message.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        assert!(out.is_empty(), "positions count from the message's first byte");
        out.extend_from_slice(&MAGIC);
        self.abi.write(out);
        out.push(if self.description.is_some() { DESCRIBED } else { 0 });
        write_text(self.name, out);
        out.extend_from_slice(&self.hash.to_le_bytes());
        write_number(self.root, out);
        write_number(self.blocks.len() as u64, out);
        let counted = out.len();
        for block in &self.blocks {
            write_number(u64::from(block.target), out);
            write_number(block.count, out);
        }
        if let Some(text) = self.description {
            write_text(text, out);
        }
        let missing = out.len().next_multiple_of(BLOCK_ALIGN as usize) - out.len();
        if missing > 0 {
            // Each byte has seven bits: zeros at the end change nothing, and with at most seven more the number stays
            // within ten bytes.
            out[counted - 1] |= 0x80;
            out.splice(counted..counted, (1..=missing).map(|at| if at < missing { 0x80 } else { 0 }));
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Result<u64, Problem> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(|| Problem::Header("it ends inside a number".into()))?;
            self.0 = rest;
            if shift == 63 && *byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Problem::Header("a number of more than 64 bits".into()))
    }

    fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, Problem> {
        let length = self.number()?;
        if length > limit as u64 {
            return Err(Problem::Header(format!("a {what} of {length} bytes, at most {limit} are allowed")));
        }
        let (text, rest) = self
            .0
            .split_at_checked(length as usize)
            .ok_or_else(|| Problem::Header(format!("it ends inside its {what}")))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| Problem::Header(format!("its {what} is not UTF-8")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip() {
        let blocks = vec![Block { target: 0, count: 1, start: 0 }, Block { target: 300, count: u64::MAX, start: 0 }];
        for description in [None, Some("struct S { int x; };")] {
            let abi = Abi::from_name("ppc").unwrap();
            let header =
                MessageParts { abi, name: "S", hash: 7, root: 3, blocks: blocks.clone(), description, memory: &[1, 2] };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            bytes.extend_from_slice(&[1, 2]);
            assert_eq!(bytes.len() % 8, 2, "its memory is aligned");
            assert_eq!(MessageParts::parse(&bytes), Ok(header));
            for cut in 0..bytes.len() - 2 {
                assert!(MessageParts::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_table_that_is_not_there_is_not_allocated() {
        let mut bytes = b"GLM\x01\x01\x00\x01S12345678\x00".to_vec();
        write_number(1 << 20, &mut bytes);
        assert!(MessageParts::parse(&bytes).unwrap_err().to_string().contains("table of blocks"));
        bytes.pop();
        write_number(1 << 40, &mut bytes);
        assert!(matches!(MessageParts::parse(&bytes), Err(Problem::Limit { .. })));
    }
}
