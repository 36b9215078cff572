//! Files: a sequence of statements.

use super::cursor::Parser;
use super::lexer::{IdlError, Position, Token};
use crate::c_text::CText;
use gridloom_base::near::{did_you_mean, near_names};

impl Parser<'_> {
    pub(crate) fn file(&mut self) -> Result<(), IdlError> {
        loop {
            while let Some((place, line)) = self.lexer.directive().map_err(|failure| self.failed(failure))? {
                self.directive(place, line)?;
            }
            let (token, place) = self.next()?;
            match &token {
                Token::End => return Ok(()),
                Token::Name(word) => self.statement(word, place)?,
                _ => return Err(self.expected(STATEMENTS, &token, place)),
            }
        }
    }

    fn statement(&mut self, word: &str, place: Position) -> Result<(), IdlError> {
        match word {
            "Module" => self.module = Some(self.name("the module's name")?.0),
            "Library" => {
                let library = self.text("the library's file name")?.0;
                self.result.libraries.push(library);
            }
            "FortranFormat" => self.fortran_format = self.fortran_format_text()?,
            "FortranStringConvention" => self.string_convention()?,
            "CompileOptions" => {
                let options = self.text("options of the compiler")?.0;
                self.result.build.options.push(options);
            }
            "Compiler" | "Linker" => self.command(word, place)?,
            "Globals" => {
                let opening = self.mark("{")?;
                let text = self.c_text(opening)?;
                self.result.build.texts.push(text);
                self.result.build.has_globals = true;
                return Ok(());
            }
            "Define" => {
                let (definition, stub) = self.definition()?;
                self.result.definitions.push(definition);
                self.result.build.stubs.extend(stub);
                return Ok(());
            }
            "DefClass" => {
                let class = self.class()?;
                self.result.classes.push(class);
                return Ok(());
            }
            "PROBLEM" => {
                let definition = self.problem()?;
                self.result.definitions.push(definition);
                return Ok(());
            }
            "SUBROUTINE" | "FUNCTION" => {
                let definition = self.routine(word == "FUNCTION")?;
                self.result.definitions.push(definition);
                return Ok(());
            }
            _ => {
                let near = did_you_mean(&near_names(word, WORDS.into_iter()));
                return Err(self.error(place, format!("expected {STATEMENTS}, got '{word}'{near}")));
            }
        }
        self.mark(";")?;
        Ok(())
    }

    fn directive(&mut self, place: Position, line: &str) -> Result<(), IdlError> {
        let message = match line {
            _ if ["#define", "#undef", "#include"].iter().any(|word| line.starts_with(word)) => {
                let Position { line: at, column } = place;
                self.result.build.texts.push(CText { line: at, column, text: line.to_string() });
                return Ok(());
            }
            _ => {
                "conditions of the C preprocessor are not read; run the file through it first: \
                 cc -E -P -x c OLD.idl > NEW.idl"
            }
        };
        Err(self.error(place, message.to_string()))
    }

    fn command(&mut self, word: &str, place: Position) -> Result<(), IdlError> {
        let (text, text_place) = self.text("a command")?;
        if text.trim().is_empty() {
            return Err(self.error(text_place, format!("expected a command such as \"cc\", got {text:?}")));
        }
        let build = &mut self.result.build;
        let slot = if word == "Compiler" { &mut build.compiler } else { &mut build.linker };
        match slot.replace(text) {
            None => Ok(()),
            Some(_) => {
                Err(self.error(place, format!("a second '{word}'; it applies to the whole file: leave one out")))
            }
        }
    }

    fn string_convention(&mut self) -> Result<(), IdlError> {
        let (name, place) = self.name("'last'")?;
        match name.as_str() {
            "last" => Ok(()),
            "justAfter" => {
                let message = "lengths of strings directly after each string are not supported; compile the library with \
                               a compiler that passes them last, such as gfortran, and leave this out";
                Err(self.error(place, message.to_string()))
            }
            _ => Err(self.error(place, format!("expected 'last' (lengths of strings are passed last), got '{name}'"))),
        }
    }
}

const STATEMENTS: &str = "a statement such as 'Module', 'Globals', 'Define' or 'SUBROUTINE'";
const WORDS: [&str; 13] = [
    "Module",
    "Library",
    "FortranFormat",
    "FortranStringConvention",
    "CompileOptions",
    "Compiler",
    "Linker",
    "Globals",
    "Define",
    "DefClass",
    "SUBROUTINE",
    "FUNCTION",
    "PROBLEM",
];
