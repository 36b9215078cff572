//! The parser of the interface description language: definitions and their options. `parse_file` has the statements of
//! files, `parse_routine` GridSolve's, `parse_problem` NetSolve's.
//!
//! ```text
//! file       = { Module name; | Library "…"; | FortranFormat "…"; | FortranStringConvention last; | CompileOptions "…";
//!              | Compiler "…"; | Linker "…"; | Globals { C } | #define … | definition | class | routine | problem }
//! definition = Define name ( [parameter {, parameter}] ) ["description"] { option } body
//! option     = Required "…" | CalcOrder expression | Language "C"|"C++"|"FORTRAN" | Shrink "yes"|"no"
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
//! [`Build`]. Refused by name: `Backend "MPI"` and `"BLACS"`, `filepointer`.
//!
//! **Invariants:** no input makes it panic, and its recursion is bounded; what it returns passes
//! [`Signature::check`](crate::idl::Signature::check).

use std::collections::BTreeMap;

use crate::base::limits::{CALLBACKS_MAX, NAME_BYTES_MAX, PARAMETERS_MAX};
use crate::idl::c_text::{Build, CText, Class, Stub, stub_symbol};
use crate::idl::expr::{Expr, Use};
use crate::idl::lexer::{Failure, IdlError, Lexer, Place, Token};
use crate::idl::macros::Macros;
use crate::idl::parse_call::Runs;
use crate::idl::parse_expr::ParsedExpr;
use crate::idl::parse_param::{ParsedCallback, ParsedParam};
use crate::idl::signature::{ArrayOrder, Body, CallArgument, Definition, Language, Param, Signature};

/// What a file says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IdlFile {
    /// Libraries that hold the symbols, as options of a linker, in order (`Library` and `LIBS`).
    pub libraries: Vec<String>,
    /// What is to be compiled.
    pub build: Build,
    /// The functions.
    pub definitions: Vec<Definition>,
    /// The classes.
    pub classes: Vec<Class>,
}

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
    let macros = Macros::of(source);
    let mut parser = Parser::new(Lexer::of_file(source, &macros), file_name);
    parser.file()?;
    Ok(parser.result)
}

/// One expression whose parameters are the `names`, by index.
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

/// A cursor over the tokens, with what the file has said so far.
pub(crate) struct Parser<'a> {
    pub(crate) lexer: Lexer<'a>,
    file: &'a str,
    pub(crate) module: Option<String>,
    pub(crate) fortran_format: String,
    defined: BTreeMap<String, Place>,
    pub(crate) result: IdlFile,
    /// Whether GridSolve's rules hold: scalars that a function sets have no star, expressions are C's.
    pub(crate) is_routine: bool,
    /// Names met in the expressions of the definition at hand: until all parameters are known, [`Expr::Param`] is an
    /// index into this.
    pub(crate) uses: Vec<(String, Place)>,
    /// The callbacks of the definition at hand.
    pub(crate) callbacks: Vec<ParsedCallback>,
    pub(crate) nesting: usize,
    pub(crate) nodes: usize,
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) work: Option<ParsedExpr>,
    pub(crate) language: Option<Spoken>,
    is_shrunk: bool,
}

/// The language of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spoken {
    C,
    Cpp,
    Fortran,
}

impl<'a> Parser<'a> {
    fn new(lexer: Lexer<'a>, file: &'a str) -> Parser<'a> {
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

    /// What follows `Define`.
    pub(crate) fn definition(&mut self) -> Result<(Definition, Option<Stub>), IdlError> {
        let (function, place) = self.name("the function's name")?;
        let name = self.full_name(&function, place)?;
        self.described(name, place, None, self.result.definitions.len())
    }

    /// What follows the name of a function, which is number `index` of its kind.
    pub(crate) fn described(
        &mut self,
        name: String,
        place: Place,
        language: Option<Spoken>,
        index: usize,
    ) -> Result<(Definition, Option<Stub>), IdlError> {
        self.uses.clear();
        self.callbacks.clear();
        self.nodes = 0;
        let parsed = self.parameters()?;
        let about = self.description()?;
        let options = self.options()?;
        let (names, mut params) = self.resolved(&parsed, options.is_shrunk)?;
        let callbacks = self.callbacks_with_extents(&params, &names)?;
        let work = self.work(options.work.as_ref(), &params, &names)?;
        let runs = self.body(options.language.or(language), &params, &names)?;
        let order = match &runs {
            Runs::Symbol(Body::Native { language: Language::Fortran, .. }) => ArrayOrder::F,
            _ => ArrayOrder::C,
        };
        params.iter_mut().filter(|param| param.is_array).for_each(|param| param.order = order);
        let signature = Signature { name, params, callbacks, work, about };
        signature.check().map_err(|message| self.error(place, message))?;
        let (body, stub) = match runs {
            Runs::Symbol(body) => (body, None),
            Runs::Stub { is_cpp, code } => {
                let callbacks = (0..signature.callbacks.len()).map(CallArgument::Callback);
                let args = (0..signature.params.len()).map(CallArgument::Param).chain(callbacks).collect();
                let symbol = stub_symbol(&signature);
                let stub = Stub { definition: index, line: place.line, is_cpp, code };
                (Body::Native { language: Language::C, symbol, args, result: None }, Some(stub))
            }
        };
        Ok((Definition { signature, body }, stub))
    }

    /// The names of the parameters, and these with their extents.
    pub(crate) fn resolved(
        &self,
        parsed: &[ParsedParam],
        is_shrunk: bool,
    ) -> Result<(Vec<String>, Vec<Param>), IdlError> {
        let names: Vec<String> = parsed.iter().map(|param| param.param.name.clone()).collect();
        let params = self.with_extents(parsed, &names, is_shrunk)?;
        Ok((names, params))
    }

    pub(crate) fn work(
        &self,
        parsed: Option<&ParsedExpr>,
        params: &[Param],
        names: &[String],
    ) -> Result<Option<Expr>, IdlError> {
        let Some(parsed) = parsed else { return Ok(None) };
        let expr = self.indexed(parsed.expr.clone(), names)?;
        self.check_expression(&expr, parsed, params, names, Use::Work)?;
        Ok(Some(expr))
    }

    pub(crate) fn full_name(&mut self, function: &str, place: Place) -> Result<String, IdlError> {
        let module = match &self.module {
            Some(module) => module.clone(),
            None => stem(self.file).to_string(),
        };
        if !crate::idl::check::is_name_part(&module) {
            let file = self.file;
            let message = format!("the file name '{file}' gives no module name; write `Module name;` before this");
            return Err(self.error(place, message));
        }
        let name = format!("{module}/{function}");
        if let Some(first) = self.defined.get(&name) {
            let Place { line, column } = *first;
            return Err(self.error(place, format!("'{name}' was already defined at {line}:{column}; rename one")));
        }
        self.defined.insert(name.clone(), place);
        Ok(name)
    }

    pub(crate) fn parameters(&mut self) -> Result<Vec<ParsedParam>, IdlError> {
        let mut params: Vec<ParsedParam> = Vec::new();
        self.mark("(")?;
        if self.take_mark(")")? {
            return Ok(params);
        }
        loop {
            if self.is_callback()? {
                let (callback, place) = self.callback()?;
                self.check_new(&callback.name, place, &params)?;
                if self.callbacks.len() == CALLBACKS_MAX {
                    return Err(self.error(place, format!("more than {CALLBACKS_MAX} callbacks")));
                }
                self.callbacks.push(callback);
            } else {
                let param = self.parameter()?;
                self.check_new(&param.param.name, param.place, &params)?;
                if let Some(callback) = self.callbacks.first() {
                    let message = format!(
                        "parameter '{}' comes after callback '{}'; put it before",
                        param.param.name, callback.name
                    );
                    return Err(self.error(param.place, message));
                }
                params.push(param);
            }
            let (token, place) = self.next()?;
            match token {
                Token::Mark(",") => {}
                Token::Mark(")") => return Ok(params),
                other => return Err(self.expected("',' or ')' after a parameter", &other, place)),
            }
        }
    }

    /// Whether there may be one more parameter, of that name.
    fn check_new(&self, name: &str, place: Place, params: &[ParsedParam]) -> Result<(), IdlError> {
        let mut names =
            params.iter().map(|param| &param.param.name).chain(self.callbacks.iter().map(|known| &known.name));
        if names.any(|known| known == name) {
            return Err(self.error(place, format!("parameter '{name}' is declared twice; rename one")));
        }
        if params.len() + self.callbacks.len() == PARAMETERS_MAX {
            return Err(self.error(place, format!("more than {PARAMETERS_MAX} parameters; pass an array")));
        }
        Ok(())
    }

    /// The description in quotes, adjoining strings joined as in C; empty if there is none.
    pub(crate) fn description(&mut self) -> Result<String, IdlError> {
        let mut about = String::new();
        while let Token::Text(text) = self.peek()?.0 {
            self.next()?;
            about.push_str(&text);
        }
        Ok(about)
    }

    pub(crate) fn options(&mut self) -> Result<Options, IdlError> {
        let mut options = Options::default();
        loop {
            let (token, place) = self.peek()?;
            let Token::Name(word) = &token else { return Ok(options) };
            match word.as_str() {
                "Required" => {
                    self.next()?;
                    let text = self.text("the names of object files")?.0;
                    let required = &mut self.result.build.required;
                    required.extend((!required.contains(&text)).then_some(text));
                }
                "CalcOrder" => {
                    self.next()?;
                    if options.work.is_some() {
                        return Err(self.error(place, "a second 'CalcOrder'; leave one out".to_string()));
                    }
                    options.work = Some(self.expression()?);
                }
                "Language" => {
                    self.next()?;
                    options.language = Some(self.language()?);
                }
                "Shrink" => {
                    self.next()?;
                    let (text, place) = self.text("\"yes\" or \"no\"")?;
                    options.is_shrunk = text.eq_ignore_ascii_case("yes");
                    if !matches!(text.to_lowercase().as_str(), "yes" | "no") {
                        return Err(self.error(place, format!("expected \"yes\" or \"no\" after Shrink, got {text:?}")));
                    }
                }
                "Backend" => {
                    self.next()?;
                    let (text, place) = self.text("\"MPI\" or \"BLACS\"")?;
                    let message = format!(
                        "functions that run on several ranks (Backend {text:?}) are not supported; leave it out, and \
                         start the ranks from the body, as with mpirun"
                    );
                    return Err(self.error(place, message));
                }
                _ => return Ok(options),
            }
        }
    }

    /// "C", "C++" or "FORTRAN".
    pub(crate) fn language(&mut self) -> Result<Spoken, IdlError> {
        let (text, place) = self.text("\"C\", \"C++\" or \"FORTRAN\"")?;
        match text.to_uppercase().as_str() {
            "C" => Ok(Spoken::C),
            "C++" => Ok(Spoken::Cpp),
            "FORTRAN" => Ok(Spoken::Fortran),
            _ => Err(self.error(place, format!("expected \"C\", \"C++\" or \"FORTRAN\", got {text:?}"))),
        }
    }

    pub(crate) fn fortran_format_text(&mut self) -> Result<String, IdlError> {
        let (text, place) = self.text("a format such as \"%s_\"")?;
        let directives = text.matches("%s").count() + text.matches("%l").count();
        // A format may begin with what a name does not.
        let is_name = super::lexer::is_name(&text.replace("%s", "f").replace("%l", "f"));
        if directives == 1 && is_name {
            return Ok(text);
        }
        let message = format!("expected one %s (the name) or %l (in upper case) as in \"%s_\", got {text:?}");
        Err(self.error(place, message))
    }

    /// The symbol of a Fortran routine.
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

    /// Checks an expression, and blames the name that is wrong.
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

    pub(crate) fn unknown_name(&self, name: &str, place: Place, names: &[String]) -> IdlError {
        let known = if names.is_empty() { "none".to_string() } else { names.join(", ") };
        self.error(place, format!("unknown name '{name}'; the parameters are: {known}"))
    }

    pub(crate) fn next(&mut self) -> Result<(Token, Place), IdlError> {
        self.lexer.next().map_err(|failure| self.failed(failure))
    }

    /// The C text behind an opening brace, up to the brace that closes it.
    pub(crate) fn c_text(&mut self, opening: Place) -> Result<CText, IdlError> {
        self.lexer.c_text(opening).map_err(|failure| self.failed(failure))
    }

    pub(crate) fn peek(&self) -> Result<(Token, Place), IdlError> {
        let mut ahead = self.lexer;
        ahead.next().map_err(|failure| self.failed(failure))
    }

    /// The token after the next one.
    pub(crate) fn peek_second(&self) -> Result<Token, IdlError> {
        let mut ahead = self.lexer;
        let second = ahead.next().and_then(|_| ahead.next());
        second.map(|(token, _)| token).map_err(|failure| self.failed(failure))
    }

    pub(crate) fn name(&mut self, what: &str) -> Result<(String, Place), IdlError> {
        let (token, place) = self.next()?;
        let Token::Name(name) = token else { return Err(self.expected(what, &token, place)) };
        if name.len() > NAME_BYTES_MAX {
            return Err(
                self.error(place, format!("a name of {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len()))
            );
        }
        Ok((name, place))
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<(String, Place), IdlError> {
        match self.next()? {
            (Token::Text(text), place) => Ok((text, place)),
            (token, place) => Err(self.expected(&format!("{what} in double quotes"), &token, place)),
        }
    }

    pub(crate) fn mark(&mut self, mark: &'static str) -> Result<Place, IdlError> {
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

    pub(crate) fn expected(&self, what: &str, got: &Token, place: Place) -> IdlError {
        self.error(place, format!("expected {what}, got {}", got.describe()))
    }

    pub(crate) fn failed(&self, (place, message): Failure) -> IdlError {
        self.error(place, message)
    }

    pub(crate) fn error(&self, place: Place, message: String) -> IdlError {
        IdlError { file: self.file.to_string(), line: place.line, column: place.column, message }
    }
}

fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
