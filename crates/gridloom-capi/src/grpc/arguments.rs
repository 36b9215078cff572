//! A call's arguments, from the program's memory to values, and where its results go.
//!
//! Scalars first, since extents need them, then extents, then arrays, which are copied once: what the program does with its
//! memory after the call has returned changes nothing.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gridloom::{Arg, Callee, Grid, Value};
use gridloom_core::base::limits::EAGER_BYTES_MAX;
use gridloom_core::base::{ByteOrder, Dtype, Meta};
use gridloom_core::idl::{BaseType, Mode, Param, Signature, Whole};
use gridloom_net::payload::Payload;

use super::callbacks::callee;
use super::code::{Failed, Outcome};
use super::deliver::{Destination, Target};
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
    /// What it may call back.
    pub(super) callee: Option<Callee>,
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
        if param.is_input() && !param.is_array && param.base != BaseType::File {
            // SAFETY: promised by the caller.
            scalars[*index] = Some(unsafe { scalar(signature, param, given, at) }?);
        }
    }
    let shapes = match signature.params.iter().any(|param| param.is_array) {
        true => signature.shapes(scalars.clone()).map_err(gridloom::Error::from)?,
        false => Vec::new(),
    };
    // The sizes once more, for arrays of which a part is sent, and of callbacks.
    let has_more = !signature.callbacks.is_empty() || signature.params.iter().any(|param| param.slices.is_some());
    let known = if has_more { scalars.clone() } else { Vec::new() };
    // SAFETY: promised by the caller.
    let callee = unsafe { callee(signature, &known, |at| given.pointer(plan.params.len() + at)) }?;
    let mut gathered = Gathered { args: Vec::new(), named: Vec::new(), destinations: Vec::new(), callee };
    let mut copies: Vec<(usize, Value)> = Vec::new();
    for (at, index) in plan.params.iter().enumerate() {
        let param = &signature.params[*index];
        let pointer = given.pointer(at);
        if param.base == BaseType::File {
            // SAFETY: promised by the caller.
            let path = unsafe { path(pointer) };
            if param.is_input() {
                let none = || Value::text("");
                let read = |path: &Path| grid.file_argument(&signature.name, &param.name, path);
                gathered.args.push(path.as_deref().map_or_else(|| Ok(none()), read)?.into());
            }
            if param.is_output() {
                let target = path.map_or(Target::Unwanted, Target::File);
                gathered.destinations.push(Destination::new(&param.name, target));
            }
            continue;
        }
        let meta = match (param.base, shapes.get(*index).cloned().flatten()) {
            (BaseType::Number(dtype), Some(shape)) => Some(array_of(param, dtype, shape)),
            (BaseType::Number(dtype), None) if param.mode != Mode::VarOut => Some(Meta::scalar(dtype)),
            (BaseType::Number(_), None) => None,
            (BaseType::Text | BaseType::Bytes | BaseType::String | BaseType::File, _) => None,
        };
        let whole = match param.slices {
            Some(_) => signature.whole(*index, known.clone()).map_err(gridloom::Error::from)?,
            None => None,
        };
        if param.is_input() {
            let value = match scalars[*index].take() {
                Some((meta, bytes)) => Value::new(meta, Payload::Inline(bytes.into()))?,
                None => {
                    let meta = meta.as_ref().expect("what is no number was read above");
                    // SAFETY: promised by the caller.
                    unsafe { array(grid, signature, param, (meta, whole.as_ref()), pointer, &mut copies) }?
                }
            };
            match param.hidden {
                true => gathered.named.push((param.name.clone(), value.into())),
                false => gathered.args.push(value.into()),
            }
        }
        if param.is_output() {
            gathered.destinations.push(Destination::new(&param.name, Target::new(param, pointer, meta, whole)));
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
        let mut pointer: *const c_void = given.pointer(at);
        if param.is_output() {
            // SAFETY: the place of a pointer, promised by the caller.
            pointer = *unsafe { memory::place(pointer.cast_mut().cast::<*const c_void>(), &what) }?;
        }
        // SAFETY: promised by the caller.
        let bytes = unsafe { memory::string(pointer.cast(), &what) }?;
        let size_bytes = bytes.len() as u64;
        let meta = match std::str::from_utf8(bytes) {
            Err(_) if param.base == BaseType::String => Meta::Bytes { size_bytes },
            _ => Meta::Text { size_bytes },
        };
        return Ok((meta, bytes.to_vec()));
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

/// The path that a program gives for a file: null and the empty one stand for none.
unsafe fn path(pointer: *const c_void) -> Option<PathBuf> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: a string, promised by the caller.
    let path = unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes();
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

fn array_of(param: &Param, dtype: Dtype, shape: Vec<u64>) -> Meta {
    Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order: param.memory_order(), shape }
}

/// A copy of an array that is an input; the same memory is copied once a call.
unsafe fn array(
    grid: &Grid,
    signature: &Signature,
    param: &Param,
    (meta, whole): (&Meta, Option<&Whole>),
    pointer: *const c_void,
    copies: &mut Vec<(usize, Value)>,
) -> Outcome<Value> {
    let is_known = |(address, value): &&(usize, Value)| *address == pointer.addr() && value.meta() == meta;
    let known = copies.iter().find(is_known).filter(|_| whole.is_none());
    if let Some((_, value)) = known {
        return Ok(value.clone());
    }
    let size_bytes = meta.size_bytes();
    grid.admit_argument(&signature.name, &param.name, size_bytes)?;
    let there = whole.map_or(size_bytes, |whole| if size_bytes == 0 { 0 } else { whole.size_bytes });
    // SAFETY: promised by the caller.
    let bytes = unsafe { memory::read(pointer, there) }.ok_or_else(|| missing(signature, param))?;
    let copy = |part: &mut [u8]| match whole {
        Some(whole) => whole.gather(bytes, part),
        None => part.copy_from_slice(bytes),
    };
    let payload = if size_bytes > EAGER_BYTES_MAX {
        let mut segment = grid.allocate(size_bytes)?;
        copy(segment.bytes_mut());
        Payload::segment(segment.freeze())
    } else if whole.is_some() {
        let mut part = vec![0; size_bytes as usize];
        copy(&mut part);
        Payload::Inline(part.into())
    } else {
        Payload::copied(bytes)
    };
    let value = Value::new(meta.clone(), payload)?;
    if whole.is_none() {
        copies.push((pointer.addr(), value.clone()));
    }
    Ok(value)
}
