//! Definitions: parameters, options, and bodies.

use gridloom_base::limits::{CALLBACKS_MAX, PARAMETERS_MAX};

use super::call::BodyKind;
use super::cursor::{Parser, SourceLanguage};
use super::lexer::{IdlError, Position, Token};
use super::parsed::{ParsedDataUse, ParsedExpr, ParsedParam};
use crate::c_text::{CText, Stub, StubCode, is_not_c, stub_symbol};
use crate::evaluation::Use;
use crate::expr::Expr;
use crate::ranks;
use crate::signature::{ArrayOrder, Body, CallArgument, Definition, Language, Param, Signature};

#[derive(Default)]
pub(crate) struct DefinitionOptions {
    pub(crate) work: Option<ParsedExpr>,
    pub(crate) language: Option<SourceLanguage>,
    /// Shared data, with their names as written.
    uses: Vec<ParsedDataUse>,
    is_shrunk: bool,
    is_on_ranks: bool,
}

impl Parser<'_> {
    /// Parses the text after `Define`.
    pub(crate) fn definition(&mut self) -> Result<(Definition, Option<Stub>), IdlError> {
        let (function, place) = self.name("the function's name")?;
        let name = self.full_name(&function, place)?;
        self.described(name, place, None, self.result.definitions.len())
    }

    /// Parses the text after the name of a function, which is number `index` of its kind.
    pub(crate) fn described(
        &mut self,
        name: String,
        place: Position,
        language: Option<SourceLanguage>,
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
            BodyKind::Symbol(Body::Native { language: Language::Fortran, .. }) => ArrayOrder::F,
            _ => ArrayOrder::C,
        };
        params.iter_mut().filter(|param| param.is_array).for_each(|param| param.order = order);
        let uses = options.uses.iter().map(|used| self.shared_use(used, &params, &names)).collect::<Result<_, _>>()?;
        let signature = Signature { name, params, callbacks, work, uses, about };
        let runs = if options.is_on_ranks { self.on_ranks(runs, &signature, place)? } else { runs };
        let on_ranks = options.is_on_ranks.then(|| parsed.iter().map(|param| param.on_ranks).collect());
        signature.check().map_err(|message| self.error(place, message))?;
        let (body, stub) = match runs {
            BodyKind::Symbol(body) => (body, None),
            BodyKind::Stub { is_cpp, code } => {
                let callbacks = (0..signature.callbacks.len()).map(CallArgument::Callback);
                let args = (0..signature.params.len()).map(CallArgument::Param).chain(callbacks).collect();
                let symbol = stub_symbol(&signature);
                let stub = Stub { definition: index, line: place.line, is_cpp, code, on_ranks };
                (Body::Native { language: Language::C, symbol, args, result: None }, Some(stub))
            }
        };
        Ok((Definition { signature, body }, stub))
    }

    /// Checks a function on several ranks, which must be compiled.
    fn on_ranks(&self, runs: BodyKind, signature: &Signature, place: Position) -> Result<BodyKind, IdlError> {
        if let Some(message) = ranks::refused(signature, is_not_c) {
            return Err(self.error(place, message));
        }
        match runs {
            BodyKind::Stub { .. } => Ok(runs),
            BodyKind::Symbol(Body::Native { language, symbol, args, result }) => {
                if args.iter().any(|arg| matches!(arg, CallArgument::Value { expr, .. } if is_not_c(expr))) {
                    let message = "on several ranks a function is called without powers and functions: write a product, or \
                                   an inline body, `{ fn(pow(n, 2)); }`";
                    return Err(self.error(place, message.to_string()));
                }
                let function = CText { line: place.line, column: place.column, text: symbol };
                let (is_fortran, result) = (language == Language::Fortran, result.map(|(_, index)| index));
                Ok(BodyKind::Stub { is_cpp: false, code: StubCode::Call { is_fortran, function, args, result } })
            }
            BodyKind::Symbol(_) => unreachable!("descriptions have native functions only"),
        }
    }

    /// Returns the names of the parameters, and the parameters with their extents.
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

    /// Checks that one more parameter, of that name, is allowed.
    fn check_new(&self, name: &str, place: Position, params: &[ParsedParam]) -> Result<(), IdlError> {
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

    pub(crate) fn options(&mut self) -> Result<DefinitionOptions, IdlError> {
        let mut options = DefinitionOptions::default();
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
                "Gets" | "Puts" | "Replaces" => {
                    self.next()?;
                    options.uses.push(self.parsed_use(word, place)?);
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
                    let (text, place) = self.text("\"MPI\"")?;
                    options.is_on_ranks = text.eq_ignore_ascii_case("mpi");
                    if !matches!(text.to_lowercase().as_str(), "mpi" | "normal") {
                        let message = format!(
                            "Backend {text:?} is not supported; write \"MPI\", and let the body make its grid of processes"
                        );
                        return Err(self.error(place, message));
                    }
                }
                _ => return Ok(options),
            }
        }
    }
}
