//! Arguments as C passes them to a variadic function, and how each is to be read.
//!
//! `calls.c` reads a `va_list` into [`Slot`]s by a [`ReadingPlan`]; both know the numbers of [`Read`] from `calls.h`.

use std::ffi::c_void;

use gridloom_base::Dtype;
use gridloom_base::limits::PARAMETERS_MAX;
use gridloom_idl::{Param, Passed, Signature};

use super::code::{Failed, GRPC_RPC_REFUSED, Outcome};

/// How an argument is passed, after what C makes of it without a prototype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Read {
    Int = 1,
    Unsigned = 2,
    Int64 = 3,
    Uint64 = 4,
    Double = 5,
    LongDouble = 6,
    ComplexFloat = 7,
    ComplexDouble = 8,
    ComplexLongDouble = 9,
    Pointer = 10,
}

/// `gridloom_slot`: the largest of its members is two `long double`.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Slot([u8; 32]);

impl Slot {
    pub(super) fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(self.first()))
    }

    /// A scalar of that type as it lies in memory; C's promotion is undone.
    pub(super) fn scalar(&self, dtype: Dtype) -> Vec<u8> {
        let word = u64::from_ne_bytes(self.first());
        match dtype {
            Dtype::Bool => vec![u8::from(word as u32 != 0)],
            Dtype::Int8 | Dtype::Uint8 => vec![word as u8],
            Dtype::Int16 | Dtype::Uint16 => (word as u16).to_ne_bytes().to_vec(),
            Dtype::Int32 | Dtype::Uint32 => (word as u32).to_ne_bytes().to_vec(),
            Dtype::Float32 => (f64::from_bits(word) as f32).to_ne_bytes().to_vec(),
            Dtype::Int64
            | Dtype::Uint64
            | Dtype::Float16
            | Dtype::Float64
            | Dtype::LongDouble
            | Dtype::Complex64
            | Dtype::Complex128
            | Dtype::ComplexLongDouble => self.0[..dtype.size_bytes() as usize].to_vec(),
        }
    }

    fn first<const N: usize>(&self) -> [u8; N] {
        self.0[..N].try_into().expect("a slot has 32 bytes")
    }
}

/// How the arguments of calls of a function are read.
#[derive(Debug)]
pub(super) struct ReadingPlan {
    /// One [`Read`] an argument.
    pub(super) reads: Vec<u8>,
    /// The parameter of each argument; callbacks come behind them.
    pub(super) params: Vec<usize>,
}

impl ReadingPlan {
    /// Whether that argument is passed by its address.
    pub(super) fn is_pointer(&self, at: usize) -> bool {
        self.reads[at] == Read::Pointer as u8
    }

    /// For the parameters that [`Signature::passed`] names, and callbacks.
    pub(super) fn new(signature: &Signature) -> Outcome<ReadingPlan> {
        let mut plan = ReadingPlan { reads: Vec::new(), params: Vec::new() };
        for index in signature.passed() {
            plan.reads.push(read_of(signature, &signature.params[index])? as u8);
            plan.params.push(index);
        }
        plan.reads.extend(signature.callbacks.iter().map(|_| Read::Pointer as u8));
        // `calls.c` has room for so many.
        match plan.reads.len() {
            0..=PARAMETERS_MAX => Ok(plan),
            more => {
                let text = format!("{}: {more} arguments, at most {PARAMETERS_MAX} can be passed", signature.name);
                Err(Failed::new(GRPC_RPC_REFUSED, text))
            }
        }
    }
}

fn read_of(signature: &Signature, param: &Param) -> Outcome<Read> {
    let dtype = match param.passed() {
        Ok(Passed::Value(dtype)) => dtype,
        Ok(Passed::Address) => return Ok(Read::Pointer),
        Err(what) => return Err(Failed::new(GRPC_RPC_REFUSED, signature.cannot_pass(param, what))),
    };
    Ok(match dtype {
        Dtype::Bool | Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Uint8 | Dtype::Uint16 => Read::Int,
        Dtype::Uint32 => Read::Unsigned,
        Dtype::Int64 => Read::Int64,
        Dtype::Uint64 => Read::Uint64,
        Dtype::Float16 => unreachable!("a float16 is not passed by value"),
        Dtype::Float32 | Dtype::Float64 => Read::Double,
        Dtype::LongDouble => Read::LongDouble,
        Dtype::Complex64 => Read::ComplexFloat,
        Dtype::Complex128 => Read::ComplexDouble,
        Dtype::ComplexLongDouble => Read::ComplexLongDouble,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(bytes: &[u8]) -> Slot {
        let mut slot = Slot([0; 32]);
        slot.0[..bytes.len()].copy_from_slice(bytes);
        slot
    }

    #[test]
    fn what_c_promotes_is_cut_again() {
        let minus = slot(&(-3i64).to_ne_bytes());
        assert_eq!(minus.scalar(Dtype::Int8), [0xfd]);
        assert_eq!(minus.scalar(Dtype::Int16), (-3i16).to_ne_bytes());
        assert_eq!(minus.scalar(Dtype::Int32), (-3i32).to_ne_bytes());
        assert_eq!(minus.scalar(Dtype::Bool), [1]);
        assert_eq!(slot(&0.1f64.to_ne_bytes()).scalar(Dtype::Float32), 0.1f32.to_ne_bytes());
    }

    #[test]
    fn numbers_are_those_of_calls_h() {
        let header = include_str!("calls.h");
        let all = [
            (Read::Int, "INT"),
            (Read::Unsigned, "UNSIGNED"),
            (Read::Int64, "INT64"),
            (Read::Uint64, "UINT64"),
            (Read::Double, "DOUBLE"),
            (Read::LongDouble, "LONG_DOUBLE"),
            (Read::ComplexFloat, "COMPLEX_FLOAT"),
            (Read::ComplexDouble, "COMPLEX_DOUBLE"),
            (Read::ComplexLongDouble, "COMPLEX_LONG_DOUBLE"),
            (Read::Pointer, "POINTER"),
        ];
        for (read, name) in all {
            let number = read as u8;
            assert!(header.contains(&format!("GRIDLOOM_READ_{name} = {number}")), "{name} is not {number}");
        }
        assert!(header.contains(&format!("GRIDLOOM_ARGUMENTS_MAX = {PARAMETERS_MAX}")));
    }
}
