//! The parser of the interface description language: definitions and their options. `file` parses the statements of files,
//! `routine` those of GridSolve, `problem` those of NetSolve. All use the cursor over the tokens of `lexer`.
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
//! `Module` and `FortranFormat` apply to the definitions after them. Nothing is compiled here: functions to compile are in
//! [`Build`](crate::Build). `Backend "BLACS"` is rejected by name.
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

/// Parses the functions that an IDL text defines. `file_name` names the text in errors, and its stem is the module of
/// definitions before any `Module` line.
///
/// # Errors
/// The first mistake, with its position and the remedy.
pub fn parse(source: &str, file_name: &str) -> Result<Vec<Definition>, IdlError> {
    Ok(parse_file(source, file_name)?.definitions)
}

/// Same as [`parse`], with the other content of the file.
///
/// # Errors
/// Same as [`parse`].
pub fn parse_file(source: &str, file_name: &str) -> Result<IdlFile, IdlError> {
    let macros = Macros::of(&Lexer::directives(source));
    let mut parser = Parser::new(Lexer::of_file(source, &macros), file_name);
    parser.file()?;
    Ok(parser.result)
}

/// Parses one expression. Its parameters are the `names`, by index.
///
/// # Errors
/// Same as [`parse`]; the file of the error is the expression's own text.
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
