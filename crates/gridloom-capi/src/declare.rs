//! The declarations of a program before its `main`: processes and message types, with one constructor call each.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The C function of a process.
pub type ProcessFunction = unsafe extern "C-unwind" fn(c_int, *mut *mut c_char) -> c_int;

/// `gridloom_declaration`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CDeclaration {
    /// The message type.
    pub kind: *const c_char,
    /// Its struct, or a constant.
    pub name: *const c_char,
    /// Declarations in C.
    pub text: *const c_char,
    /// File of the declaration.
    pub file: *const c_char,
    /// Line of the declaration.
    pub line: c_int,
    /// Size of the struct.
    pub size: usize,
    /// Alignment of the struct.
    pub align: usize,
    /// Value of the constant.
    pub value: i64,
}

/// A copy of a declaration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Declared {
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) value: i64,
}

/// Everything that a program declares.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) processes: BTreeMap<String, ProcessFunction>,
    /// Names of processes that are declared twice.
    pub(crate) duplicates: Vec<String>,
    pub(crate) declarations: Vec<Declared>,
}

static PROGRAM: Mutex<Program> =
    Mutex::new(Program { processes: BTreeMap::new(), duplicates: Vec::new(), declarations: Vec::new() });

pub(crate) fn program() -> MutexGuard<'static, Program> {
    PROGRAM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_declare_process(function: *const c_char, body: ProcessFunction) {
    // SAFETY: a C string, as the header requires.
    let Some(name) = (unsafe { text(function) }) else { return };
    if program().processes.insert(name.clone(), body).is_some() {
        program().duplicates.push(name);
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_declare(declaration: *const CDeclaration) {
    // SAFETY: the strings of the declaration are C strings or null, as the header requires.
    let declared = unsafe {
        let CDeclaration { kind, name, text: declared, file, line, size, align, value } = *declaration;
        let file = text(file).unwrap_or_default();
        let line = usize::try_from(line).unwrap_or_default();
        Declared { kind: text(kind), name: text(name), text: text(declared), file, line, size, align, value }
    };
    program().declarations.push(declared);
}

/// Copies a C string; returns `None` for null.
///
/// # Safety
/// It is null, or it ends with a NUL.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
