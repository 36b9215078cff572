//! Converts a call's arguments from the program's memory to values, and records the destinations of its results.
//!
//! Scalars are read first, since extents depend on them, then extents, then arrays. Arrays are copied once: changes of
//! the program's memory after the call has returned have no effect.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use gridloom::data::{Argument, DataPlaces, Datum};
use gridloom::{Arg, CallbackHandler, Grid, Value};
use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{ByteOrder, Dtype, Meta};
use gridloom_idl::{BaseType, Mode, Param, Signature, WholeArray};
use gridloom_net::payload::Payload;

use super::callbacks::callee;
use super::code::{Failed, Outcome};
use super::handles::{CallerArguments, ReadingPlan, missing};
use super::lists::{ListTarget, file_value, list_argument, path, stream_argument};
use super::memory;
use super::remotes::Remotes;

/// A call that is ready to be sent.
#[derive(Default)]
pub(crate) struct CallInputs {
    /// Inputs in the order of their parameters, except sizes that Python programs leave out.
    pub(crate) args: Vec<Arg>,
    /// These sizes, by name.
    pub(crate) named: Vec<(String, Arg)>,
    /// Destinations of the results, in order.
    pub(crate) destinations: Vec<Destination>,
    /// True if some of the arguments or results are remote data.
    pub(crate) is_remote: bool,
    /// Indices of file parameters that the program does not want.
    pub(crate) unwanted_files: Vec<usize>,
}

/// A result's name and destination.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) target: Target,
}

#[derive(Clone)]
pub(crate) enum Target {
    /// The program does not want it.
    Unwanted,
    /// Memory at an address, in the form that `meta` describes.
    Memory { address: usize, meta: Meta },
    /// Part of an array at an address; the array's other elements are not changed.
    Part { address: usize, meta: Meta, whole: WholeArray },
    /// New memory of `malloc` with a zero byte after the text; the memory's address is stored at `address`.
    Text { address: usize },
    /// The same for an array, row by row.
    Fresh { address: usize },
    /// A file of that name.
    File(PathBuf),
    /// An array of strings or of files.
    List(ListTarget),
    /// None: it stays where it is made and becomes that datum. `Meta` is the form that the program would have in memory.
    Remote(Arc<Datum>, Meta),
}

impl Target {
    /// Returns the destination for a pointer of the program: memory for a value of known size, or else memory for a pointer.
    fn new(param: &Param, pointer: *mut c_void, meta: Option<Meta>, whole: Option<WholeArray>) -> Target {
        match (pointer.expose_provenance(), meta, whole) {
            (0, _, _) => Target::Unwanted,
            (address, Some(meta), Some(whole)) => Target::Part { address, meta, whole },
            (address, Some(meta), None) => Target::Memory { address, meta },
            (address, None, _) if param.mode == Mode::VarOut => Target::Fresh { address },
            (address, None, _) => Target::Text { address },
        }
    }
}

impl Destination {
    fn new(name: &str, target: Target) -> Destination {
        Destination { name: name.to_string(), target }
    }

    /// True if the program wants it in its memory.
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self.target, Target::Unwanted | Target::Remote(..))
    }

    /// Returns the first address and the size of the memory that it is written to.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        match &self.target {
            Target::Memory { address, meta } => Some((*address, usize::try_from(meta.size_bytes()).ok()?)),
            Target::Part { address, whole, .. } => Some((*address, usize::try_from(whole.size_bytes).ok()?)),
            _ => None,
        }
    }

    /// Returns the datum that it becomes.
    pub(crate) fn remote(&self) -> Option<&Datum> {
        self.remote_as().map(|(remote, _)| remote)
    }

    /// Returns the same, and the form in which the program expects it in memory.
    pub(crate) fn remote_as(&self) -> Option<(&Datum, &Meta)> {
        match &self.target {
            Target::Remote(remote, meta) => Some((remote, meta)),
            _ => None,
        }
    }
}

/// The arguments that were passed to a call.
pub(crate) struct CallSurvey<'a> {
    pub(crate) items: Vec<Item<'a>>,
    /// The functions that it may call back.
    pub(crate) callee: Option<CallbackHandler>,
}

/// An argument as described by the signature; arrays are still in the program's memory.
pub(crate) struct Item<'a> {
    pub(crate) param: &'a Param,
    /// The address that was passed; null for a scalar that was passed by value.
    pub(crate) pointer: *mut c_void,
    /// Its form in the program's memory; for a text, how it is passed.
    pub(crate) meta: Meta,
    /// The whole array, if only a part of it is sent.
    pub(crate) whole: Option<WholeArray>,
    /// The datum that was passed in place of memory.
    pub(crate) remote: Option<Arc<Datum>>,
    /// The bytes of a scalar that is only an input, and of a string.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Item<'_> {
    /// True if it is an input that is read from memory: an array, or a scalar that is changed.
    pub(crate) fn is_read(&self) -> bool {
        self.param.is_input() && self.bytes.is_none() && self.is_number() && self.remote.is_none()
    }

    /// True if it is a result that the program wants.
    pub(crate) fn is_written(&self) -> bool {
        self.param.is_output() && !self.pointer.is_null() && self.is_number() && self.remote.is_none()
    }

    /// True if it is an array of which a part is changed: the rest of it is kept.
    pub(crate) fn is_part(&self) -> bool {
        self.is_written() && self.whole.is_some()
    }

    /// True if it is a number or an array of numbers whose address and size are known before the call.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.param.base, BaseType::Number(_)) && self.param.mode != Mode::VarOut
    }

    /// Returns the datum that was passed for it, if any.
    pub(crate) fn as_use(&self) -> Option<Argument<'_>> {
        let (is_input, is_output) = (self.param.is_input(), self.param.is_output());
        self.remote.as_ref().map(|datum| Argument { datum, argument: &self.param.name, is_input, is_output })
    }

    /// Returns its first address and its size in bytes.
    pub(crate) fn range(&self) -> (usize, usize) {
        let size_bytes = self.whole.as_ref().map_or_else(|| self.meta.size_bytes(), |whole| whole.size_bytes);
        (self.pointer.expose_provenance(), usize::try_from(size_bytes).unwrap_or(usize::MAX))
    }
}

/// Reads the arguments of a call, except arrays. `is_here` returns whether the memory at an address has the value that
/// the program expects there: if a result is elsewhere, the memory has none.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(crate) unsafe fn survey<'a>(
    remotes: &Remotes,
    signature: &'a Signature,
    plan: &ReadingPlan,
    given: CallerArguments<'_>,
    is_here: impl Fn(usize) -> bool,
) -> Outcome<CallSurvey<'a>> {
    let remote = |at: usize| match plan.is_pointer(at) || matches!(given, CallerArguments::Pointers(_)) {
        true => remotes.find(given.pointer(at)),
        false => None,
    };
    let mut scalars = vec![None; signature.params.len()];
    for (at, param) in signature.params.iter().enumerate() {
        let is_memory = param.is_array || param.is_output() && matches!(param.base, BaseType::Number(_));
        if param.is_input() && !is_memory && !matches!(param.base, BaseType::File | BaseType::Stream) {
            if let Some(remote) = remote(at) {
                return Err(not_remote(signature, param, &remote));
            }
            // SAFETY: promised by the caller.
            scalars[at] = Some(unsafe { given.scalar(signature, param, at) }?);
        }
    }
    let shapes = match signature.params.iter().any(|param| param.is_array) {
        true => signature.shapes(scalars.clone()).map_err(gridloom::Error::from)?,
        false => Vec::new(),
    };
    // All sizes again, for arrays of which a part is sent, and for those of callbacks.
    let has_more = !signature.callbacks.is_empty() || signature.params.iter().any(|param| param.slices.is_some());
    let sizes = if has_more { scalars.clone() } else { Vec::new() };
    let callee = match signature.callbacks.is_empty() {
        true => None,
        // SAFETY: promised by the caller.
        false => Some(unsafe { callee(signature, &sizes, |at| given.pointer(signature.params.len() + at)) }?),
    };
    let mut item = |(at, param): (usize, &'a Param)| {
        let by_value = scalars[at].take();
        let meta = match (&by_value, param.base, shapes.get(at).cloned().flatten()) {
            (Some((meta, _)), ..) => meta.clone(),
            (None, BaseType::Number(dtype), Some(shape)) => array_of(param, dtype, shape),
            (None, BaseType::Number(dtype), None) => Meta::scalar(dtype),
            // An array of pointers.
            (None, _, Some(shape)) => Meta::array(Dtype::Uint64, &shape),
            (None, _, _) => Meta::Text { size_bytes: 0 },
        };
        let is_passed = by_value.is_some() && !param.is_output();
        let pointer = if is_passed { std::ptr::null_mut() } else { given.pointer(at) };
        let whole = match param.slices {
            Some(_) => signature.whole(at, sizes.clone()).map_err(gridloom::Error::from)?,
            None => None,
        };
        let remote = if is_passed { None } else { remote(at) };
        if remote.is_none() && !is_passed {
            // SAFETY: promised by the caller.
            unsafe { check_memory(remotes, signature, param, pointer, &meta, &is_here) }?;
        }
        if let Some(remote) = remote.as_ref().filter(|_| !can_be_remote(param)) {
            return Err(not_remote(signature, param, remote));
        }
        Ok(Item { param, pointer, meta, whole, remote, bytes: by_value.map(|(_, bytes)| bytes) })
    };
    // The argument passed for scratch memory is ignored.
    let passed = signature.params.iter().enumerate().filter(|(_, param)| param.mode != Mode::Work);
    let items: Outcome<Vec<Item<'_>>> = passed.map(&mut item).collect();
    Ok(CallSurvey { items: items?, callee })
}

/// Refuses handles of data that no longer exist or are invalid: only memory may be passed in such a place.
///
/// # Safety
/// The arguments match the signature (`memory`).
unsafe fn check_memory(
    remotes: &Remotes,
    signature: &Signature,
    param: &Param,
    pointer: *mut c_void,
    meta: &Meta,
    is_here: impl Fn(usize) -> bool,
) -> Outcome<()> {
    let size_bytes = if can_be_remote(param) { meta.size_bytes() } else { 0 };
    let is_read = || param.is_input() && is_here(pointer.addr());
    // SAFETY: promised by the caller.
    unsafe { remotes.check(pointer, size_bytes, is_read) }.map_err(|failed| {
        let text = format!("{}: argument '{}': {}", signature.name, param.name, failed.text);
        Failed::new(failed.code, text)
    })
}

/// Reads all arguments of a call. `known` returns the replacement for memory that need not be read.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(crate) unsafe fn gather(
    places: &DataPlaces<'_>,
    signature: &Signature,
    items: Vec<Item<'_>>,
    mut known: impl FnMut(&Item<'_>) -> Outcome<Option<Arg>>,
) -> Outcome<CallInputs> {
    let mut gathered = CallInputs::default();
    let mut copies: Vec<(usize, Value)> = Vec::new();
    for mut item in items {
        // SAFETY: promised by the caller, each time.
        match item.param.base {
            _ if item.param.is_list() => {
                unsafe { gather_list(places.grid, signature, &item, &mut gathered) }?;
                continue;
            }
            BaseType::File => {
                unsafe { gather_file(places.grid, signature, &item, &mut gathered) }?;
                continue;
            }
            BaseType::Stream => {
                gathered.args.push(unsafe { stream_argument(signature, item.param, item.pointer) }?.into());
                continue;
            }
            _ => {}
        }
        if item.param.is_input() {
            let arg = match (item.bytes.take(), &item.remote) {
                (Some(bytes), _) => Value::new(item.meta.clone(), Payload::Inline(bytes.into()))?.into(),
                (None, Some(remote)) => remote.argument(places, &signature.name, &item.param.name, &item.meta)?,
                (None, None) => match known(&item)? {
                    Some(arg) => arg,
                    // SAFETY: promised by the caller.
                    None => unsafe { copied(places.grid, signature, &item, &mut copies) }?.into(),
                },
            };
            gathered.is_remote |= matches!(arg, Arg::Handle(_));
            match item.param.hidden {
                true => gathered.named.push((item.param.name.clone(), arg)),
                false => gathered.args.push(arg),
            }
        }
        if item.param.is_output() {
            gathered.is_remote |= item.remote.is_some();
            let is_number = item.is_number();
            let target = match item.remote {
                Some(remote) => Target::Remote(remote, item.meta),
                None => Target::new(item.param, item.pointer, is_number.then_some(item.meta), item.whole),
            };
            gathered.destinations.push(Destination::new(&item.param.name, target));
        }
    }
    Ok(gathered)
}

unsafe fn gather_file(grid: &Grid, signature: &Signature, item: &Item<'_>, gathered: &mut CallInputs) -> Outcome<()> {
    // SAFETY: promised by the caller.
    let path = unsafe { path(item.pointer) };
    if item.param.is_input() {
        gathered.args.push(file_value(grid, signature, item.param, path.as_deref())?.into());
    }
    if item.param.is_output() {
        if path.is_none() {
            gathered.unwanted_files.extend(signature.params.iter().position(|param| param.name == item.param.name));
        }
        let target = path.filter(|path| !path.as_os_str().is_empty()).map_or(Target::Unwanted, Target::File);
        gathered.destinations.push(Destination::new(&item.param.name, target));
    }
    Ok(())
}

unsafe fn gather_list(grid: &Grid, signature: &Signature, item: &Item<'_>, gathered: &mut CallInputs) -> Outcome<()> {
    let (_, size_bytes) = item.range();
    let count = size_bytes / size_of::<*mut c_void>();
    if item.param.is_input() {
        // SAFETY: promised by the caller.
        let value = unsafe { list_argument(grid, signature, item.param, item.pointer, count) }?;
        gathered.args.push(value.into());
    }
    if item.param.is_output() {
        // SAFETY: promised by the caller.
        let target = unsafe { ListTarget::new(item.param, item.pointer, count) }?;
        let target = target.map_or(Target::Unwanted, Target::List);
        gathered.destinations.push(Destination::new(&item.param.name, target));
    }
    Ok(())
}

fn not_remote(signature: &Signature, param: &Param, remote: &Datum) -> Failed {
    let what = match (param.base, param.slices.is_some()) {
        (BaseType::Number(_), true) => "an array that is sent in part",
        (BaseType::Number(_), false) if param.mode == Mode::VarOut => "an array whose size the function sets",
        (BaseType::Number(_), false) => "an input scalar",
        _ => "a text or a file",
    };
    Failed::other(format!("{}: argument '{}' is {what}, and cannot be {remote}", signature.name, param.name))
}

/// True if a remote datum can be passed for it: for parameters that are passed by pointer and have a known size.
fn can_be_remote(param: &Param) -> bool {
    let is_number = matches!(param.base, BaseType::Number(_)) && param.mode != Mode::VarOut;
    is_number && param.slices.is_none() && (param.is_array || param.is_output())
}

/// Returns the program's form of an array: by rows, unless the function takes it by columns unchanged.
fn array_of(param: &Param, dtype: Dtype, shape: Vec<u64>) -> Meta {
    Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order: param.memory_order(), shape }
}

/// Copies an input in the program's memory; the same memory is copied once per call.
unsafe fn copied(
    grid: &Grid,
    signature: &Signature,
    item: &Item<'_>,
    copies: &mut Vec<(usize, Value)>,
) -> Outcome<Value> {
    let (address, _) = item.range();
    let is_known = |(other, value): &&(usize, Value)| *other == address && *value.meta() == item.meta;
    if let Some((_, value)) = copies.iter().find(is_known).filter(|_| item.whole.is_none()) {
        return Ok(value.clone());
    }
    // SAFETY: promised by the caller.
    let value = unsafe { copy_of(grid, signature, item) }?;
    if item.whole.is_none() {
        copies.push((address, value.clone()));
    }
    Ok(value)
}

/// Copies an input in the program's memory.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(crate) unsafe fn copy_of(grid: &Grid, signature: &Signature, item: &Item<'_>) -> Outcome<Value> {
    let size_bytes = item.meta.size_bytes();
    grid.admit_argument(&signature.name, &item.param.name, size_bytes)?;
    let absent = || missing(signature, item.param);
    let payload = if size_bytes > EAGER_BYTES_MAX {
        let mut segment = grid.allocate(size_bytes)?;
        // SAFETY: promised by the caller.
        unsafe { copy_into(item, segment.bytes_mut()) }.ok_or_else(absent)?;
        Payload::segment(segment.freeze())
    } else if item.whole.is_some() {
        let mut part = vec![0; size_bytes as usize];
        // SAFETY: promised by the caller.
        unsafe { copy_into(item, &mut part) }.ok_or_else(absent)?;
        Payload::Inline(part.into())
    } else {
        // SAFETY: promised by the caller.
        Payload::Inline(unsafe { memory::copied(item.pointer, size_bytes) }.ok_or_else(absent)?)
    };
    Ok(Value::new(item.meta.clone(), payload)?)
}

/// Copies the part of an input that is sent; returns `None` if it is NULL.
unsafe fn copy_into(item: &Item<'_>, part: &mut [u8]) -> Option<()> {
    let Some(whole) = &item.whole else {
        // SAFETY: promised by the caller.
        return unsafe { memory::copy_to(item.pointer, part) };
    };
    if part.is_empty() {
        return Some(());
    }
    let mut copied = Some(());
    whole.runs(|there, here, length| {
        // SAFETY: memory for the whole array, promised by the caller.
        let from = item.pointer.wrapping_byte_add(there);
        let piece = &mut part[here..here + length];
        copied = copied.filter(|()| !item.pointer.is_null()).and_then(|()| unsafe { memory::copy_to(from, piece) });
    });
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::Order;
    use gridloom_idl::parse;

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
