//! Shared data that a function gets and puts: `Gets("part/{i}", n * 8)`, `Puts("sum", 8, replicas 2, durable, method swarm)`.

use gridloom_base::limits::REPLICAS_MAX;

use super::cursor::Parser;
use super::lexer::{IdlError, Position, Token};
use super::parse_expression;
use super::parsed::ParsedDataUse;
use crate::evaluation::Use;
use crate::signature::{BaseType, Param};
use crate::uses::{NamePart, Retention, SharedUse, UseKind, split};

impl Parser<'_> {
    /// Parses the text after `Gets`, `Puts` or `Replaces`.
    pub(super) fn parsed_use(&mut self, word: &str, place: Position) -> Result<ParsedDataUse, IdlError> {
        let does = UseKind::of_word(word).expect("the caller has seen one of these");
        self.mark("(")?;
        let name = match self.next()? {
            (Token::Text(text), _) => text,
            // A parameter by itself.
            (Token::Name(name), _) => format!("{{{name}}}"),
            (other, place) => {
                let what = "a name in double quotes, such as \"part/{i}\", or a parameter that is a string";
                return Err(self.expected(what, &other, place));
            }
        };
        self.mark(",")?;
        let size_bytes = self.expression()?;
        let mut kept = Retention::default();
        while self.take_mark(",")? {
            self.parse_retention(does, &mut kept)?;
        }
        self.mark(")")?;
        Ok(ParsedDataUse { does, name, place, size_bytes, kept })
    }

    /// Parses `durable`, `replicas 2` or `method swarm` of data that are put.
    fn parse_retention(&mut self, does: UseKind, kept: &mut Retention) -> Result<(), IdlError> {
        let (token, place) = self.next()?;
        match &token {
            Token::Name(word) if does.puts() && word == "durable" => kept.is_durable = true,
            Token::Name(word) if does.puts() && word == "replicas" => {
                let (token, place) = self.next()?;
                let Token::Integer(replicas) = token else {
                    return Err(self.expected("how many servers keep it", &token, place));
                };
                if !(1.0..=f64::from(REPLICAS_MAX)).contains(&replicas) {
                    return Err(self.error(place, format!("{replicas} replicas: expected 1 to {REPLICAS_MAX}")));
                }
                kept.replicas = replicas as u16;
            }
            Token::Name(word) if does.puts() && word == "method" => {
                let (token, place) = self.next()?;
                let Token::Name(method) = &token else {
                    return Err(self.expected("a method of transfer, such as swarm", &token, place));
                };
                kept.method = method.parse().map_err(|message: String| self.error(place, message))?;
            }
            _ if does.puts() => return Err(self.expected("'durable', 'replicas' or 'method'", &token, place)),
            _ => return Err(self.expected("')'", &token, place)),
        }
        Ok(())
    }

    /// Resolves a use, now that the parameters are known.
    pub(super) fn shared_use(
        &self,
        parsed: &ParsedDataUse,
        params: &[Param],
        names: &[String],
    ) -> Result<SharedUse, IdlError> {
        let size_bytes = self.indexed(parsed.size_bytes.expr.clone(), names)?;
        self.check_expression(&size_bytes, &parsed.size_bytes, params, names, Use::Size)?;
        let name = parse_name(&parsed.name, params).map_err(|message| self.error(parsed.place, message))?;
        Ok(SharedUse { kind: parsed.does, name, size_bytes, retention: parsed.kept })
    }
}

/// Parses the parts of a name with expressions over these parameters in braces.
///
/// # Errors
/// The mistake, in words.
pub(crate) fn parse_name(pattern: &str, params: &[Param]) -> Result<Vec<NamePart>, String> {
    let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let part = |part: Result<String, String>| match part {
        Ok(text) => Ok(NamePart::Text(text)),
        Err(inside) => {
            let text = params.iter().position(|param| param.name == inside.trim() && is_text(param));
            match text {
                Some(index) => Ok(NamePart::Param(index)),
                None => parse_expression(&inside, &names)
                    .map(NamePart::Number)
                    .map_err(|error| format!("'{{{inside}}}' in {pattern:?}: {}", error.message)),
            }
        }
    };
    split(pattern)?.into_iter().map(part).collect()
}

fn is_text(param: &Param) -> bool {
    !param.is_array && matches!(param.base, BaseType::Text | BaseType::String)
}
