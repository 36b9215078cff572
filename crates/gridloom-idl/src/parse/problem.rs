//! NetSolve's description of a function: `PROBLEM name FORTRAN ROUTINE f(…) "description" LIBS = "…" MOVEABLE`.
//!
//! It is the predecessor of GridSolve's, and read by its rules: the problem has the function's name, the routine is the symbol.
//! The grammar is that of NetSolve's users' guide; sparse matrices, in angle brackets, are rejected. The mark at the end stated
//! whether an agent may send the routine to another server, which is not supported here.

use super::cursor::Parser;
use super::lexer::{IdlError, Token};
use super::routine::Head;
use crate::signature::{Definition, Language};
use crate::type_words::is_type_word;

impl Parser<'_> {
    /// Parses the text after `PROBLEM`. Its strings may span several lines.
    pub(crate) fn problem(&mut self) -> Result<Definition, IdlError> {
        self.lexer.has_long_texts = true;
        let definition = self.problem_of_lines();
        self.lexer.has_long_texts = false;
        definition
    }

    fn problem_of_lines(&mut self) -> Result<Definition, IdlError> {
        let (function, place) = self.name("the problem's name")?;
        let language = self.bare_language()?;
        let (word, word_place) = self.name("'ROUTINE'")?;
        if !matches!(word.as_str(), "ROUTINE" | "FUNCTION") {
            return Err(self.error(word_place, format!("expected 'ROUTINE' after the language, got '{word}'")));
        }
        let has_value = matches!(self.peek()?.0, Token::Name(word) if is_type_word(&word) || word == "void");
        let value = if has_value { self.value_type()? } else { None };
        let symbol = self.name("the routine's name")?.0;
        self.routine_definition(Head { function, place, symbol, value, problem_in: Some(language) })
    }

    /// `C` or `FORTRAN` without quotes, in any case.
    fn bare_language(&mut self) -> Result<Language, IdlError> {
        let (token, place) = self.next()?;
        match &token {
            Token::Name(word) if word.eq_ignore_ascii_case("C") => Ok(Language::C),
            Token::Name(word) if word.eq_ignore_ascii_case("FORTRAN") => Ok(Language::Fortran),
            _ => Err(self.expected("the routine's language, C or FORTRAN, after the problem's name", &token, place)),
        }
    }
}
