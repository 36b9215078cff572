//! Function signatures: types, size and complexity expressions, and the parser of the interface description language.

pub mod expr;
pub mod signature;

pub use signature::{ArrayOrder, BaseType, Body, CallArgument, Definition, Language, Mode, Param, Signature};
