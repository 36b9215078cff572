//! Integers in the memory of any machine, of 1, 2, 4 or 8 bytes, in its byte order.

use super::abi::Abi;
use super::types::Integer;
use gridloom_base::ByteOrder;

/// Position and format of an integer in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IntegerSlot {
    pub(super) at: u64,
    pub(super) bytes: u8,
    pub(super) signed: bool,
    pub(super) order: ByteOrder,
}

impl IntegerSlot {
    /// Creates the word of an integer of that C type, `at` bytes into an element.
    pub(super) fn new(abi: &Abi, integer: Integer, at: u64) -> IntegerSlot {
        IntegerSlot { at, bytes: abi.size_of(integer) as u8, signed: integer.is_signed(), order: abi.byte_order() }
    }

    /// Reads the integer in the element that begins at `base`.
    pub(super) fn get(&self, memory: &[u8], base: u64) -> i128 {
        let unsigned = read_unsigned(memory, base + self.at, self.bytes, self.order);
        let unused = 64 - 8 * u32::from(self.bytes);
        if self.signed { i128::from((unsigned << unused) as i64 >> unused) } else { i128::from(unsigned) }
    }

    /// Writes the integer; fails if it does not fit.
    pub(super) fn set(&self, memory: &mut [u8], base: u64, value: i128) -> Result<(), ()> {
        let bits = 8 * u32::from(self.bytes);
        let (least, most) =
            if self.signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
        if value < least || value > most {
            return Err(());
        }
        write_unsigned(memory, base + self.at, self.bytes, self.order, value as u64);
        Ok(())
    }
}

/// The low bytes of an integer.
pub(super) fn read_unsigned(memory: &[u8], at: u64, bytes: u8, order: ByteOrder) -> u64 {
    let at = at as usize;
    match (bytes, order) {
        (8, ByteOrder::Little) => u64::from_le_bytes(array(&memory[at..at + 8])),
        (8, ByteOrder::Big) => u64::from_be_bytes(array(&memory[at..at + 8])),
        (4, ByteOrder::Little) => u64::from(u32::from_le_bytes(array(&memory[at..at + 4]))),
        (4, ByteOrder::Big) => u64::from(u32::from_be_bytes(array(&memory[at..at + 4]))),
        (2, ByteOrder::Little) => u64::from(u16::from_le_bytes(array(&memory[at..at + 2]))),
        (2, ByteOrder::Big) => u64::from(u16::from_be_bytes(array(&memory[at..at + 2]))),
        _ => u64::from(memory[at]),
    }
}

pub(super) fn write_unsigned(memory: &mut [u8], at: u64, bytes: u8, order: ByteOrder, value: u64) {
    let (at, bytes) = (at as usize, usize::from(bytes));
    match order {
        ByteOrder::Little => memory[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]),
        ByteOrder::Big => memory[at..at + bytes].copy_from_slice(&value.to_be_bytes()[8 - bytes..]),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("a slice of that length")
}
