//! The parser of the interface description language: definitions and their options. `file` has the statements of files,
//! `routine` GridSolve's, `problem` NetSolve's; all read by the cursor over the tokens that `lexer` gives.
//!
//! ```text
//! file       = { Module name; | Library "…"; | FortranFormat "…"; | FortranStringConvention last; | CompileOptions "…";
//!              | Compiler "…"; | Linker "…"; | Globals { C } | #define … | definition | class | routine | problem }
//! definition = Define name ( [parameter {, parameter}] ) ["description"] { option } body
//! option     = Required "…" | CalcOrder expression | Language "C"|"C++"|"FORTRAN" | Shrink "yes"|"no"
//!              | (Gets | Puts | Replaces) ( "…" | parameter , expression )
//! class      = DefClass name ["description"] { option } { [DefState { C }] method { method } }
//! method     = DefMethod name ( [parameter {, parameter}] ) ["description"] { option } body
//! body       = { C } | Calls ["C"|"C++"|"FORTRAN"] [parameter =] symbol ( [argument {, argument}] ) ;
//! routine    = (SUBROUTINE | FUNCTION type) name ( [parameter {, parameter}] ) ["description"]
//!              { LANGUAGE = "C"|"FORTRAN" | MAJOR = "ROW"|"COLUMN" | LIBS = "…" | COMPLEXITY = "…" | SYMBOL = "…" } [;]
//! problem    = PROBLEM name C|FORTRAN ROUTINE name ( [parameter {, parameter}] ) ["description"]
//!              { LIBS = "…" | MOVEABLE | NONMOVEABLE | as of a routine } [;]
//! ```
//!
//! `Module` and `FortranFormat` apply to the definitions after them. Nothing is compiled here: what is to be is in
//! [`Build`]. Refused by name: `Backend "BLACS"`.
//!
//! **Invariants:** no input makes it panic, and its recursion is bounded; what it returns passes
//! [`Signature::check`](crate::Signature::check).

mod call;
mod class;
mod cursor;
mod definition;
mod expression;
mod file;
#[cfg(test)]
mod file_tests;
pub mod lexer;
mod macros;
mod parameter;
mod parsed;
mod problem;
mod routine;
mod shared;
#[cfg(test)]
mod tests;

pub use cursor::IdlFile;

use cursor::Parser;
use lexer::{IdlError, Lexer, Token};
use macros::Macros;
pub(crate) use shared::parse_name;

use crate::expr::Expr;
use crate::signature::Definition;

/// The functions that an IDL text defines. `file_name` names the text in errors, and its stem is the module of
/// definitions before any `Module` line.
///
/// # Errors
/// At the first thing that is wrong, with its place and the remedy.
pub fn parse(source: &str, file_name: &str) -> Result<Vec<Definition>, IdlError> {
    Ok(parse_file(source, file_name)?.definitions)
}

/// As [`parse`], with what else the file says.
///
/// # Errors
/// As [`parse`].
pub fn parse_file(source: &str, file_name: &str) -> Result<IdlFile, IdlError> {
    let macros = Macros::of(&Lexer::directives(source));
    let mut parser = Parser::new(Lexer::of_file(source, &macros), file_name);
    parser.file()?;
    Ok(parser.result)
}

/// One expression; its parameters are the `names`, by index.
///
/// # Errors
/// As [`parse`]; the file of the error is the expression's own text.
pub fn parse_expression(text: &str, names: &[&str]) -> Result<Expr, IdlError> {
    let mut parser = Parser::new(Lexer::new(text), text);
    let parsed = parser.expression()?;
    let (token, place) = parser.next()?;
    if token != Token::End {
        return Err(parser.expected("an operator or the end of the expression", &token, place));
    }
    let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
    parser.indexed(parsed.expr, &names)
}
