//! Function signatures: types, size and complexity expressions, and the parser of the interface description language.
//!
//! | file | what it holds |
//! |---|---|
//! | [`signature`] | the types: what a function takes and gives, and how a server runs it |
//! | [`expr`] | size and complexity expressions and their value; text and wire form beside it |
//! | [`parser`] | text of the language to definitions: `lexer` and `macros` below it, a file for each part of the grammar beside it (`parse_file`, `parse_param`, `parse_call`, `parse_expr`, `parse_class`, `parse_routine`, `parse_problem`); `print` goes back |
//! | [`check`] | the invariants of a signature, its hash, which parameters follow from others |
//! | `prototype` | a call as programs in C make it: which arguments are passed, in which order, as what |
//! | [`c_text`] | inline bodies and other C of a file, as a source to compile |
//! | [`slices`] | arrays of which a part is sent |
//! | [`bind`] | a call against a signature, before anything is sent |
//! | [`fit`] | a call against a signature, where it runs; `extents` is what both checks share |
//! | [`builder`] | signatures made by a program (the Python interface) |

pub mod bind;
pub mod bind_error;
#[cfg(test)]
mod bind_tests;
pub mod builder;
pub mod c_text;
pub mod check;
pub mod expr;
pub mod expr_text;
mod extents;
#[cfg(test)]
mod file_tests;
pub mod fit;
pub(crate) mod lexer;
mod macros;
pub mod method;
pub mod near;
mod parse_call;
mod parse_class;
mod parse_expr;
mod parse_file;
mod parse_param;
mod parse_problem;
mod parse_routine;
pub mod parser;
#[cfg(test)]
mod parser_tests;
pub mod postfix;
mod print;
mod prototype;
pub mod scalar;
pub mod signature;
pub mod slices;

/// The module of the built-in functions that read and write files of a server.
pub const FILES_MODULE: &str = "files";

pub use bind::{Actual, Bound};
pub use bind_error::BindError;
pub use builder::SignatureBuilder;
pub use c_text::{Build, Class};
pub use expr::{EvalError, EvalFailure, Expr};
pub use fit::Given;
pub use lexer::IdlError;
pub use method::class_of;
pub use near::near_names;
pub use parser::{IdlFile, parse, parse_expression, parse_file};
pub use prototype::Passed;
pub use signature::{ArrayOrder, BaseType, Body, CallArgument, Callback, Definition, Language, Mode, Param, Signature};
pub use slices::{Slice, Slices, Whole};
