//! A call's arguments, from the program's memory to values, and where its results go.
//!
//! Scalars first, since extents need them, then extents, then arrays, which are copied once: what the program does with its
//! memory after the call has returned changes nothing.

use std::ffi::c_void;

use gridloom::{Arg, Grid, Value};
use gridloom_core::base::limits::EAGER_BYTES_MAX;
use gridloom_core::base::{ByteOrder, Dtype, Meta, Order};
use gridloom_core::idl::{ArrayOrder, BaseType, Param, Signature};
use gridloom_net::payload::Payload;

use super::code::{Failed, Outcome};
use super::deliver::Destination;
use super::memory;
use super::slots::{ReadingPlan, Slot};

/// What the program passed, in the order of the plan.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    /// Scalars by value: a variadic call.
    Slots(&'a [Slot]),
    /// Everything by pointer: an argument stack.
    Pointers(&'a [*mut c_void]),
}

/// A call, ready to be sent.
pub(super) struct Gathered {
    /// Inputs in the order of their parameters, but for sizes that Python programs leave out.
    pub(super) args: Vec<Arg>,
    /// Those.
    pub(super) named: Vec<(String, Arg)>,
    /// Where the results go, in their order.
    pub(super) destinations: Vec<Destination>,
}

/// Reads all arguments of a call.
///
/// # Safety
/// What was passed is as the signature says (`memory`).
pub(super) unsafe fn gather(
    grid: &Grid,
    signature: &Signature,
    plan: &ReadingPlan,
    given: Given<'_>,
) -> Outcome<Gathered> {
    let mut scalars = vec![None; signature.params.len()];
    for (at, index) in plan.params.iter().enumerate() {
        let param = &signature.params[*index];
        if param.is_input() && !param.is_array {
            // SAFETY: promised by the caller.
            scalars[*index] = Some(unsafe { scalar(signature, param, given, at) }?);
        }
    }
    let shapes = match signature.params.iter().any(|param| param.is_array) {
        true => signature.shapes(scalars.clone()).map_err(gridloom::Error::from)?,
        false => Vec::new(),
    };
    let mut gathered = Gathered { args: Vec::new(), named: Vec::new(), destinations: Vec::new() };
    let mut copies: Vec<(usize, Value)> = Vec::new();
    for (at, index) in plan.params.iter().enumerate() {
        let param = &signature.params[*index];
        let meta = match (param.base, shapes.get(*index).cloned().flatten()) {
            (BaseType::Number(dtype), Some(shape)) => array_of(param, dtype, shape),
            (BaseType::Number(dtype), None) => Meta::scalar(dtype),
            (BaseType::Text | BaseType::Bytes, _) => Meta::Text { size_bytes: 0 },
        };
        if param.is_input() {
            let value = match scalars[*index].take() {
                Some((meta, bytes)) => Value::new(meta, Payload::Inline(bytes.into()))?,
                // SAFETY: promised by the caller.
                None => unsafe { array(grid, signature, param, &meta, given.pointer(at), &mut copies) }?,
            };
            match param.hidden {
                true => gathered.named.push((param.name.clone(), value.into())),
                false => gathered.args.push(value.into()),
            }
        }
        if param.is_output() {
            gathered.destinations.push(Destination::new(&param.name, given.pointer(at), meta));
        }
    }
    Ok(gathered)
}

impl Given<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Given::Slots(slots) => slots.len(),
            Given::Pointers(pointers) => pointers.len(),
        }
    }

    fn pointer(&self, at: usize) -> *mut c_void {
        match self {
            Given::Slots(slots) => slots[at].pointer(),
            Given::Pointers(pointers) => pointers[at],
        }
    }
}

fn missing(signature: &Signature, param: &Param) -> Failed {
    Failed::other(format!("{}: argument '{}' is NULL; give its address", signature.name, param.name))
}

/// An input that is no array: its description and bytes.
unsafe fn scalar(signature: &Signature, param: &Param, given: Given<'_>, at: usize) -> Outcome<(Meta, Vec<u8>)> {
    let BaseType::Number(dtype) = param.base else {
        let what = format!("{}: argument '{}'", signature.name, param.name);
        // SAFETY: promised by the caller.
        let text = unsafe { memory::text(given.pointer(at).cast(), &what) }?;
        return Ok((Meta::Text { size_bytes: text.len() as u64 }, text.as_bytes().to_vec()));
    };
    let bytes = match given {
        Given::Slots(slots) if !param.is_output() => slots[at].scalar(dtype),
        // SAFETY: promised by the caller.
        _ => unsafe { memory::read(given.pointer(at), dtype.size_bytes()) }
            .ok_or_else(|| missing(signature, param))?
            .to_vec(),
    };
    Ok((Meta::scalar(dtype), bytes))
}

/// How the program has an array: by rows, unless the function wants it by columns and nobody turns it.
fn array_of(param: &Param, dtype: Dtype, shape: Vec<u64>) -> Meta {
    let order = if param.order == ArrayOrder::F { Order::F } else { Order::C };
    Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order, shape }
}

/// A copy of an array that is an input; the same memory is copied once a call.
unsafe fn array(
    grid: &Grid,
    signature: &Signature,
    param: &Param,
    meta: &Meta,
    pointer: *const c_void,
    copies: &mut Vec<(usize, Value)>,
) -> Outcome<Value> {
    let known = copies.iter().find(|(address, value)| *address == pointer.addr() && value.meta() == meta);
    if let Some((_, value)) = known {
        return Ok(value.clone());
    }
    let size_bytes = meta.size_bytes();
    grid.admit_argument(&signature.name, &param.name, size_bytes)?;
    // SAFETY: promised by the caller.
    let bytes = unsafe { memory::read(pointer, size_bytes) }.ok_or_else(|| missing(signature, param))?;
    let payload = if size_bytes <= EAGER_BYTES_MAX {
        Payload::copied(bytes)
    } else {
        let mut segment = grid.allocate(size_bytes)?;
        segment.bytes_mut().copy_from_slice(bytes);
        Payload::segment(segment.freeze())
    };
    let value = Value::new(meta.clone(), payload)?;
    copies.push((pointer.addr(), value.clone()));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_core::idl::parse;

    #[test]
    fn arrays_of_routines_are_by_rows_and_those_of_calls_as_the_function_has_them() {
        let text = "SUBROUTINE a(IN int n, IN double x[n][n]) LANGUAGE = \"FORTRAN\"\n\
                    Define b(IN int n, IN double x[n][n]) Calls \"FORTRAN\" b(n, x);\n\
                    Define c(IN int n, IN double x[n][n]) Calls c(n, x);";
        let orders: Vec<Order> = parse(text, "m.idl")
            .unwrap()
            .iter()
            .map(|definition| match array_of(&definition.signature.params[1], Dtype::Float64, vec![2, 2]) {
                Meta::Array { order, .. } => order,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(orders, [Order::C, Order::F, Order::C]);
    }
}
