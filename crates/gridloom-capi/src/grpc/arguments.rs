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
use super::library::Library;
use super::memory;
use super::remote::Remote;
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
#[derive(Default)]
pub(super) struct Gathered {
    /// Inputs in the order of their parameters, but for sizes that Python programs leave out.
    pub(super) args: Vec<Arg>,
    /// Those.
    pub(super) named: Vec<(String, Arg)>,
    /// Where the results go, in their order.
    pub(super) destinations: Vec<Destination>,
    /// Some of them are remote data.
    pub(super) is_remote: bool,
}

/// Reads all arguments of a call.
///
/// # Safety
/// What was passed is as the signature says (`memory`).
pub(super) unsafe fn gather(
    library: &Library,
    signature: &Signature,
    plan: &ReadingPlan,
    given: Given<'_>,
) -> Outcome<Gathered> {
    let remote = |at: usize| match plan.is_pointer(at) || matches!(given, Given::Pointers(_)) {
        true => library.remotes.find(given.pointer(at)),
        false => None,
    };
    let mut scalars = vec![None; signature.params.len()];
    for (at, index) in plan.params.iter().enumerate() {
        let param = &signature.params[*index];
        if param.is_input() && !param.is_array {
            if let Some(remote) = remote(at) {
                match (param.base, param.is_output()) {
                    (BaseType::Number(_), true) => continue,
                    _ => return Err(by_value(signature, param, &remote)),
                }
            }
            // SAFETY: promised by the caller.
            scalars[*index] = Some(unsafe { scalar(signature, param, given, at) }?);
        }
    }
    let shapes = match signature.params.iter().any(|param| param.is_array) {
        true => signature.shapes(scalars.clone()).map_err(gridloom::Error::from)?,
        false => Vec::new(),
    };
    let mut gathered = Gathered::default();
    let mut copies: Vec<(usize, Value)> = Vec::new();
    for (at, index) in plan.params.iter().enumerate() {
        let param = &signature.params[*index];
        let meta = match (param.base, shapes.get(*index).cloned().flatten()) {
            (BaseType::Number(dtype), Some(shape)) => array_of(param, dtype, shape),
            (BaseType::Number(dtype), None) => Meta::scalar(dtype),
            (BaseType::Text | BaseType::Bytes, _) => Meta::Text { size_bytes: 0 },
        };
        let remote = remote(at);
        gathered.is_remote |= remote.is_some();
        if param.is_input() {
            let arg: Arg = match (scalars[*index].take(), &remote) {
                (Some((meta, bytes)), _) => Value::new(meta, Payload::Inline(bytes.into()))?.into(),
                // SAFETY: as above.
                (None, Some(remote)) => {
                    unsafe { remote.argument(&library.remotes, &signature.name, &param.name, &meta) }?
                }
                // SAFETY: promised by the caller.
                (None, None) => {
                    unsafe { array(&library.grid, signature, param, &meta, given.pointer(at), &mut copies) }?.into()
                }
            };
            match param.hidden {
                true => gathered.named.push((param.name.clone(), arg)),
                false => gathered.args.push(arg),
            }
        }
        if param.is_output() {
            gathered.destinations.push(match remote {
                Some(remote) => Destination::stays(&param.name, remote, meta),
                None => Destination::new(&param.name, given.pointer(at), meta),
            });
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

fn by_value(signature: &Signature, param: &Param, remote: &Remote) -> Failed {
    let what = if matches!(param.base, BaseType::Number(_)) { "an input scalar" } else { "a text" };
    Failed::other(format!("{}: argument '{}' is {what}, and cannot be {remote}", signature.name, param.name))
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
        _ => unsafe { memory::copied(given.pointer(at), dtype.size_bytes()) }
            .ok_or_else(|| missing(signature, param))?
            .to_vec(),
    };
    Ok((Meta::scalar(dtype), bytes))
}

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
    let absent = || missing(signature, param);
    let payload = if size_bytes <= EAGER_BYTES_MAX {
        // SAFETY: promised by the caller.
        Payload::Inline(unsafe { memory::copied(pointer, size_bytes) }.ok_or_else(absent)?)
    } else {
        let mut segment = grid.allocate(size_bytes)?;
        // SAFETY: promised by the caller.
        unsafe { memory::copy_to(pointer, segment.bytes_mut()) }.ok_or_else(absent)?;
        Payload::segment(segment.freeze())
    };
    let value = Value::new(meta.clone(), payload)?;
    copies.push((pointer.addr(), value.clone()));
    Ok(value)
}
