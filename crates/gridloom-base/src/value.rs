//! The description of a value: its element type, order and shape. The bytes themselves are stored and moved by the
//! worlds.

use std::fmt;
use std::ops::Range;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Element type: NumPy's numeric types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
    /// The platform's `long double` in 16 bytes. It is transferred unchanged and cannot be converted between platforms.
    LongDouble,
    Complex64,
    Complex128,
    /// Two `LongDouble`.
    ComplexLongDouble,
}

impl Dtype {
    /// All element types, in declaration order.
    pub const ALL: [Dtype; 16] = [
        Dtype::Bool,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Uint8,
        Dtype::Uint16,
        Dtype::Uint32,
        Dtype::Uint64,
        Dtype::Float16,
        Dtype::Float32,
        Dtype::Float64,
        Dtype::LongDouble,
        Dtype::Complex64,
        Dtype::Complex128,
        Dtype::ComplexLongDouble,
    ];

    pub fn size_bytes(self) -> u64 {
        match self {
            Dtype::Bool | Dtype::Int8 | Dtype::Uint8 => 1,
            Dtype::Int16 | Dtype::Uint16 | Dtype::Float16 => 2,
            Dtype::Int32 | Dtype::Uint32 | Dtype::Float32 => 4,
            Dtype::Int64 | Dtype::Uint64 | Dtype::Float64 | Dtype::Complex64 => 8,
            Dtype::LongDouble | Dtype::Complex128 => 16,
            Dtype::ComplexLongDouble => 32,
        }
    }

    /// Returns the size of the unit whose bytes are reversed when the byte order changes (half of a complex element).
    pub fn swap_bytes(self) -> u64 {
        match self {
            Dtype::Complex64 | Dtype::Complex128 | Dtype::ComplexLongDouble => self.size_bytes() / 2,
            _ => self.size_bytes(),
        }
    }

    /// True for a real type with values that can be read here (not `longdouble`).
    pub fn is_real(self) -> bool {
        matches!(self, Dtype::Float16 | Dtype::Float32 | Dtype::Float64)
    }

    /// True for a signed or unsigned integer type.
    pub fn is_integer(self) -> bool {
        self >= Dtype::Int8 && self <= Dtype::Uint64
    }

    /// Returns NumPy's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::Int8 => "int8",
            Dtype::Int16 => "int16",
            Dtype::Int32 => "int32",
            Dtype::Int64 => "int64",
            Dtype::Uint8 => "uint8",
            Dtype::Uint16 => "uint16",
            Dtype::Uint32 => "uint32",
            Dtype::Uint64 => "uint64",
            Dtype::Float16 => "float16",
            Dtype::Float32 => "float32",
            Dtype::Float64 => "float64",
            Dtype::LongDouble => "longdouble",
            Dtype::Complex64 => "complex64",
            Dtype::Complex128 => "complex128",
            Dtype::ComplexLongDouble => "clongdouble",
        }
    }

    /// Returns the element type with that NumPy name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl Dtype {
    /// Returns the text for one number of the type, such as `an int64 number`.
    pub fn number(self) -> String {
        let article = if self.name().starts_with('i') { "an" } else { "a" };
        format!("{article} {self} number")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Byte order of multi-byte elements. Data are sent in the sender's byte order; the receiver converts them if
/// necessary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The byte order of this machine.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
}

/// Memory order of an array's elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Row-major: the last index varies fastest.
    C,
    /// Column-major: the first index varies fastest.
    F,
}

/// Description of a value. Deserialization rejects descriptions whose size overflows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Meta {
    Scalar {
        dtype: Dtype,
        /// Byte order of the payload.
        byte_order: ByteOrder,
    },
    /// UTF-8 text.
    Text {
        /// Length in bytes.
        size_bytes: u64,
    },
    /// Uninterpreted bytes.
    Bytes {
        /// Length in bytes.
        size_bytes: u64,
    },
    /// A contiguous n-dimensional array. With 0 dimensions it has one element.
    Array {
        dtype: Dtype,
        /// Byte order of the payload.
        byte_order: ByteOrder,
        /// Memory order of the payload.
        order: Order,
        /// Extents, outermost index first, independent of the memory order.
        shape: Vec<u64>,
    },
    /// Strings or file contents, each of which may be missing ([`crate::list`]).
    List {
        /// Length in bytes.
        size_bytes: u64,
    },
}

/// A deserialized description before its size is checked. Has the variants of [`Meta`] in the same order.
#[derive(Deserialize)]
enum ReadMeta {
    Scalar { dtype: Dtype, byte_order: ByteOrder },
    Text { size_bytes: u64 },
    Bytes { size_bytes: u64 },
    Array { dtype: Dtype, byte_order: ByteOrder, order: Order, shape: Vec<u64> },
    List { size_bytes: u64 },
}

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Meta, D::Error> {
        let meta = match ReadMeta::deserialize(deserializer)? {
            ReadMeta::Scalar { dtype, byte_order } => Meta::Scalar { dtype, byte_order },
            ReadMeta::Text { size_bytes } => Meta::Text { size_bytes },
            ReadMeta::Bytes { size_bytes } => Meta::Bytes { size_bytes },
            ReadMeta::Array { dtype, byte_order, order, shape } => Meta::Array { dtype, byte_order, order, shape },
            ReadMeta::List { size_bytes } => Meta::List { size_bytes },
        };
        match meta.checked_size_bytes() {
            Some(_) => Ok(meta),
            None => Err(D::Error::custom("a value of more than 2^64 bytes")),
        }
    }
}

impl Meta {
    /// Returns the description of a scalar in this machine's byte order.
    pub fn scalar(dtype: Dtype) -> Meta {
        Meta::Scalar { dtype, byte_order: ByteOrder::NATIVE }
    }

    /// Returns the description of a row-major array in this machine's byte order.
    pub fn array(dtype: Dtype, shape: &[u64]) -> Meta {
        Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order: Order::C, shape: shape.to_vec() }
    }

    /// Returns the size of the payload in bytes, or `None` if it exceeds 2⁶⁴.
    pub fn checked_size_bytes(&self) -> Option<u64> {
        match self {
            Meta::Scalar { dtype, .. } => Some(dtype.size_bytes()),
            Meta::Text { size_bytes } | Meta::Bytes { size_bytes } | Meta::List { size_bytes } => Some(*size_bytes),
            Meta::Array { dtype, shape, .. } => {
                if shape.contains(&0) {
                    return Some(0);
                }
                shape.iter().try_fold(dtype.size_bytes(), |size, extent| size.checked_mul(*extent))
            }
        }
    }

    /// Returns the number of rows that are contiguous in memory: along the first index of an array, or the bytes of a
    /// byte string.
    ///
    /// # Errors
    /// The reason why the value has no such rows, as the predicate of a sentence with the subject "it".
    pub fn rows(&self) -> Result<u64, &'static str> {
        match self {
            Meta::Bytes { size_bytes } => Ok(*size_bytes),
            Meta::Array { order: Order::F, shape, .. } if shape.len() > 1 => {
                Err("is stored column by column; put it row by row (C order)")
            }
            Meta::Array { shape, .. } => shape.first().copied().ok_or("is one element, and has no rows"),
            Meta::Scalar { .. } => Err("is a number, and has no rows"),
            Meta::Text { .. } => Err("is a text, and has no rows"),
            Meta::List { .. } => Err("is a list, and has no rows"),
        }
    }

    /// Returns the offset of the first byte and the description of these rows, clipped to the rows that exist.
    ///
    /// # Errors
    /// See [`Meta::rows`].
    pub fn part(&self, rows: Range<u64>) -> Result<(u64, Meta), &'static str> {
        let count = self.rows()?;
        let from = rows.start.min(count);
        let length = rows.end.clamp(from, count) - from;
        let row_bytes = self.size_bytes().checked_div(count).unwrap_or(0);
        let mut part = self.clone();
        match &mut part {
            Meta::Array { shape, .. } => shape[0] = length,
            Meta::Bytes { size_bytes } => *size_bytes = length,
            Meta::Scalar { .. } | Meta::Text { .. } | Meta::List { .. } => unreachable!("these have no rows"),
        }
        Ok((from * row_bytes, part))
    }

    /// Returns the size of the payload in bytes.
    ///
    /// # Panics
    /// If it exceeds 2⁶⁴ bytes. Descriptions from outside are checked with [`Meta::checked_size_bytes`] before they
    /// get here.
    pub fn size_bytes(&self) -> u64 {
        self.checked_size_bytes().expect("a value's size was checked when it entered")
    }
}

impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meta::Scalar { dtype, .. } => write!(f, "{dtype}"),
            Meta::Text { size_bytes } => write!(f, "string of {size_bytes} bytes"),
            Meta::Bytes { size_bytes } => write!(f, "{size_bytes} bytes"),
            Meta::List { size_bytes } => write!(f, "list of {size_bytes} bytes"),
            Meta::Array { dtype, order, shape, byte_order } => {
                write!(f, "{dtype}[")?;
                for (i, extent) in shape.iter().enumerate() {
                    write!(f, "{}{extent}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")?;
                if *order == Order::F && shape.len() > 1 {
                    f.write_str(" in Fortran order")?;
                }
                if *byte_order != ByteOrder::NATIVE {
                    f.write_str(" in the other byte order")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(Meta::array(Dtype::Float64, &[1 << 40, 1 << 40]).checked_size_bytes(), None);
        assert_eq!(Meta::array(Dtype::Float64, &[1 << 40, 1 << 40, 0]).checked_size_bytes(), Some(0));
        assert_eq!(Meta::array(Dtype::Complex128, &[]).size_bytes(), 16);
    }

    #[test]
    fn rows_are_those_that_there_are() {
        let array = Meta::array(Dtype::Float32, &[10, 3, 2]);
        assert_eq!(array.part(4..6), Ok((4 * 24, Meta::array(Dtype::Float32, &[2, 3, 2]))));
        assert_eq!(array.part(8..99), Ok((8 * 24, Meta::array(Dtype::Float32, &[2, 3, 2]))));
        assert_eq!(array.part(12..99), Ok((240, Meta::array(Dtype::Float32, &[0, 3, 2]))));
        let (from, to) = (6, 4);
        assert_eq!(array.part(from..to), Ok((6 * 24, Meta::array(Dtype::Float32, &[0, 3, 2]))));
        assert_eq!(Meta::array(Dtype::Float32, &[0, 3]).part(0..1), Ok((0, Meta::array(Dtype::Float32, &[0, 3]))));
        assert_eq!(Meta::Bytes { size_bytes: 9 }.part(2..5), Ok((2, Meta::Bytes { size_bytes: 3 })));
        assert!(Meta::scalar(Dtype::Float32).rows().is_err() && Meta::array(Dtype::Float32, &[]).rows().is_err());
        let Meta::Array { dtype, byte_order, shape, .. } = array else { unreachable!() };
        assert!(Meta::Array { dtype, byte_order, order: Order::F, shape }.rows().is_err());
    }

    #[test]
    fn names_are_found_again() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
        }
    }
}
