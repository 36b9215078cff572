//! The parser of the interface description language: files, definitions and their options.
//!
//! The language is Ninf's, as far as it describes functions of libraries that are already compiled:
//!
//! ```text
//! file       = { Module name; | Library "…"; | FortranFormat "…"; | CompileOptions "…"; | Compiler "…"; | Linker "…";
//!              | definition }
//! definition = Define name ( [parameter {, parameter}] ) ["description"] { option } call ;
//! option     = Required "…" | CalcOrder expression | Language "C"|"FORTRAN" | Shrink "yes"|"no"
//! call       = Calls ["C"|"FORTRAN"] [parameter =] symbol ( [argument {, argument}] )
//! ```
//!
//! `Module` and `FortranFormat` apply to the definitions after them. `CompileOptions`, `Compiler`, `Linker` and
//! `Required` are recorded and have no effect, as nothing is compiled. Refused by name: inline C bodies, `Globals`,
//! `DefClass`, `FortranStringConvention`, `Backend`, `filepointer`.
//!
//! **Invariants:** no input makes it panic, and its recursion is bounded; what it returns passes
//! [`Signature::check`](crate::idl::Signature::check).

use std::collections::BTreeMap;

use crate::base::limits::{CALLBACKS_MAX, NAME_BYTES_MAX, PARAMETERS_MAX};
use crate::idl::expr::{Expr, Use};
use crate::idl::lexer::{IdlError, Lexer, Place, Token};
use crate::idl::near::{did_you_mean, near_names};
use crate::idl::parse_expr::ParsedExpr;
use crate::idl::parse_param::{ParsedCallback, ParsedParam};
use crate::idl::signature::{ArrayOrder, Body, Definition, Language, Param, Signature};

/// What a file says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IdlFile {
    /// Shared libraries that hold the symbols, in order (`Library`).
    pub libraries: Vec<String>,
    /// Settings that are recorded and have no effect, in order: keyword and text.
    pub recorded: Vec<(String, String)>,
    /// The functions.
    pub definitions: Vec<Definition>,
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
    let mut parser = Parser::new(source, file_name);
    parser.file()?;
    Ok(parser.result)
}

/// One expression whose parameters are the `names`, by index.
///
/// # Errors
/// As [`parse`]; the file of the error is the expression's own text.
pub fn parse_expression(text: &str, names: &[&str]) -> Result<Expr, IdlError> {
    let mut parser = Parser::new(text, text);
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
    lexer: Lexer<'a>,
    file: &'a str,
    module: Option<String>,
    fortran_format: String,
    defined: BTreeMap<String, Place>,
    result: IdlFile,
    /// Names met in the expressions of the definition at hand: until all parameters are known, [`Expr::Param`] is an
    /// index into this.
    pub(crate) uses: Vec<(String, Place)>,
    /// The callbacks of the definition at hand.
    pub(crate) callbacks: Vec<ParsedCallback>,
    pub(crate) nesting: usize,
    pub(crate) nodes: usize,
}

#[derive(Default)]
struct Options {
    work: Option<ParsedExpr>,
    language: Option<Language>,
    is_shrunk: bool,
}

impl<'a> Parser<'a> {
    fn new(source: &'a str, file: &'a str) -> Parser<'a> {
        Parser {
            lexer: Lexer::new(source),
            file,
            module: None,
            fortran_format: "%s_".to_string(),
            defined: BTreeMap::new(),
            result: IdlFile::default(),
            uses: Vec::new(),
            callbacks: Vec::new(),
            nesting: 0,
            nodes: 0,
        }
    }

    fn file(&mut self) -> Result<(), IdlError> {
        loop {
            let (token, place) = self.next()?;
            let Token::Name(word) = &token else {
                if token == Token::End {
                    return Ok(());
                }
                return Err(self.expected(STATEMENTS, &token, place));
            };
            match word.as_str() {
                "Module" => {
                    self.module = Some(self.name("the module's name")?.0);
                    self.mark(";")?;
                }
                "Library" => {
                    let library = self.text("the library's file name")?.0;
                    self.result.libraries.push(library);
                    self.mark(";")?;
                }
                "FortranFormat" => {
                    self.fortran_format = self.fortran_format_text()?;
                    self.mark(";")?;
                }
                "CompileOptions" | "Compiler" | "Linker" => {
                    let text = self.text("a string")?.0;
                    self.result.recorded.push((word.clone(), text));
                    self.mark(";")?;
                }
                "Define" => {
                    let definition = self.definition()?;
                    self.result.definitions.push(definition);
                }
                "Globals" | "DefClass" | "FortranStringConvention" => {
                    return Err(self.error(place, format!("'{word}' is not supported yet; leave it out")));
                }
                _ => {
                    let known =
                        ["Module", "Library", "FortranFormat", "CompileOptions", "Compiler", "Linker", "Define"];
                    let near = did_you_mean(&near_names(word, known.into_iter()));
                    return Err(self.error(place, format!("expected {STATEMENTS}, got '{word}'{near}")));
                }
            }
        }
    }

    fn definition(&mut self) -> Result<Definition, IdlError> {
        self.uses.clear();
        self.callbacks.clear();
        self.nodes = 0;
        let (function, place) = self.name("the function's name")?;
        let name = self.full_name(&function, place)?;
        let parsed = self.parameters()?;
        let about = self.description()?;
        let options = self.options()?;
        let names: Vec<String> = parsed.iter().map(|param| param.param.name.clone()).collect();
        let mut params = self.with_extents(&parsed, &names, options.is_shrunk)?;
        let callbacks = self.callbacks_with_extents(&params, &names)?;
        let work = match &options.work {
            Some(parsed) => {
                let expr = self.indexed(parsed.expr.clone(), &names)?;
                self.check_expression(&expr, parsed, &params, &names, Use::Work)?;
                Some(expr)
            }
            None => None,
        };
        let body = self.calls(options.language, &params, &names)?;
        let order = match &body {
            Body::Native { language: Language::Fortran, .. } => ArrayOrder::F,
            _ => ArrayOrder::C,
        };
        params.iter_mut().filter(|param| param.is_array).for_each(|param| param.order = order);
        let signature = Signature { name, params, callbacks, work, about };
        signature.check().map_err(|message| self.error(place, message))?;
        Ok(Definition { signature, body })
    }

    fn full_name(&mut self, function: &str, place: Place) -> Result<String, IdlError> {
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

    fn parameters(&mut self) -> Result<Vec<ParsedParam>, IdlError> {
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
    fn description(&mut self) -> Result<String, IdlError> {
        let mut about = String::new();
        while let Token::Text(text) = self.peek()?.0 {
            self.next()?;
            about.push_str(&text);
        }
        Ok(about)
    }

    fn options(&mut self) -> Result<Options, IdlError> {
        let mut options = Options::default();
        loop {
            let (token, place) = self.peek()?;
            let Token::Name(word) = &token else { return Ok(options) };
            match word.as_str() {
                "Required" => {
                    self.next()?;
                    let text = self.text("the names of object files")?.0;
                    self.result.recorded.push((word.clone(), text));
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
                    options.is_shrunk = text == "yes";
                    if !matches!(text.as_str(), "yes" | "no") {
                        return Err(self.error(place, format!("expected \"yes\" or \"no\" after Shrink, got {text:?}")));
                    }
                }
                "Backend" => {
                    let message = "'Backend' is not supported yet; only plain functions can be called".to_string();
                    return Err(self.error(place, message));
                }
                _ => return Ok(options),
            }
        }
    }

    /// "C" or "FORTRAN".
    pub(crate) fn language(&mut self) -> Result<Language, IdlError> {
        let (text, place) = self.text("\"C\" or \"FORTRAN\"")?;
        match text.as_str() {
            "C" | "c" => Ok(Language::C),
            "FORTRAN" | "Fortran" | "fortran" => Ok(Language::Fortran),
            _ => {
                let message = format!(
                    "expected \"C\" or \"FORTRAN\", got {text:?}; a C++ function is called as \"C\" if it is extern \"C\""
                );
                Err(self.error(place, message))
            }
        }
    }

    fn fortran_format_text(&mut self) -> Result<String, IdlError> {
        let (text, place) = self.text("a format such as \"%s_\"")?;
        let directives = text.matches("%s").count() + text.matches("%l").count();
        let rest_is_name = text.replace("%s", "").replace("%l", "").chars().all(super::lexer::is_name_character);
        if directives == 1 && rest_is_name {
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
        self.lexer.next().map_err(|(place, message)| self.error(place, message))
    }

    pub(crate) fn peek(&self) -> Result<(Token, Place), IdlError> {
        let mut ahead = self.lexer;
        ahead.next().map_err(|(place, message)| self.error(place, message))
    }

    /// The token after the next one.
    pub(crate) fn peek_second(&self) -> Result<Token, IdlError> {
        let mut ahead = self.lexer;
        let second = ahead.next().and_then(|_| ahead.next());
        second.map(|(token, _)| token).map_err(|(place, message)| self.error(place, message))
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

    pub(crate) fn error(&self, place: Place, message: String) -> IdlError {
        IdlError { file: self.file.to_string(), line: place.line, column: place.column, message }
    }
}

fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

const STATEMENTS: &str = "'Module', 'Library', 'FortranFormat' or 'Define'";
