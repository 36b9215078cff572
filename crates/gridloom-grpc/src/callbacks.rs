//! Callbacks: functions of the program that a remote function calls while it runs. A thread of the session runs them
//! one at a time; in simulation the waiting thread runs them.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use gridloom::{CallbackHandler, Value};
use gridloom_base::{Meta, TaskId};
use gridloom_idl::{Mode, Signature};
use gridloom_libffi::middle::{Arg, Cif, CodePtr, Ret, Type};
use gridloom_net::payload::Payload;
use gridloom_net::worker::convert::{Aligned, to_native};

use super::code::{Failed, Outcome};
use super::memory;

thread_local! {
    /// The task for which this thread runs a callback.
    static ASKING: Cell<Option<TaskId>> = const { Cell::new(None) };
}

/// Returns the task for which this thread runs a callback, if any: its session cannot end meanwhile.
pub(crate) fn callback_task() -> Option<TaskId> {
    ASKING.get()
}

/// A function of the program.
struct Target {
    name: String,
    address: usize,
    /// Its arguments and results, which are arrays.
    params: Vec<Parameter>,
}

struct Parameter {
    mode: Mode,
    /// Form in memory: strings are passed as pointers to them.
    meta: Meta,
    is_strings: bool,
}

/// The memory with which a function of the program is called.
struct Arguments {
    rooms: Vec<Aligned>,
    /// The strings to which some of the pointers point.
    strings: Vec<CString>,
}

/// Returns the functions that a call may call back: `pointer` returns what the program passed for each callback.
///
/// # Safety
/// Until the call has ended, the pointers point to functions that match the signature.
pub(crate) unsafe fn callee(
    signature: &Signature,
    scalars: &[Option<(Meta, Vec<u8>)>],
    pointer: impl Fn(usize) -> *mut c_void,
) -> Outcome<CallbackHandler> {
    let mut targets = Vec::with_capacity(signature.callbacks.len());
    for (index, callback) in signature.callbacks.iter().enumerate() {
        let name = callback.name.clone();
        let address = pointer(index).expose_provenance();
        if address == 0 {
            return Err(Failed::null(&format!("{}: callback '{name}'", signature.name)));
        }
        let metas = signature.callback_metas(index, scalars.to_vec()).map_err(gridloom::Error::from)?;
        let params = callback.params.iter().zip(metas);
        let params =
            params.map(|(param, meta)| Parameter { mode: param.mode, meta, is_strings: param.is_list() }).collect();
        targets.push(Target { name, address, params });
    }
    Ok(Arc::new(move |task, index, values| {
        let target = targets.get(index as usize).ok_or_else(|| format!("there is no callback number {index}"))?;
        let before = ASKING.replace(Some(task));
        // SAFETY: promised by the caller; the session keeps this no longer than the call.
        let answer = unsafe { target.run(&values) };
        ASKING.set(before);
        answer
    }))
}

impl Target {
    /// # Safety
    /// See [`callee`].
    unsafe fn run(&self, values: &[Value]) -> Result<Vec<Value>, String> {
        let mut arguments = self.arguments(values)?;
        let pointers: Vec<*mut u8> = arguments.rooms.iter_mut().map(|room| room.bytes_mut().as_mut_ptr()).collect();
        let cif = Cif::try_new(pointers.iter().map(|_| Type::pointer()), Type::void());
        let cif = cif.map_err(|error| format!("libffi: {error:?}"))?;
        let args: Vec<Arg<'_>> = pointers.iter().map(Arg::new).collect();
        let code = CodePtr::from_ptr(std::ptr::with_exposed_provenance(self.address));
        // SAFETY: a function with this number of pointer parameters, promised by the caller; each points to an array as described.
        unsafe { cif.call_return_into(code, &args, Ret::void()) };
        let given = self.params.iter().zip(&arguments.rooms).filter(|(param, _)| param.mode != Mode::In);
        let value = |(param, room): (&Parameter, &Aligned)| {
            if param.is_strings {
                // SAFETY: pointers to strings, or null, promised by the caller.
                let items: Vec<_> =
                    pointers_in(room).map(|pointer| unsafe { memory::string_or_null(pointer) }).collect();
                return Ok(Value::list(items.into_iter()));
            }
            Value::new(param.meta.clone(), Payload::copied(room.bytes())).map_err(|error| error.to_string())
        };
        given.map(value).collect()
    }

    /// Builds the arrays with which the function is called.
    fn arguments(&self, values: &[Value]) -> Result<Arguments, String> {
        let mut values = values.iter();
        let mut arguments = Arguments { rooms: Vec::with_capacity(self.params.len()), strings: Vec::new() };
        for param in &self.params {
            let mut room = Aligned::zeroed(param.meta.size_bytes() as usize);
            if param.mode != Mode::Out {
                let value = values.next().ok_or_else(|| format!("callback '{}' got too few values", self.name))?;
                let misfit = || format!("callback '{}' got {}, expected {}", self.name, value.meta(), param.meta);
                if param.is_strings {
                    arguments.add_strings(value, &mut room).ok_or_else(misfit)?;
                } else {
                    let bytes = value.payload().map_or(&[][..], Payload::bytes);
                    if !is_same(&param.meta, value.meta()) || bytes.len() != room.bytes().len() {
                        return Err(misfit());
                    }
                    to_native(value.meta(), bytes, None, room.bytes_mut())?;
                }
            }
            arguments.rooms.push(room);
        }
        Ok(arguments)
    }
}

impl Arguments {
    /// Fills memory with pointers to the strings of a list; returns `None` if it has room for more or fewer.
    fn add_strings(&mut self, value: &Value, room: &mut Aligned) -> Option<()> {
        let places = room.bytes_mut().chunks_exact_mut(size_of::<usize>());
        let items = value.items().filter(|items| items.len() == places.len())?;
        for (place, item) in places.zip(items) {
            let Some(item) = item else { continue };
            let string = CString::new(item).ok()?;
            place.copy_from_slice(&string.as_ptr().expose_provenance().to_ne_bytes());
            self.strings.push(string);
        }
        Some(())
    }
}

/// Returns the pointers in that memory.
fn pointers_in(room: &Aligned) -> impl Iterator<Item = *const c_void> {
    let (words, _) = room.bytes().as_chunks::<{ size_of::<usize>() }>();
    words.iter().map(|word| std::ptr::with_exposed_provenance(usize::from_ne_bytes(*word)))
}

/// True if both are the same except for the byte order.
fn is_same(expected: &Meta, got: &Meta) -> bool {
    match (expected, got) {
        (Meta::Array { dtype, shape, .. }, Meta::Array { dtype: other, shape: extents, .. }) => {
            dtype == other && shape == extents
        }
        _ => false,
    }
}
