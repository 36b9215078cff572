//! Numbers as bytes: reading, writing, and the rule by which a scalar argument converts to its parameter's type.
//!
//! **The rule:** a number is converted only if its value stays exactly the same. So the function never receives
//! another number than the caller wrote; a caller that wants rounding rounds. The integer 5 converts to any numeric type. 2.0
//! converts to an integer, and 2.5 does not. 0.5 converts to `float32`; 0.1 and 1e40 as `float64` do not. `bool` is not a number:
//! it converts neither to one nor from one. A complex number converts to complex types only, a real one also to complex. NaN and
//! the infinities convert to every real and complex type. `longdouble` has platform-specific bytes: nothing converts to or from
//! it, and its byte order is not changed.

use crate::evaluation::{EvalError, EvalFailure};
use crate::expr::Expr;
use crate::signature::Param;
use gridloom_base::{ByteOrder, Dtype, Meta};

/// The value of one number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// Any integer type.
    Integer(i128),
    /// Any real type.
    Real(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

/// True if a native function can return such a value: the types that all [`Language`](crate::Language)s have and workers accept.
pub(crate) fn can_be_returned(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::Float16 | Dtype::ComplexLongDouble)
}

impl Scalar {
    /// Reads one element; `None` if the length is wrong or the type is `longdouble`.
    pub fn read(dtype: Dtype, byte_order: ByteOrder, bytes: &[u8]) -> Option<Scalar> {
        if bytes.len() as u64 != dtype.size_bytes() {
            return None;
        }
        let mut little = bytes.to_vec();
        if byte_order == ByteOrder::Big {
            little.chunks_exact_mut(dtype.swap_bytes() as usize).for_each(<[u8]>::reverse);
        }
        let signed = |bytes: &[u8]| {
            let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
            i128::from_le_bytes(widened(bytes, fill))
        };
        let bits = |bytes: &[u8]| u128::from_le_bytes(widened(bytes, 0));
        Some(match dtype {
            Dtype::Bool => Scalar::Bool(little[0] != 0),
            Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64 => Scalar::Integer(signed(&little)),
            Dtype::Uint8 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64 => Scalar::Integer(bits(&little) as i128),
            Dtype::Float16 => Scalar::Real(half_to_f64(bits(&little) as u16)),
            Dtype::Float32 => Scalar::Real(f64::from(f32::from_bits(bits(&little) as u32))),
            Dtype::Float64 => Scalar::Real(f64::from_bits(bits(&little) as u64)),
            Dtype::Complex64 => {
                let part = |bytes: &[u8]| f64::from(f32::from_bits(bits(bytes) as u32));
                Scalar::Complex(part(&little[..4]), part(&little[4..]))
            }
            Dtype::Complex128 => {
                let part = |bytes: &[u8]| f64::from_bits(bits(bytes) as u64);
                Scalar::Complex(part(&little[..8]), part(&little[8..]))
            }
            Dtype::LongDouble | Dtype::ComplexLongDouble => return None,
        })
    }

    /// The value as one element in this machine's byte order; `None` if the type cannot hold it exactly.
    pub fn write(self, dtype: Dtype) -> Option<Vec<u8>> {
        match (dtype, self) {
            (Dtype::Bool, Scalar::Bool(value)) => Some(vec![u8::from(value)]),
            (Dtype::Bool, _) | (_, Scalar::Bool(_)) => None,
            (Dtype::Complex64 | Dtype::Complex128, value) => {
                let part = if dtype == Dtype::Complex64 { Dtype::Float32 } else { Dtype::Float64 };
                let (real, imaginary) = match value {
                    Scalar::Complex(real, imaginary) => (Scalar::Real(real), Scalar::Real(imaginary)),
                    real => (real, Scalar::Real(0.0)),
                };
                Some([real.write(part)?, imaginary.write(part)?].concat())
            }
            (dtype, Scalar::Integer(value)) if dtype.is_integer() => integer_bytes(value, dtype),
            (dtype, Scalar::Real(value)) if dtype.is_integer() => {
                let exact = value.fract() == 0.0 && value.abs() < TWO_POWER_100;
                if exact { integer_bytes(value as i128, dtype) } else { None }
            }
            (dtype, Scalar::Integer(value)) if dtype.is_real() => {
                let real = value as f64;
                if real as i128 == value { real_bytes(real, dtype) } else { None }
            }
            (dtype, Scalar::Real(value)) if dtype.is_real() => real_bytes(value, dtype),
            (_, Scalar::Integer(_) | Scalar::Real(_) | Scalar::Complex(..)) => None,
        }
    }

    /// The value as an integer, if it is one.
    pub fn integer(self) -> Option<i128> {
        match self {
            Scalar::Integer(value) => Some(value),
            Scalar::Bool(_) | Scalar::Real(_) | Scalar::Complex(..) => None,
        }
    }

    /// The value as a real number, if it is an integer or real.
    pub fn real(self) -> Option<f64> {
        match self {
            Scalar::Integer(value) => Some(value as f64),
            Scalar::Real(value) => Some(value),
            Scalar::Bool(_) | Scalar::Complex(..) => None,
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{}", if *value { "True" } else { "False" }),
            Scalar::Integer(value) => write!(f, "{value}"),
            Scalar::Real(value) => write!(f, "{value:?}"),
            Scalar::Complex(real, imaginary) => write!(f, "({real:?}, {imaginary:?})"),
        }
    }
}

/// Values of scalar parameters by index, as returned by [`super::Signature::bind`] and received by a server.
pub type Scalars = [Option<(Meta, Vec<u8>)>];

/// Returns the value of one scalar parameter.
pub fn scalar_value(scalars: &Scalars, param: usize) -> Option<Scalar> {
    match scalars.get(param)?.as_ref()? {
        (Meta::Scalar { dtype, byte_order }, bytes) => Scalar::read(*dtype, *byte_order, bytes),
        _ => None,
    }
}

impl Expr {
    /// Evaluates the expression as an extent.
    ///
    /// # Errors
    /// Those of [`Expr::evaluate_extent`].
    pub fn extent_of(&self, params: &[Param], scalars: &Scalars) -> Result<u64, EvalError> {
        self.evaluate_extent(params, &|index| scalar_value(scalars, index).and_then(Scalar::integer))
    }

    /// Evaluates the expression as bytes of a number of that type in this machine's byte order, which a native function receives
    /// for a constant or an expression. An integer expression is evaluated exactly. A real one that is passed as an
    /// integer loses its fraction, and one passed as `float32` is rounded, like a cast in C.
    ///
    /// # Errors
    /// If the value is unknown or does not fit the type.
    pub fn value_bytes(&self, dtype: Dtype, params: &[Param], scalars: &Scalars) -> Result<Vec<u8>, EvalError> {
        let value = if self.is_integral(params) {
            let integer = |index| scalar_value(scalars, index).and_then(Scalar::integer);
            Scalar::Integer(self.evaluate_integer(params, &integer)?)
        } else {
            Scalar::Real(self.evaluate_real(params, &|index| scalar_value(scalars, index).and_then(Scalar::real))?)
        };
        let cast = match (dtype, value.real()) {
            (Dtype::Bool, Some(real)) => Scalar::Bool(real != 0.0),
            (Dtype::Float32 | Dtype::Complex64, Some(real)) => Scalar::Real(f64::from(real as f32)),
            (Dtype::Float64 | Dtype::Complex128, Some(real)) => Scalar::Real(real),
            (_, Some(_)) if matches!(value, Scalar::Integer(_)) => value,
            (integer, Some(real)) if integer.is_integer() => Scalar::Real(real.trunc()),
            _ => value,
        };
        let unfit = || self.error(params, EvalFailure::DoesNotFit { value: value.to_string(), dtype });
        cast.write(dtype).ok_or_else(unfit)
    }
}

fn widened(bytes: &[u8], fill: u8) -> [u8; 16] {
    let mut wide = [fill; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide
}

fn native(mut little: Vec<u8>) -> Vec<u8> {
    if ByteOrder::NATIVE == ByteOrder::Big {
        little.reverse();
    }
    little
}

fn integer_bytes(value: i128, dtype: Dtype) -> Option<Vec<u8>> {
    let bits = 8 * dtype.size_bytes();
    let (least, most) = match dtype {
        Dtype::Uint8 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64 => (0, (1i128 << bits) - 1),
        _ => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
    };
    let fits = (least..=most).contains(&value);
    fits.then(|| native(value.to_le_bytes()[..dtype.size_bytes() as usize].to_vec()))
}

fn real_bytes(value: f64, dtype: Dtype) -> Option<Vec<u8>> {
    match dtype {
        Dtype::Float64 => Some(value.to_ne_bytes().to_vec()),
        Dtype::Float32 => {
            let narrow = value as f32;
            (value.is_nan() || f64::from(narrow) == value).then(|| narrow.to_ne_bytes().to_vec())
        }
        Dtype::Float16 => f64_to_half(value).map(|half| half.to_ne_bytes().to_vec()),
        _ => None,
    }
}

/// Sign, 5 bits of exponent biased by 15, 10 bits of fraction.
fn half_to_f64(half: u16) -> f64 {
    let sign = if half & 0x8000 != 0 { -1.0 } else { 1.0 };
    let fraction = f64::from(half & 0x3ff);
    sign * match (half >> 10) & 0x1f {
        0 => fraction / TWO_POWER_24,
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction / 1024.0) * libm::exp2(f64::from(exponent) - 15.0),
    }
}

fn f64_to_half(value: f64) -> Option<u16> {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    if value.is_nan() {
        return Some(sign | 0x7e00);
    }
    if size.is_infinite() {
        return Some(sign | 0x7c00);
    }
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    if exponent < -14 {
        let fraction = size * TWO_POWER_24;
        return (fraction.fract() == 0.0).then_some(sign | fraction as u16);
    }
    let fraction = value.to_bits() & ((1 << 52) - 1);
    let exact = exponent <= 15 && fraction.trailing_zeros() >= 42;
    exact.then_some(sign | (((exponent + 15) as u16) << 10) | (fraction >> 42) as u16)
}

const TWO_POWER_24: f64 = 16_777_216.0;
/// Far above every integer type, and far below the value at which `as i128` saturates.
const TWO_POWER_100: f64 = 1_267_650_600_228_229_401_496_703_205_376.0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exact_values_convert() {
        assert_eq!(Scalar::Integer(5).write(Dtype::Int32), Some(5i32.to_ne_bytes().to_vec()));
        assert_eq!(Scalar::Real(2.0).write(Dtype::Int8), Some(vec![2]));
        assert_eq!(Scalar::Integer(-1).write(Dtype::Float32), Some((-1f32).to_ne_bytes().to_vec()));
        assert_eq!(Scalar::Real(0.5).write(Dtype::Complex64).unwrap().len(), 8);
    }

    #[test]
    fn inexact_values_do_not() {
        assert_eq!(Scalar::Integer(1 << 40).write(Dtype::Int32), None);
        assert_eq!(Scalar::Integer(-1).write(Dtype::Uint64), None);
        assert_eq!(Scalar::Integer((1 << 53) + 1).write(Dtype::Float64), None);
        assert_eq!(Scalar::Real(2.5).write(Dtype::Int32), None);
        assert_eq!(Scalar::Real(f64::NAN).write(Dtype::Int32), None);
        assert_eq!(Scalar::Real(1e40).write(Dtype::Float32), None);
        assert_eq!(Scalar::Real(0.1).write(Dtype::Float32), None);
        assert_eq!(Scalar::Bool(true).write(Dtype::Int32), None);
        assert_eq!(Scalar::Integer(1).write(Dtype::Bool), None);
        assert_eq!(Scalar::Complex(1.0, 0.0).write(Dtype::Float64), None);
    }

    #[test]
    fn halves_round_trip() {
        for bits in 0..=u16::MAX {
            let value = half_to_f64(bits);
            if !value.is_nan() {
                assert_eq!(f64_to_half(value), Some(bits), "{value}");
            }
        }
        assert_eq!(f64_to_half(65520.0), None);
        assert_eq!(f64_to_half(1e-9), None);
        assert_eq!(f64_to_half(0.1), None);
    }

    #[test]
    fn both_byte_orders_are_read() {
        assert_eq!(Scalar::read(Dtype::Int16, ByteOrder::Big, &[0xff, 0xfe]), Some(Scalar::Integer(-2)));
        assert_eq!(Scalar::read(Dtype::Uint16, ByteOrder::Little, &[0xfe, 0xff]), Some(Scalar::Integer(0xfffe)));
        let bytes = [1f32.to_be_bytes(), 2f32.to_be_bytes()].concat();
        assert_eq!(Scalar::read(Dtype::Complex64, ByteOrder::Big, &bytes), Some(Scalar::Complex(1.0, 2.0)));
        assert_eq!(Scalar::read(Dtype::Int16, ByteOrder::Big, &[0]), None);
    }

    #[test]
    fn call_values_are_cast_as_in_c() {
        let expr = |text| crate::parse::parse_expression(text, &[]).unwrap();
        let value = |text, dtype| expr(text).value_bytes(dtype, &[], &[]);
        assert_eq!(value("101", Dtype::Int32), Ok(101i32.to_ne_bytes().to_vec()));
        assert_eq!(value("7/2", Dtype::Float64), Ok(3f64.to_ne_bytes().to_vec()));
        assert_eq!(value("0.1", Dtype::Float32), Ok(0.1f32.to_ne_bytes().to_vec()));
        assert_eq!(value("-2.7", Dtype::Int64), Ok((-2i64).to_ne_bytes().to_vec()));
        assert_eq!(
            value("2^31", Dtype::Int32).unwrap_err().to_string(),
            "expression '2^31' is 2147483648, which does not fit int32"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(value in any::<i64>(), which in 0..Dtype::ALL.len()) {
            let dtype = Dtype::ALL[which];
            if let Some(bytes) = Scalar::Integer(i128::from(value)).write(dtype) {
                let real = Scalar::read(dtype, ByteOrder::NATIVE, &bytes).unwrap();
                match real {
                    Scalar::Integer(read) => prop_assert_eq!(read, i128::from(value)),
                    Scalar::Real(read) | Scalar::Complex(read, _) => prop_assert_eq!(read as i128, i128::from(value)),
                    Scalar::Bool(_) => prop_assert!(false),
                }
            }
        }
    }
}
