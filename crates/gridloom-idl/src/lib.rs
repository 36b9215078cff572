//! Function signatures: types, size and complexity expressions, and the parser of the interface description language.
//!
//! | file | what it holds |
//! |---|---|
//! | [`signature`] | the types: what a function takes and gives, and how a server runs it; [`slice`] the part of an array that is sent; `values` those that a parameter may have; [`uses`] the shared data that a function gets and puts |
//! | [`expr`] | size and complexity expressions: the tree, its value, its text, its form on the wire |
//! | [`check`] | the invariants of a signature, its hash, which parameters follow from others |
//! | [`ranks`] | functions that run on several ranks of MPI, as C |
//! | [`c_text`] | inline bodies and other C of a file, as a source to compile |
//! | [`parse`] | text of the language to definitions; `print` goes back |
//! | [`bind`] | a call against a signature, before anything is sent, and where it runs |
//! | `prototype` | a call as programs in C make it: which arguments are passed, in which order, as what |
//! | [`builder`] | signatures made by a program (the Python interface) |
//! | [`program`] | programs as functions, which run as gangs of processes |
//!
//! **Invariant:** files import those above them in this table, and no two import one another.

#![forbid(unsafe_code)]

pub mod bind;
pub mod builder;
pub mod c_text;
pub mod check;
pub mod expr;
pub mod method;
pub mod names;
pub mod parse;
mod print;
pub mod program;
mod prototype;
pub mod ranks;
pub mod scalar;
pub mod signature;
pub mod slice;
mod type_words;
pub mod uses;
mod values;

/// The module of the built-in functions that read and write files of a server.
pub const FILES_MODULE: &str = "files";

pub use bind::error::BindError;
pub use bind::fit::KnownArgument;
pub use bind::slices::Whole;
pub use bind::{Actual, Bound};
pub use builder::SignatureBuilder;
pub use c_text::{Build, Class, HEADERS};
pub use expr::Expr;
pub use expr::eval::{EvalError, EvalFailure};
pub use method::{MethodName, class_of};
pub use parse::lexer::IdlError;
pub use parse::{IdlFile, parse, parse_expression, parse_file};
pub use prototype::Passed;
pub use signature::{ArrayOrder, BaseType, Body, CallArgument, Callback, Definition, Language, Mode, Param, Signature};
pub use slice::Slice;
pub use uses::{Does, Kept, NamePart, SharedUse, UsedName};
pub use values::Values;
