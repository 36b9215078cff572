//! The cursor over the tokens of a file, with the declarations read so far.

use std::collections::BTreeMap;

use super::lexer::{Failure, IdlError, Lexer, Position, Token};
use super::parsed::{ParsedCallback, ParsedExpr};
use crate::c_text::{Build, CText, Class, StubCode};
use crate::evaluation::Use;
use crate::expr::Expr;
use crate::names::is_name;
use crate::signature::{Definition, Param};
use gridloom_base::NameKind;
use gridloom_base::limits::NAME_BYTES_MAX;

/// The content of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IdlFile {
    /// Libraries with the symbols, as linker options, in order (`Library` and `LIBS`).
    pub libraries: Vec<String>,
    /// The functions to compile, with their settings.
    pub build: Build,
    pub definitions: Vec<Definition>,
    pub classes: Vec<Class>,
}

/// Library functions with which the body of a function gets or puts shared data.
const SHARING: [&str; 6] = [
    "OmstGetData",
    "OmstPutData",
    "grpc_shared_get",
    "grpc_shared_put",
    "grpc_shared_begin_get",
    "grpc_shared_begin_put",
];

impl IdlFile {
    /// Returns the functions whose bodies get or put shared data although the functions declare none.
    pub fn undeclared_sharing(&self) -> impl Iterator<Item = &str> {
        let functions = self.build.stubs.iter().map(|stub| (&self.definitions[stub.definition], stub));
        let methods = self
            .classes
            .iter()
            .flat_map(|class| class.stubs.iter().map(|stub| (&class.methods[stub.definition], stub)));
        let undeclared = functions.chain(methods).filter(|(definition, stub)| {
            let StubCode::Body(text) = &stub.code else { return false };
            definition.signature.uses.is_empty() && SHARING.iter().any(|word| text.text.contains(word))
        });
        undeclared.map(|(definition, _)| definition.signature.name.as_str())
    }
}

/// A cursor over the tokens, with the declarations read so far.
pub(crate) struct Parser<'a> {
    pub(crate) lexer: Lexer<'a>,
    pub(super) file: &'a str,
    pub(crate) module: Option<String>,
    pub(crate) fortran_format: String,
    defined: BTreeMap<String, Position>,
    pub(crate) result: IdlFile,
    /// True if GridSolve's rules apply: output scalars have no star, expressions are those of C.
    pub(crate) is_routine: bool,
    /// Names found in the expressions of the current definition. Until all parameters are known, [`Expr::Param`] is an
    /// index into this.
    pub(crate) uses: Vec<(String, Position)>,
    /// The callbacks of the current definition.
    pub(crate) callbacks: Vec<ParsedCallback>,
    pub(crate) nesting: usize,
    pub(crate) nodes: usize,
}

/// The language of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceLanguage {
    C,
    Cpp,
    Fortran,
}

impl<'a> Parser<'a> {
    pub(super) fn new(lexer: Lexer<'a>, file: &'a str) -> Parser<'a> {
        Parser {
            lexer,
            file,
            module: None,
            fortran_format: "%s_".to_string(),
            defined: BTreeMap::new(),
            result: IdlFile::default(),
            is_routine: false,
            uses: Vec::new(),
            callbacks: Vec::new(),
            nesting: 0,
            nodes: 0,
        }
    }

    pub(crate) fn full_name(&mut self, function: &str, place: Position) -> Result<String, IdlError> {
        let module = match &self.module {
            Some(module) => module.clone(),
            None => stem(self.file).to_string(),
        };
        if NameKind::FunctionPart.check(&module).is_err() {
            let file = self.file;
            let message = format!("the file name '{file}' gives no module name; write `Module name;` before this");
            return Err(self.error(place, message));
        }
        let name = format!("{module}/{function}");
        if let Some(first) = self.defined.get(&name) {
            let Position { line, column } = *first;
            return Err(self.error(place, format!("'{name}' was already defined at {line}:{column}; rename one")));
        }
        self.defined.insert(name.clone(), place);
        Ok(name)
    }

    /// Parses the quoted description, with adjacent strings joined as in C; empty if there is none.
    pub(crate) fn description(&mut self) -> Result<String, IdlError> {
        let mut about = String::new();
        while let Token::Text(text) = self.peek()?.0 {
            self.next()?;
            about.push_str(&text);
        }
        Ok(about)
    }

    /// Parses the language of a function: "C", "C++" or "FORTRAN".
    pub(crate) fn language(&mut self) -> Result<SourceLanguage, IdlError> {
        let (text, place) = self.text("\"C\", \"C++\" or \"FORTRAN\"")?;
        match text.to_uppercase().as_str() {
            "C" => Ok(SourceLanguage::C),
            "C++" => Ok(SourceLanguage::Cpp),
            "FORTRAN" => Ok(SourceLanguage::Fortran),
            _ => Err(self.error(place, format!("expected \"C\", \"C++\" or \"FORTRAN\", got {text:?}"))),
        }
    }

    pub(crate) fn fortran_format_text(&mut self) -> Result<String, IdlError> {
        let (text, place) = self.text("a format such as \"%s_\"")?;
        let directives = text.matches("%s").count() + text.matches("%l").count();
        // The format itself is not a name, because of its directive. Therefore a name made with it is checked.
        let is_name = is_name(&text.replace("%s", "f").replace("%l", "f"));
        if directives == 1 && is_name {
            return Ok(text);
        }
        let message = format!("expected one %s (the name) or %l (in upper case) as in \"%s_\", got {text:?}");
        Err(self.error(place, message))
    }

    /// Returns the symbol of a Fortran routine.
    pub(crate) fn fortran_symbol(&self, name: &str) -> String {
        if self.fortran_format.contains("%l") {
            return self.fortran_format.replace("%l", &name.to_uppercase());
        }
        self.fortran_format.replace("%s", name)
    }

    /// Replaces names by the indices of parameters.
    pub(crate) fn indexed(&self, expr: Expr, names: &[String]) -> Result<Expr, IdlError> {
        let inner = |expr: Box<Expr>| self.indexed(*expr, names).map(Box::new);
        Ok(match expr {
            Expr::Number(number) => Expr::Number(number),
            Expr::Param(at) => {
                let (name, place) = &self.uses[at];
                let Some(index) = names.iter().position(|known| known == name) else {
                    return Err(self.unknown_name(name, *place, names));
                };
                Expr::Param(index)
            }
            Expr::Unary(op, operand) => Expr::Unary(op, inner(operand)?),
            Expr::Binary(op, left, right) => Expr::Binary(op, inner(left)?, inner(right)?),
            Expr::Conditional(condition, then, otherwise) => {
                Expr::Conditional(inner(condition)?, inner(then)?, inner(otherwise)?)
            }
        })
    }

    /// Checks an expression, and reports errors at the position of the wrong name.
    pub(crate) fn check_expression(
        &self,
        expr: &Expr,
        parsed: &ParsedExpr,
        params: &[Param],
        names: &[String],
        used: Use,
    ) -> Result<(), IdlError> {
        for at in parsed.expr.params() {
            let (name, place) = &self.uses[at];
            if let Some(index) = names.iter().position(|known| known == name) {
                Expr::Param(index).checked(params, used).map_err(|message| self.error(*place, message))?;
            }
        }
        expr.checked(params, used).map_err(|message| self.error(parsed.place, message))
    }

    pub(crate) fn unknown_name(&self, name: &str, place: Position, names: &[String]) -> IdlError {
        let known = if names.is_empty() { "none".to_string() } else { names.join(", ") };
        self.error(place, format!("unknown name '{name}'; the parameters are: {known}"))
    }

    pub(crate) fn next(&mut self) -> Result<(Token, Position), IdlError> {
        self.lexer.next().map_err(|failure| self.failed(failure))
    }

    /// Reads the C text after an opening brace, up to the matching closing brace.
    pub(crate) fn c_text(&mut self, opening: Position) -> Result<CText, IdlError> {
        self.lexer.c_text(opening).map_err(|failure| self.failed(failure))
    }

    pub(crate) fn peek(&self) -> Result<(Token, Position), IdlError> {
        let mut ahead = self.lexer;
        ahead.next().map_err(|failure| self.failed(failure))
    }

    /// Returns the token after the next one.
    pub(crate) fn peek_second(&self) -> Result<Token, IdlError> {
        let mut ahead = self.lexer;
        let second = ahead.next().and_then(|_| ahead.next());
        second.map(|(token, _)| token).map_err(|failure| self.failed(failure))
    }

    pub(crate) fn name(&mut self, what: &str) -> Result<(String, Position), IdlError> {
        let (token, place) = self.next()?;
        let Token::Name(name) = token else { return Err(self.expected(what, &token, place)) };
        if name.len() > NAME_BYTES_MAX {
            return Err(
                self.error(place, format!("a name of {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len()))
            );
        }
        Ok((name, place))
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<(String, Position), IdlError> {
        match self.next()? {
            (Token::Text(text), place) => Ok((text, place)),
            (token, place) => Err(self.expected(&format!("{what} in double quotes"), &token, place)),
        }
    }

    pub(crate) fn mark(&mut self, mark: &'static str) -> Result<Position, IdlError> {
        match self.next()? {
            (Token::Mark(found), place) if found == mark => Ok(place),
            (token, place) => Err(self.expected(&format!("'{mark}'"), &token, place)),
        }
    }

    pub(crate) fn take_mark(&mut self, mark: &'static str) -> Result<bool, IdlError> {
        let found = self.peek()?.0 == Token::Mark(mark);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    pub(crate) fn expected(&self, what: &str, got: &Token, place: Position) -> IdlError {
        self.error(place, format!("expected {what}, got {}", got.describe()))
    }

    pub(crate) fn failed(&self, (place, message): Failure) -> IdlError {
        self.error(place, message)
    }

    pub(crate) fn error(&self, place: Position, message: String) -> IdlError {
        IdlError { file: self.file.to_string(), line: place.line, column: place.column, message }
    }
}

fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
