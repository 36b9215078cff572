//! Function signatures: types, size and complexity expressions, and the parser of the interface description language.
//!
//! | file | content |
//! |---|---|
//! | [`expr`] | size and complexity expressions: the tree and its wire format |
//! | [`signature`] | the types: arguments and results of a function, and how a server runs it; [`mod@slice`] the part of an array that is sent; `values` the values that a parameter may have; [`uses`] the shared data that a function gets and puts by name |
//! | [`evaluation`], [`expr_text`] | the value of an expression, and its text |
//! | [`check`] | the invariants of a signature, its hash, the parameters that can be inferred from others |
//! | [`ranks`] | functions that run on several ranks of MPI, as C |
//! | `fortran` | calls of Fortran from compiled functions |
//! | `c_words` | which names C text declares and uses |
//! | [`c_text`] | inline bodies and other C of a file, as a source to compile |
//! | [`mod@parse`] | text of the language to definitions; `print` does the reverse |
//! | [`bind`] | checks of a call against a signature, before anything is sent, and where it runs |
//! | `prototype` | a call in a C program: which arguments are passed, in which order, as which types |
//! | [`builder`] | signatures built by a program (the Python interface) |
//! | [`program`] | programs as functions, which run as gangs of processes |
//!
//! **Invariant:** each file imports only those listed before it, and no two import one another.

#![forbid(unsafe_code)]

pub mod bind;
pub mod builder;
pub mod c_text;
mod c_words;
pub mod check;
pub mod evaluation;
pub mod expr;
pub mod expr_text;
mod fortran;
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

pub use bind::check_call::KnownArgument;
pub use bind::error::BindError;
pub use bind::slices::WholeArray;
pub use bind::{ActualArgument, BoundCall};
pub use builder::SignatureBuilder;
pub use c_text::{
    BEHIND_DECLARATIONS, Build, Class, HEADERS, OWN_SOURCES, OWN_STUB_VARIABLE, STUB_VARIABLE, YIELDED_TYPES,
};
pub use c_words::{defines_type, has_name, has_value};
pub use evaluation::{EvalError, EvalFailure};
pub use expr::{BinaryOp, Expr};
pub use method::{MethodName, class_of, method_of};
pub use parse::lexer::IdlError;
pub use parse::{IdlFile, parse, parse_expression, parse_file};
pub use prototype::CArgument;
pub use signature::{ArrayOrder, BaseType, Body, CallArgument, Callback, Definition, Language, Mode, Param, Signature};
pub use slice::Slice;
pub use uses::{NamePart, Retention, SharedUse, UseKind, UsedName};
pub use values::AllowedValues;
