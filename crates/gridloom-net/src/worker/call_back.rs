//! Callbacks of native functions: function pointers that pass their arrays to the program and wait for its reply.
//!
//! A function cannot be notified that its callback failed. It continues with zeros, makes no further callback, and its
//! call fails when it returns.

use std::ffi::{CStr, c_void};
use std::sync::{Mutex, PoisonError};

use gridloom_base::{Meta, RaisedCause, TaskError, list};
use gridloom_core::call::CallbackAnswer;
use gridloom_idl::{Callback, Mode, Param};
use gridloom_libffi::low::ffi_cif;
use gridloom_libffi::middle::{Cif, Closure, Type};

use super::convert::to_native;
use super::list::duplicated;

/// The program for which a function runs.
pub trait CallbackTarget: Send {
    /// Calls one of its callbacks, with the values of the `IN` and `INOUT` parameters.
    ///
    /// # Errors
    /// If it cannot be called, or does not reply.
    fn call_back(&mut self, callback: u32, values: Vec<(Meta, Vec<u8>)>) -> CallbackAnswer;

    /// Calls one of its callbacks without waiting. The reply is dropped, so this call must not call anything back afterwards.
    fn notify(&mut self, callback: u32, values: Vec<(Meta, Vec<u8>)>);
}

/// State shared by the callbacks of one call.
pub(super) struct CallbackState<'a>(Mutex<State<'a>>);

struct State<'a> {
    program: &'a mut dyn CallbackTarget,
    failed: Option<String>,
}

/// One callback of a call, as the closure sees it.
pub(super) struct Context<'a, 'p> {
    line: &'a CallbackState<'p>,
    index: u32,
    callback: &'a Callback,
    metas: Vec<Meta>,
}

impl<'p> CallbackState<'p> {
    pub(super) fn new(program: &'p mut dyn CallbackTarget) -> CallbackState<'p> {
        CallbackState(Mutex::new(State { program, failed: None }))
    }

    /// Returns why a callback failed, if one did.
    pub(super) fn end(self) -> Result<(), TaskError> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner).failed {
            None => Ok(()),
            Some(message) => Err(TaskError::Raised {
                function: String::new(),
                server: String::new(),
                kind: "callback".into(),
                message,
                traceback: String::new(),
                cause: RaisedCause::Function,
            }),
        }
    }
}

impl<'a, 'p> Context<'a, 'p> {
    /// Creates the context of a callback; `metas` describes its parameters.
    pub(super) fn new(
        line: &'a CallbackState<'p>,
        index: usize,
        callback: &'a Callback,
        metas: Vec<Meta>,
    ) -> Context<'a, 'p> {
        Context { line, index: index as u32, callback, metas }
    }

    /// Returns the closure that the function calls.
    pub(super) fn closure(&self) -> Result<Closure<'_>, TaskError> {
        let pointers: Vec<Type> = self.metas.iter().map(|_| Type::pointer()).collect();
        let failed = |error| super::values::cannot_run(format!("libffi: {error:?}"));
        let cif = Cif::try_new(pointers, Type::void()).map_err(failed)?;
        Closure::try_new(cif, trampoline, self).map_err(failed)
    }

    /// Returns the parameters' modes, descriptions and pointers.
    fn places<'c>(&'c self, pointers: &'c [*mut u8]) -> impl Iterator<Item = (Mode, &'c Meta, *mut u8)> {
        let modes = self.callback.params.iter().map(|param| param.mode);
        modes.zip(&self.metas).zip(pointers).map(|((mode, meta), pointer)| (mode, meta, *pointer))
    }

    fn run(&self, pointers: &[*mut u8]) {
        let mut state = self.line.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_none()
            && let Err(why) = self.ask(&mut state, pointers)
        {
            state.failed = Some(format!("callback '{}' failed: {why}", self.callback.name));
        }
        if state.failed.is_some() {
            for (_, meta, place) in
                self.places(pointers).filter(|(mode, _, place)| *mode == Mode::Out && !place.is_null())
            {
                // SAFETY: the place has the size of the description, as the function's description states.
                unsafe { place.write_bytes(0, meta.size_bytes() as usize) };
            }
        }
    }

    fn ask(&self, state: &mut State<'_>, pointers: &[*mut u8]) -> Result<(), String> {
        let is_null = |(_, meta, place): &(Mode, &Meta, *mut u8)| place.is_null() && meta.size_bytes() > 0;
        if let Some(at) = self.places(pointers).position(|one| is_null(&one)) {
            return Err(format!("the function passes a null pointer for '{}'", self.callback.params[at].name));
        }
        let bytes = |meta: &Meta, place: *mut u8| match meta.size_bytes() as usize {
            0 => Vec::new(),
            // SAFETY: the place has as many bytes as the description states.
            size => unsafe { std::slice::from_raw_parts(place, size) }.to_vec(),
        };
        let are_strings = self.callback.params.iter().map(Param::is_list);
        let given = self.places(pointers).zip(are_strings.clone()).filter(|((mode, ..), _)| *mode != Mode::Out);
        let value = |((_, meta, place), is_string): ((Mode, &Meta, *mut u8), bool)| match is_string {
            // SAFETY: the place has as many strings as the description states.
            true => unsafe { strings_at(meta, place) },
            false => (meta.clone(), bytes(meta, place)),
        };
        let values: Vec<(Meta, Vec<u8>)> = given.map(value).collect();
        let answer = state.program.call_back(self.index, values)?;
        let wanted: Vec<(&Meta, *mut u8, bool)> = self
            .places(pointers)
            .zip(are_strings)
            .filter(|((mode, ..), _)| *mode != Mode::In)
            .map(|((_, meta, place), is_string)| (meta, place, is_string))
            .collect();
        if answer.len() != wanted.len() {
            return Err(format!("the callback returned {} values, expected {}", answer.len(), wanted.len()));
        }
        for ((meta, place, is_string), (got, bytes)) in wanted.into_iter().zip(answer) {
            if is_string {
                let items = list::unpack(&bytes).filter(|items| items.len() as u64 == meta.size_bytes() / 8);
                let items = items.ok_or_else(|| {
                    format!("the callback returned {got}, expected {} strings", meta.size_bytes() / 8)
                })?;
                for (at, item) in items.into_iter().enumerate() {
                    let string = item.map_or(std::ptr::null_mut(), duplicated);
                    // SAFETY: the place has room for this many pointers, as the function's description states.
                    unsafe { place.cast::<*mut c_void>().add(at).write(string) };
                }
                continue;
            }
            let fits = got.checked_size_bytes() == Some(bytes.len() as u64) && same_but_for_byte_order(meta, &got);
            if !fits {
                return Err(format!("the callback returned {got}, expected {meta}"));
            }
            let mut native = vec![0; bytes.len()];
            to_native(&got, &bytes, None, &mut native)?;
            // SAFETY: the place has the size of the description, as the function's description states.
            unsafe { std::ptr::copy_nonoverlapping(native.as_ptr(), place, native.len()) };
        }
        Ok(())
    }
}

/// Packs strings that a function passes into a list.
///
/// # Safety
/// `place` must contain as many pointers as `meta` describes; each is a zero-terminated string or null.
unsafe fn strings_at(meta: &Meta, place: *mut u8) -> (Meta, Vec<u8>) {
    let count = (meta.size_bytes() / 8) as usize;
    let item = |at: usize| {
        // SAFETY: promised by the caller.
        let string = unsafe { place.cast::<*const std::ffi::c_char>().add(at).read() };
        // SAFETY: likewise.
        (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
    };
    let packed = list::pack((0..count).map(item));
    (Meta::List { size_bytes: packed.len() as u64 }, packed)
}

fn same_but_for_byte_order(wanted: &Meta, got: &Meta) -> bool {
    match (wanted, got) {
        (Meta::Array { dtype, shape, .. }, Meta::Array { dtype: other, shape: extents, .. }) => {
            dtype == other && shape == extents
        }
        _ => false,
    }
}

/// The function that every callback's pointer refers to.
unsafe extern "C" fn trampoline(_: &ffi_cif, _: &mut c_void, args: *const *const c_void, context: &Context<'_, '_>) {
    let count = context.metas.len();
    // SAFETY: libffi passes as many pointers as the closure has arguments. Each points to an argument, which is a pointer.
    let pointers: Vec<*mut u8> = (0..count).map(|at| unsafe { *(*args.add(at)).cast::<*mut u8>() }).collect();
    context.run(&pointers);
}
