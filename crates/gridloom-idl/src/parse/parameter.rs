//! Parameters and the names of types. A parameter is mode and type in either order, then `x`, `*x` or `x[extent]…`, in which
//! `[size : start, end, step]` is a slice.

use super::cursor::Parser;
use super::lexer::{IdlError, Position, Token};
use super::parsed::{ParsedCallback, ParsedDomain, ParsedExpr, ParsedParam, ParsedSlice};
use crate::evaluation::Use;
use crate::expr::Expr;
use crate::ranks::RankShare;
use crate::signature::{ArrayOrder, BaseType, Callback, Mode, Param};
use crate::slice::Slice;
use crate::type_words::{TYPES, is_type_word, type_from_words};
use crate::values::AllowedValues;
use gridloom_base::limits::{DIMENSIONS_MAX, PARAMETERS_MAX};

impl Parser<'_> {
    pub(crate) fn parameter(&mut self) -> Result<ParsedParam, IdlError> {
        self.parameter_of(false)
    }

    /// Parses a parameter of a function, or of a callback, whose parameters are all arrays.
    fn parameter_of(&mut self, is_of_callback: bool) -> Result<ParsedParam, IdlError> {
        let mut mode = None;
        let mut on_ranks = RankShare::Nothing;
        let mut words: Vec<(String, Position)> = Vec::new();
        loop {
            let (token, place) = self.peek()?;
            let Token::Name(word) = token else { break };
            if let Some(found) = mode_of(&word) {
                if mode.is_some() {
                    return Err(self.error(place, "a parameter has one mode; leave the second out".to_string()));
                }
                mode = Some(found);
            } else if is_type_word(&word) {
                words.push((word, place));
            } else {
                match on_ranks_by(&word) {
                    Some(by) if matches!(self.peek_second()?, Token::Name(_) | Token::Mark("*")) => on_ranks = by,
                    _ => break,
                }
            }
            self.next()?;
        }
        self.refuse_foreign()?;
        let pointer = self.take_mark("*")?;
        let (name, place) = self.name("a parameter's name")?;
        let Some(mode) = mode else {
            let message = format!("expected the mode of '{name}': write IN, OUT, INOUT, VAROUT or WORK before it");
            return Err(self.error(place, message));
        };
        if words.is_empty() {
            let message = format!("expected the type of '{name}'; types are {TYPES}");
            return Err(self.error(place, message));
        }
        let base = self.type_of(&words)?;
        let (mut dims, mut slices) = self.extents(&name)?;
        let slice_place = self.peek()?.1;
        if mode != Mode::In && !matches!(mode, Mode::Out | Mode::InOut) && slices.iter().any(Option::is_some) {
            let message = format!("a {mode} array has no slices; write `{name}[size]`");
            return Err(self.error(slice_place, message));
        }
        self.check_declarator(mode, base, &name, pointer, !dims.is_empty(), place, &type_text(&words))?;
        // A pointer to an output of the function is a scalar; every other pointer is an array of one element.
        let is_set = matches!(base, BaseType::Number(_) | BaseType::String) && matches!(mode, Mode::Out | Mode::InOut);
        if pointer && dims.is_empty() && mode != Mode::Work && (is_of_callback || !is_set) {
            dims.push(one_element(place));
            slices.push(None);
        }
        let mut param = Param::scalar(&name, mode, base);
        param.is_array = !dims.is_empty();
        if mode == Mode::Work && pointer {
            // One element of scratch space is an array, so that it needs no case of its own.
            param = Param::array(&name, mode, base, vec![Expr::Number(1.0)], ArrayOrder::C);
        }
        let values = self.values(&name, !dims.is_empty())?;
        Ok(ParsedParam { param, dims, slices, values, on_ranks, place })
    }

    /// Parses `values in "NTC"`, `values in 0..n` of a scalar; `each in 1..n` of an array.
    fn values(&mut self, name: &str, is_array: bool) -> Result<Option<ParsedDomain>, IdlError> {
        let (token, place) = self.peek()?;
        let Token::Name(word) = &token else { return Ok(None) };
        let word = word.as_str();
        if !matches!(word, "values" | "each") || self.peek_second()? != Token::Name("in".to_string()) {
            return Ok(None);
        }
        if (word == "each") != is_array {
            let right = if is_array { "each" } else { "values" };
            let what = if is_array { "an array" } else { "one value" };
            return Err(self.error(place, format!("'{name}' is {what}: write `{right} in` for '{word} in'")));
        }
        self.next()?;
        self.next()?;
        if let (Token::Text(letters), _) = self.peek()? {
            self.next()?;
            return Ok(Some(ParsedDomain::Letters(letters)));
        }
        let first = self.expression()?;
        self.mark("..")?;
        Ok(Some(ParsedDomain::Range(first, self.expression()?)))
    }

    /// True if a callback is next: a name, which is neither a mode nor a type, and its parameters.
    pub(crate) fn is_callback(&self) -> Result<bool, IdlError> {
        let (Token::Name(word), _) = self.peek()? else { return Ok(false) };
        Ok(mode_of(&word).is_none() && !is_type_word(&word) && self.peek_second()? == Token::Mark("("))
    }

    /// Parses `name(parameter, …)`: arrays of numbers or of strings.
    pub(crate) fn callback(&mut self) -> Result<(ParsedCallback, Position), IdlError> {
        let (name, place) = self.name("a callback's name")?;
        let mut params: Vec<ParsedParam> = Vec::new();
        self.mark("(")?;
        if self.take_mark(")")? {
            return Ok((ParsedCallback { name, params }, place));
        }
        loop {
            let param = self.parameter_of(true)?;
            let Param { name: own, mode, base, is_array, .. } = &param.param;
            let is_plain = *is_array && param.slices.iter().all(Option::is_none);
            if !is_plain
                || !matches!(base, BaseType::Number(_) | BaseType::String)
                || matches!(mode, Mode::Work | Mode::VarOut)
            {
                let message = format!(
                    "a callback takes whole arrays of numbers or strings that are IN, OUT or INOUT: write `IN int *{own}` for one \
                     number"
                );
                return Err(self.error(param.place, message));
            }
            if params.iter().any(|other| other.param.name == *own) {
                return Err(self.error(param.place, format!("parameter '{own}' is declared twice; rename one")));
            }
            if params.len() == PARAMETERS_MAX {
                return Err(self.error(param.place, format!("more than {PARAMETERS_MAX} parameters; pass an array")));
            }
            params.push(param);
            match self.next()? {
                (Token::Mark(","), _) => {}
                (Token::Mark(")"), _) => return Ok((ParsedCallback { name, params }, place)),
                (other, place) => return Err(self.expected("',' or ')' after a parameter", &other, place)),
            }
        }
    }

    /// Returns the callbacks with their extents, which use the function's scalars.
    pub(crate) fn callbacks_with_extents(&self, params: &[Param], names: &[String]) -> Result<Vec<Callback>, IdlError> {
        let known = |parsed: &ParsedExpr| {
            let expr = self.indexed(parsed.expr.clone(), names)?;
            self.check_expression(&expr, parsed, params, names, Use::Size)?;
            Ok(expr)
        };
        let with_extents = |declared: &ParsedParam| {
            let dims = declared.dims.iter().map(known).collect::<Result<_, _>>()?;
            Ok(Param { dims, order: ArrayOrder::C, ..declared.param.clone() })
        };
        let callback = |parsed: &ParsedCallback| {
            let params = parsed.params.iter().map(with_extents).collect::<Result<_, _>>()?;
            Ok(Callback { name: parsed.name.clone(), params })
        };
        self.callbacks.iter().map(callback).collect()
    }

    /// Rejects, by name, known parts of Ninf's language that are not supported.
    fn refuse_foreign(&mut self) -> Result<(), IdlError> {
        let (Token::Name(word), place) = self.peek()? else { return Ok(()) };
        let message = match (word.as_str(), self.peek_second()?) {
            // A name and its listed values.
            (_, Token::Name(behind)) if matches!(behind.as_str(), "values" | "each") => return Ok(()),
            (_, Token::Name(_) | Token::Mark("*")) => format!("unknown type '{word}'; types are {TYPES}"),
            _ => return Ok(()),
        };
        Err(self.error(place, message))
    }

    #[allow(clippy::type_complexity)]
    fn extents(&mut self, name: &str) -> Result<(Vec<ParsedExpr>, Vec<Option<ParsedSlice>>), IdlError> {
        let (mut dims, mut slices) = (Vec::new(), Vec::new());
        if let (Token::Mark("<"), place) = self.peek()? {
            let message = format!(
                "sparse matrices such as `{name}<…>` are not supported: pass the arrays that one is made of, such as \
                 `IN double {name}[nnz], IN int columns[nnz], IN int rows[m+1]`"
            );
            return Err(self.error(place, message));
        }
        while self.take_mark("[")? {
            let (token, place) = self.peek()?;
            if token == Token::Mark("]") {
                dims.push(one_element(place));
            } else {
                dims.push(self.expression()?);
            }
            if dims.len() > DIMENSIONS_MAX {
                return Err(self.error(place, format!("'{name}' has more than {DIMENSIONS_MAX} dimensions")));
            }
            match self.next()? {
                (Token::Mark("]"), _) => slices.push(None),
                (Token::Mark(":"), _) => slices.push(Some(self.slice()?)),
                (other, place) => return Err(self.expected("an operator or ']'", &other, place)),
            }
        }
        Ok((dims, slices))
    }

    /// Parses `end]`, `start, end]` or `start, end, step]`.
    fn slice(&mut self) -> Result<ParsedSlice, IdlError> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.expression()?);
            match self.next()? {
                (Token::Mark("]"), _) => break,
                (Token::Mark(","), _) if parts.len() < 3 => {}
                (other, place) if parts.len() < 3 => {
                    return Err(self.expected("an operator, ',' or ']'", &other, place));
                }
                (other, place) => return Err(self.expected("an operator or ']'", &other, place)),
            }
        }
        let mut parts = parts.into_iter();
        let (first, second, step) = (parts.next(), parts.next(), parts.next());
        Ok(match second {
            None => ParsedSlice { start: None, end: first, step },
            end => ParsedSlice { start: first, end, step },
        })
    }

    /// Returns the parameters with their extents, now that all names are known. If `is_shrunk`, only slices are sent.
    pub(crate) fn with_extents(
        &self,
        parsed: &[ParsedParam],
        names: &[String],
        is_shrunk: bool,
    ) -> Result<Vec<Param>, IdlError> {
        let mut params: Vec<Param> = parsed.iter().map(|declared| declared.param.clone()).collect();
        for (index, declared) in parsed.iter().enumerate() {
            let mut slices = Vec::with_capacity(declared.dims.len());
            let used = if declared.param.mode == Mode::VarOut { Use::SizeAfter } else { Use::Size };
            // Reports mistakes at each expression separately; all types are known by now.
            let known = |parsed: &ParsedExpr| {
                let expr = self.indexed(parsed.expr.clone(), names)?;
                self.check_expression(&expr, parsed, &params, names, used)?;
                Ok(expr)
            };
            for (dim, slice) in declared.dims.iter().zip(&declared.slices) {
                let mut known_slice = Slice::whole(known(dim)?);
                if let Some(ParsedSlice { start, end, step }) = slice {
                    let or = |parsed: &Option<ParsedExpr>, otherwise: &Expr| {
                        parsed.as_ref().map_or_else(|| Ok(otherwise.clone()), &known)
                    };
                    known_slice.start = or(start, &known_slice.start)?;
                    known_slice.end = or(end, &known_slice.end)?;
                    known_slice.step = or(step, &known_slice.step)?;
                }
                if known_slice.end == Expr::Number(0.0) {
                    known_slice.end = known_slice.size.clone();
                }
                let is_sliced = is_shrunk && matches!(declared.param.base, BaseType::Number(_));
                slices.push(if is_sliced { known_slice } else { Slice::whole(known_slice.size) });
            }
            params[index].values = match &declared.values {
                None => None,
                Some(ParsedDomain::Letters(letters)) => Some(AllowedValues::Characters(letters.clone())),
                Some(ParsedDomain::Range(first, last)) => Some(AllowedValues::Range(known(first)?, known(last)?)),
            };
            params[index].dims.extend(slices.iter().map(Slice::extent));
            if !slices.iter().all(Slice::is_whole) {
                params[index].slices = Some(slices);
            }
        }
        Ok(params)
    }

    #[allow(clippy::too_many_arguments)]
    fn check_declarator(
        &self,
        mode: Mode,
        base: BaseType,
        name: &str,
        pointer: bool,
        array: bool,
        place: Position,
        type_text: &str,
    ) -> Result<(), IdlError> {
        let message = match (base, mode) {
            (BaseType::Number(_), _) if pointer && array => {
                format!("arrays of pointers are not supported; write `{mode} {type_text} {name}[…]`")
            }
            (BaseType::Number(_), Mode::Out | Mode::InOut) if !pointer && !array && !self.is_routine => {
                format!("a scalar that the function sets is passed by pointer: write `{mode} {type_text} *{name}`")
            }
            (BaseType::Number(_), Mode::Work) if !pointer && !array => {
                format!("scratch space needs a size: write `WORK {type_text} {name}[n]`")
            }
            (_, Mode::VarOut) if !array || !matches!(base, BaseType::Number(_)) => format!(
                "VAROUT is an array of numbers whose size the function sets: write `VAROUT double {name}[count]` with \
                 `OUT int *count`"
            ),
            (BaseType::Stream, Mode::Out | Mode::InOut) if !pointer && !array => {
                format!("a file that the function sets is passed by pointer: write `{mode} filepointer *{name}`")
            }
            (BaseType::String | BaseType::File | BaseType::Stream, Mode::Work) => {
                format!("scratch space is an array of numbers: write `WORK char {name}[n]`")
            }
            _ => return Ok(()),
        };
        Err(self.error(place, message))
    }

    fn type_of(&self, words: &[(String, Position)]) -> Result<BaseType, IdlError> {
        let texts: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
        let known = type_from_words(&texts);
        known.ok_or_else(|| self.error(words[0].1, format!("unknown type '{}'; types are {TYPES}", type_text(words))))
    }
}

fn type_text(words: &[(String, Position)]) -> String {
    words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(" ")
}

fn mode_of(word: &str) -> Option<Mode> {
    match word {
        "IN" | "mode_in" => Some(Mode::In),
        "OUT" | "mode_out" => Some(Mode::Out),
        "INOUT" | "mode_inout" => Some(Mode::InOut),
        "WORK" | "mode_work" => Some(Mode::Work),
        "VAROUT" => Some(Mode::VarOut),
        _ => None,
    }
}

/// The extent of an array of one element, written `[]` or with a star.
fn one_element(place: Position) -> ParsedExpr {
    ParsedExpr { expr: Expr::Number(1.0), place, real: false }
}

/// The share of an argument that ranks other than the first receive, for that word: all of it, or memory for it.
fn on_ranks_by(word: &str) -> Option<RankShare> {
    match word {
        "broadcast" => Some(RankShare::Content),
        "allocate" => Some(RankShare::Memory),
        _ => None,
    }
}
