//! The data representation of a machine: byte order, sizes and alignments of C's types.
//!
//! Machines with the same layouts are one ABI here (x86-64 and aarch64 Linux, for instance), so that data
//! between them are never converted. Floats are IEEE 754 and bytes have 8 bits everywhere; `short`, `int`, `long` and so on
//! have 1, 2, 4 or 8 bytes; no alignment is above 8, which [`Abi::new`] checks.
//!
//! Sources: System V ABI supplements for i386, AMD64, PowerPC, s390x; AAPCS and AAPCS64; Microsoft's x64 conventions.

use std::fmt;

use super::types::Integer;
use gridloom_base::ByteOrder;

/// A machine's representation of data. Made by name or by [`Abi::new`], so its sizes are valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Abi {
    order: ByteOrder,
    /// Sizes of short, int, long, long long, pointer, size_t.
    sizes: [u8; 6],
    /// Alignments of integers of 1, 2, 4 and 8 bytes, float, double, pointer.
    alignments: [u8; 7],
}

/// Sizes and alignments, in bytes, for [`Abi::new`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Sizes {
    pub byte_order: ByteOrder,
    pub short: u8,
    pub int: u8,
    pub long: u8,
    pub long_long: u8,
    pub pointer: u8,
    pub size_t: u8,
    /// Alignment of integers of 2 bytes, 4 bytes, 8 bytes.
    pub align_integers: [u8; 3],
    pub align_float: u8,
    pub align_double: u8,
    pub align_pointer: u8,
}

const fn abi(order: ByteOrder, long: u8, pointer: u8, align_8: u8) -> Abi {
    Abi { order, sizes: [2, 4, long, 8, pointer, pointer], alignments: [1, 2, 4, align_8, 4, align_8, pointer] }
}

const fn packed(order: ByteOrder, long: u8, pointer: u8) -> Abi {
    Abi { order, sizes: [2, 4, long, 8, pointer, pointer], alignments: [1; 7] }
}

/// Known ABIs: number on the wire, which is never reused, names (the first is the ABI's own, the others are machines
/// that use it), and representation.
const KNOWN: [(u8, &[&str], Abi); 9] = [
    (1, &["lp64-le", "x86-64", "x86_64", "aarch64", "riscv64", "ppc64le"], abi(ByteOrder::Little, 8, 8, 8)),
    (2, &["ilp32-le", "arm", "armv7", "riscv32"], abi(ByteOrder::Little, 4, 4, 8)),
    (3, &["i386", "i686", "x86"], abi(ByteOrder::Little, 4, 4, 4)),
    (4, &["lp64-be", "s390x", "ppc64", "sparc64"], abi(ByteOrder::Big, 8, 8, 8)),
    (5, &["ilp32-be", "ppc", "sparc", "mips"], abi(ByteOrder::Big, 4, 4, 8)),
    (6, &["llp64-le", "x86-64-windows"], abi(ByteOrder::Little, 4, 8, 8)),
    (7, &["m68k-linux"], Abi { order: ByteOrder::Big, sizes: [2, 4, 4, 8, 4, 4], alignments: [1, 2, 2, 2, 2, 2, 2] }),
    (8, &["packed-lp64-le", "packed"], packed(ByteOrder::Little, 8, 8)),
    (9, &["packed-ilp32-be"], packed(ByteOrder::Big, 4, 4)),
];

impl Abi {
    /// This machine's ABI, as its C compiler has it.
    pub const NATIVE: Abi = Abi {
        order: ByteOrder::NATIVE,
        sizes: [
            size_of::<std::ffi::c_short>() as u8,
            size_of::<std::ffi::c_int>() as u8,
            size_of::<std::ffi::c_long>() as u8,
            size_of::<std::ffi::c_longlong>() as u8,
            size_of::<usize>() as u8,
            size_of::<usize>() as u8,
        ],
        alignments: [
            1,
            align_of::<u16>() as u8,
            align_of::<u32>() as u8,
            align_of::<u64>() as u8,
            align_of::<f32>() as u8,
            align_of::<f64>() as u8,
            align_of::<usize>() as u8,
        ],
    };

    /// Creates an ABI with those sizes.
    ///
    /// # Errors
    /// If a size is not 1, 2, 4 or 8, a pointer is neither 4 nor 8, or an alignment is not 1, 2, 4 or 8: the invalid value.
    pub fn new(sizes: Sizes) -> Result<Abi, String> {
        let Sizes { byte_order, short, int, long, long_long, pointer, size_t, .. } = sizes;
        let [align_2, align_4, align_8] = sizes.align_integers;
        let made = Abi {
            order: byte_order,
            sizes: [short, int, long, long_long, pointer, size_t],
            alignments: [1, align_2, align_4, align_8, sizes.align_float, sizes.align_double, sizes.align_pointer],
        };
        made.checked()
    }

    fn checked(self) -> Result<Abi, String> {
        if let Some(size) = self.sizes.iter().find(|size| ![1, 2, 4, 8].contains(*size)) {
            return Err(format!("an integer of {size} bytes; expected 1, 2, 4 or 8"));
        }
        if ![4, 8].contains(&self.sizes[4]) {
            return Err(format!("a pointer of {} bytes; expected 4 or 8", self.sizes[4]));
        }
        match self.alignments.iter().find(|alignment| ![1, 2, 4, 8].contains(*alignment)) {
            Some(alignment) => Err(format!("an alignment of {alignment}; expected 1, 2, 4 or 8")),
            None => Ok(self),
        }
    }

    /// Returns the ABI of that name, or of the machine of that name.
    pub fn from_name(name: &str) -> Option<Abi> {
        KNOWN.into_iter().find(|(_, names, _)| names.contains(&name)).map(|(_, _, abi)| abi)
    }

    /// All known ABIs with their own names.
    pub fn known() -> impl Iterator<Item = (&'static str, Abi)> {
        KNOWN.into_iter().map(|(_, names, abi)| (names[0], abi))
    }

    pub const fn byte_order(&self) -> ByteOrder {
        self.order
    }

    pub const fn pointer_bytes(&self) -> u64 {
        self.sizes[4] as u64
    }

    /// Bytes of an integer.
    pub const fn size_of(&self, integer: Integer) -> u64 {
        let size = match integer {
            Integer::Int8 | Integer::Uint8 | Integer::Char => 1,
            Integer::Int16 | Integer::Uint16 => 2,
            Integer::Int32 | Integer::Uint32 => 4,
            Integer::Int64 | Integer::Uint64 => 8,
            Integer::Short | Integer::UnsignedShort => self.sizes[0],
            Integer::Int | Integer::UnsignedInt => self.sizes[1],
            Integer::Long | Integer::UnsignedLong => self.sizes[2],
            Integer::LongLong | Integer::UnsignedLongLong => self.sizes[3],
            Integer::SizeT => self.sizes[5],
        };
        size as u64
    }

    /// Alignment of an integer.
    pub const fn align_of(&self, integer: Integer) -> u64 {
        self.alignments[self.size_of(integer).trailing_zeros() as usize] as u64
    }

    pub const fn align_float(&self) -> u64 {
        self.alignments[4] as u64
    }

    pub const fn align_double(&self) -> u64 {
        self.alignments[5] as u64
    }

    pub const fn align_pointer(&self) -> u64 {
        self.alignments[6] as u64
    }

    /// Appends the wire form: the number of a known ABI, or 0 and the sizes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if let Some((number, _, _)) = KNOWN.iter().find(|(_, _, abi)| abi == self) {
            out.push(*number);
            return;
        }
        out.extend_from_slice(&[0, u8::from(self.order == ByteOrder::Big)]);
        out.extend_from_slice(&self.sizes);
        out.extend_from_slice(&self.alignments);
    }

    /// Reads an ABI from the start of `bytes`; returns it and the remaining bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<(Abi, &[u8]), String> {
        let (number, rest) = bytes.split_first().ok_or("it ends before its machine is named")?;
        if *number != 0 {
            let known = KNOWN.into_iter().find(|(known, _, _)| known == number);
            return match known {
                Some((_, _, abi)) => Ok((abi, rest)),
                None => Err(format!("machine number {number} is not known here")),
            };
        }
        let (fields, rest) = rest.split_first_chunk::<14>().ok_or("it ends inside the description of its machine")?;
        let order = if fields[0] == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let mut abi = Abi { order, sizes: [0; 6], alignments: [0; 7] };
        abi.sizes.copy_from_slice(&fields[1..7]);
        abi.alignments.copy_from_slice(&fields[7..14]);
        // We write a known ABI only by its number. Accepting its sizes when reading does no harm.
        Ok((abi.checked()?, rest))
    }
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match KNOWN.iter().find(|(_, _, abi)| abi == self) {
            Some((_, names, _)) => f.write_str(names[0]),
            None => {
                let order = if self.order == ByteOrder::Big { "big" } else { "little" };
                let (sizes, alignments) = (self.sizes, self.alignments);
                write!(f, "{order}-endian, sizes {sizes:?}, alignments {alignments:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_abis_are_read_from_one_byte() {
        for (name, abi) in Abi::known() {
            let mut bytes = Vec::new();
            abi.write(&mut bytes);
            assert_eq!((bytes.len(), Abi::read(&bytes)), (1, Ok((abi, &[][..]))));
            assert_eq!(Abi::from_name(name).unwrap().to_string(), name);
            assert_eq!(abi.checked(), Ok(abi));
        }
    }

    #[test]
    fn other_abis_are_read_from_their_sizes() {
        let sizes = Sizes {
            byte_order: ByteOrder::Big,
            short: 2,
            int: 2,
            long: 4,
            long_long: 8,
            pointer: 4,
            size_t: 4,
            align_integers: [2, 2, 2],
            align_float: 2,
            align_double: 2,
            align_pointer: 2,
        };
        let abi = Abi::new(sizes).unwrap();
        let mut bytes = Vec::new();
        abi.write(&mut bytes);
        assert_eq!(Abi::read(&bytes), Ok((abi, &[][..])));
        assert!(Abi::new(Sizes { int: 3, ..sizes }).unwrap_err().contains("3 bytes"));
        assert!(Abi::new(Sizes { pointer: 2, ..sizes }).unwrap_err().contains("pointer"));
        assert!(Abi::read(&[200]).unwrap_err().contains("200"));
        assert!(Abi::read(&bytes[..9]).is_err());
    }

    #[cfg(all(target_pointer_width = "64", target_endian = "little", unix))]
    #[test]
    fn this_machine_is_known() {
        assert_eq!(Some(Abi::NATIVE), Abi::from_name("lp64-le"));
    }
}
