//! Handles of functions and of objects, and how C passes the arguments of calls through them.
//!
//! The program's memory contains a handle's number, and the table here maps it to the function or object. `calls.c`
//! reads a `va_list` into [`Slot`]s by the handle's [`ReadingPlan`]; both use the numbers of [`ReadKind`] from `calls.h`.
//!
//! **Invariant:** a number is used once in a process's life, so that a handle that has ended, or that belongs to an
//! earlier session, is invalid.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gridloom::Function;
use gridloom_base::limits::PARAMETERS_MAX;
use gridloom_base::{Dtype, Meta, Priority};
use gridloom_idl::{BaseType, CArgument, Param, Signature};
use rustc_hash::FxHashMap;

use super::code::{Failed, GRPC_INVALID_FUNCTION_HANDLE, GRPC_INVALID_OBJECT_HANDLE_NP, GRPC_RPC_REFUSED, Outcome};
use super::limits::Limits;
use super::memory;

/// A handle's memory: the mark of its kind, which differs from zeros and filled memory, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CHandle<const KIND: u64> {
    mark: u64,
    number: u64,
}

const FUNCTION: u64 = 0x4772_6964_4c6f_6f6d;
pub(crate) const OBJECT: u64 = 0x4772_6964_4f62_6a65;

/// `grpc_function_handle_t`.
pub type CFunctionHandle = CHandle<FUNCTION>;
/// `grpc_object_handle_t_np`.
pub type CObjectHandle = CHandle<OBJECT>;

/// The function of a handle.
pub(crate) struct BoundFunction {
    /// Bound to its server, if it has one.
    pub(crate) function: Function,
    pub(crate) plan: ReadingPlan,
    /// Name of the server that runs all its calls, if any.
    pub(crate) server: Option<String>,
    limits: Mutex<Limits>,
    priority: Mutex<Option<Priority>>,
}

impl BoundFunction {
    /// `server` runs all its calls, if one is named. `limits` are the time limits of a call.
    pub(crate) fn new(function: Function, server: Option<String>, limits: Limits) -> Outcome<BoundFunction> {
        let plan = ReadingPlan::new(function.signature())?;
        Ok(BoundFunction { function, plan, server, limits: Mutex::new(limits), priority: Mutex::default() })
    }

    /// Returns the same with calls that request this number of ranks.
    pub(crate) fn on_ranks(self, ranks: u32) -> BoundFunction {
        BoundFunction { function: self.function.on_ranks(ranks), ..self }
    }

    /// Returns the time limits of a call.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the priority of its calls, if it has one.
    pub(crate) fn priority(&self) -> Option<Priority> {
        *self.priority.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the priority of its calls.
    pub(crate) fn set_priority(&self, priority: Priority) {
        *self.priority.lock().unwrap_or_else(PoisonError::into_inner) = Some(priority);
    }

    /// Sets the limit of a call's total time.
    pub(crate) fn set_limit(&self, limit: Option<Duration>) {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).whole = limit;
    }
}

/// The number of the next handle of either kind, so that a block can tell which handles of both kinds are older than it.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// All handles of a session of one kind, with their functions or objects.
pub(crate) struct Handles<T, const KIND: u64>(RwLock<FxHashMap<u64, Arc<T>>>);

impl<T, const KIND: u64> Default for Handles<T, KIND> {
    fn default() -> Handles<T, KIND> {
        Handles(RwLock::default())
    }
}

impl<T, const KIND: u64> Handles<T, KIND> {
    pub(crate) fn add(&self, held: T) -> CHandle<KIND> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(held));
        CHandle { mark: KIND, number }
    }

    /// Returns the function or object of a handle.
    pub(crate) fn find(&self, handle: &CHandle<KIND>) -> Outcome<Arc<T>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&handle.number).filter(|_| handle.mark == KIND).cloned();
        found.ok_or_else(|| handle.invalid())
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    pub(crate) fn take(&self, handle: &CHandle<KIND>) -> Outcome<Arc<T>> {
        self.find(handle)?;
        let taken = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.number);
        taken.ok_or_else(|| handle.invalid())
    }
}

/// A session's handles of functions.
pub(crate) type Functions = Handles<BoundFunction, FUNCTION>;

/// Returns the number of the next handle.
pub(crate) fn next_number() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

impl<const KIND: u64> CHandle<KIND> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn invalid(&self) -> Failed {
        let (code, kind, makers) = match KIND {
            OBJECT => (GRPC_INVALID_OBJECT_HANDLE_NP, "an object", "grpc_object_handle_default_np or _init_np"),
            _ => (GRPC_INVALID_FUNCTION_HANDLE, "a function", "grpc_function_handle_default or _init"),
        };
        let why = match self.mark == KIND {
            true => "it has ended, or belongs to an earlier session; make a new one".to_string(),
            false => format!("nothing made it; call {makers} first"),
        };
        Failed::new(code, format!("this is not a handle of {kind}: {why}"))
    }
}

/// The arguments that the program passed, in the order of the reading plan.
#[derive(Clone, Copy)]
pub(crate) enum CallerArguments<'a> {
    /// Scalars by value: a variadic call.
    Slots(&'a [Slot]),
    /// Everything by pointer: an argument stack.
    Pointers(&'a [*mut c_void]),
}

impl CallerArguments<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            CallerArguments::Slots(slots) => slots.len(),
            CallerArguments::Pointers(pointers) => pointers.len(),
        }
    }

    pub(crate) fn pointer(&self, at: usize) -> *mut c_void {
        match self {
            CallerArguments::Slots(slots) => slots[at].pointer(),
            CallerArguments::Pointers(pointers) => pointers[at],
        }
    }

    /// Returns form and bytes of an input that is neither an array nor a number that is changed.
    ///
    /// # Safety
    /// The arguments match the signature (`memory`).
    pub(crate) unsafe fn scalar(&self, signature: &Signature, param: &Param, at: usize) -> Outcome<(Meta, Vec<u8>)> {
        let BaseType::Number(dtype) = param.base else {
            let what = format!("{}: argument '{}'", signature.name, param.name);
            let mut pointer: *const c_void = self.pointer(at);
            if param.is_output() {
                // SAFETY: memory of a pointer, promised by the caller.
                pointer = unsafe { memory::program_memory(pointer.cast_mut().cast::<*const c_void>(), &what)?.read() };
            }
            if pointer.is_null() && param.base == BaseType::String {
                return Ok((Meta::Bytes { size_bytes: 0 }, Vec::new()));
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
        let bytes = match self {
            CallerArguments::Slots(slots) => slots[at].scalar(dtype),
            // SAFETY: promised by the caller.
            CallerArguments::Pointers(_) => unsafe { memory::copied(self.pointer(at), dtype.size_bytes()) }
                .ok_or_else(|| missing(signature, param))?
                .to_vec(),
        };
        Ok((Meta::scalar(dtype), bytes))
    }
}

/// Returns the error for an argument that must not be missing.
pub(crate) fn missing(signature: &Signature, param: &Param) -> Failed {
    Failed::other(format!("{}: argument '{}' is NULL; give its address", signature.name, param.name))
}

/// How an argument is passed, after the promotions of C without a prototype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum ReadKind {
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
    pub(crate) fn pointer(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(self.first()))
    }

    /// Returns the bytes of a scalar of that type; C's promotion is undone.
    pub(crate) fn scalar(&self, dtype: Dtype) -> Vec<u8> {
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
pub(crate) struct ReadingPlan {
    /// One [`ReadKind`] for each argument: the parameters in order, then the callbacks.
    pub(crate) reads: Vec<u8>,
}

impl ReadingPlan {
    /// True if that argument is passed by its address.
    pub(crate) fn is_pointer(&self, at: usize) -> bool {
        self.reads[at] == ReadKind::Pointer as u8
    }

    /// Returns the plan for the parameters, followed by the callbacks.
    pub(crate) fn new(signature: &Signature) -> Outcome<ReadingPlan> {
        let mut reads = Vec::with_capacity(signature.params.len());
        for param in &signature.params {
            reads.push(read_of(signature, param)? as u8);
        }
        reads.extend(signature.callbacks.iter().map(|_| ReadKind::Pointer as u8));
        // `calls.c` has room for this many.
        match reads.len() {
            0..=PARAMETERS_MAX => Ok(ReadingPlan { reads }),
            more => {
                let text = format!("{}: {more} arguments, at most {PARAMETERS_MAX} can be passed", signature.name);
                Err(Failed::new(GRPC_RPC_REFUSED, text))
            }
        }
    }
}

fn read_of(signature: &Signature, param: &Param) -> Outcome<ReadKind> {
    let dtype = match param.c_argument_kind() {
        Ok(CArgument::Value(dtype)) => dtype,
        Ok(CArgument::Address) => return Ok(ReadKind::Pointer),
        Err(what) => return Err(Failed::new(GRPC_RPC_REFUSED, signature.cannot_pass(param, what))),
    };
    Ok(match dtype {
        Dtype::Bool | Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Uint8 | Dtype::Uint16 => ReadKind::Int,
        Dtype::Uint32 => ReadKind::Unsigned,
        Dtype::Int64 => ReadKind::Int64,
        Dtype::Uint64 => ReadKind::Uint64,
        Dtype::Float16 => unreachable!("a float16 is not passed by value"),
        Dtype::Float32 | Dtype::Float64 => ReadKind::Double,
        Dtype::LongDouble => ReadKind::LongDouble,
        Dtype::Complex64 => ReadKind::ComplexFloat,
        Dtype::Complex128 => ReadKind::ComplexDouble,
        Dtype::ComplexLongDouble => ReadKind::ComplexLongDouble,
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
            (ReadKind::Int, "INT"),
            (ReadKind::Unsigned, "UNSIGNED"),
            (ReadKind::Int64, "INT64"),
            (ReadKind::Uint64, "UINT64"),
            (ReadKind::Double, "DOUBLE"),
            (ReadKind::LongDouble, "LONG_DOUBLE"),
            (ReadKind::ComplexFloat, "COMPLEX_FLOAT"),
            (ReadKind::ComplexDouble, "COMPLEX_DOUBLE"),
            (ReadKind::ComplexLongDouble, "COMPLEX_LONG_DOUBLE"),
            (ReadKind::Pointer, "POINTER"),
        ];
        for (read, name) in all {
            let number = read as u8;
            assert!(header.contains(&format!("GRIDLOOM_READ_{name} = {number}")), "{name} is not {number}");
        }
        assert!(header.contains(&format!("GRIDLOOM_ARGUMENTS_MAX = {PARAMETERS_MAX}")));
    }
}
