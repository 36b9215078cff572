//! GridSolve's description of a function: `SUBROUTINE name(…)` or `FUNCTION type name(…)`, and settings `NAME = "…"`.
//!
//! The routine is a symbol of a library and receives its parameters as declared. The value of a `FUNCTION` becomes the last
//! result, which has the function's name. Arrays are stored as `MAJOR` says, and callers in C have them row-major.
//! Extents are (rows, columns) either way, so `a[lda][n]` by columns is declared in Fortran as `A(LDA, N)`.

use super::cursor::{Parser, SourceLanguage};
use super::lexer::{IdlError, Position, Token};
use super::parsed::ParsedExpr;
use super::parsed::ParsedParam;
use crate::ranks::RankShare;
use crate::scalar::can_be_returned;
use crate::signature::{ArrayOrder, BaseType, Body, CallArgument, Definition, Language, Mode, Param, Signature};
use crate::type_words::{is_type_word, type_from_words};
use gridloom_base::Dtype;
use gridloom_base::limits::NAME_BYTES_MAX;
use gridloom_base::near::{did_you_mean, near_names};

/// The part before the parameters.
pub(crate) struct Head {
    /// The name that callers use, and its position.
    pub(crate) function: String,
    pub(crate) place: Position,
    /// The symbol of the routine.
    pub(crate) symbol: String,
    /// The type of its value.
    pub(crate) value: Option<Dtype>,
    /// The language of a `PROBLEM`.
    pub(crate) problem_in: Option<Language>,
}

#[derive(Default)]
struct Settings {
    language: Option<Language>,
    order: Option<ArrayOrder>,
    work: Option<ParsedExpr>,
    symbol: Option<String>,
}

impl Parser<'_> {
    /// Parses the text after `SUBROUTINE` or `FUNCTION`.
    pub(crate) fn routine(&mut self, is_function: bool) -> Result<Definition, IdlError> {
        let value = if is_function { self.value_type()? } else { None };
        let (function, place) = self.name("the routine's name")?;
        self.routine_definition(Head { symbol: function.clone(), function, place, value, problem_in: None })
    }

    /// Parses the text after the name of a routine.
    pub(crate) fn routine_definition(&mut self, head: Head) -> Result<Definition, IdlError> {
        self.uses.clear();
        self.callbacks.clear();
        self.nodes = 0;
        self.is_routine = true;
        let definition = self.routine_behind(head);
        self.is_routine = false;
        definition
    }

    fn routine_behind(&mut self, head: Head) -> Result<Definition, IdlError> {
        let Head { function, place, symbol: routine, value, problem_in } = head;
        let name = self.full_name(&function, place)?;
        let mut parsed = self.parameters()?;
        if let Some(dtype) = value {
            parsed.push(self.value_of(&function, place, dtype, &parsed)?);
        }
        let mut about = self.description()?;
        if problem_in.is_some() {
            about = about.split_whitespace().collect::<Vec<&str>>().join(" ");
        }
        let settings = self.settings(problem_in)?;
        self.take_mark(";")?;
        let (names, mut params) = self.resolved(&parsed, false)?;
        let work = self.work(settings.work.as_ref(), &params, &names)?;
        let language = settings.language.unwrap_or(Language::C);
        self.check_fresh(language == Language::Fortran, &params, place)?;
        let order = settings.order.unwrap_or(language.array_order());
        params.iter_mut().filter(|param| param.is_array).for_each(|param| param.order = order);
        let passed = params.len() - usize::from(value.is_some());
        let args = (0..passed).map(CallArgument::Param).collect();
        let result = value.map(|dtype| (dtype, passed));
        let symbol = settings.symbol.unwrap_or_else(|| match language {
            Language::C => routine,
            // Fortran ignores case, and its compilers write lower-case letters.
            Language::Fortran => self.fortran_symbol(&routine.to_lowercase()),
        });
        if let Some(callback) = self.callbacks.first() {
            let message = format!("a routine has no callbacks such as '{}'; describe it with 'Define'", callback.name);
            return Err(self.error(place, message));
        }
        let signature = Signature { name, params, callbacks: Vec::new(), work, uses: Vec::new(), about };
        signature.check().map_err(|message| self.error(place, message))?;
        Ok(Definition { signature, body: Body::Native { language, symbol, args, result } })
    }

    /// The type of a function's value; `None` for `void`.
    pub(crate) fn value_type(&mut self) -> Result<Option<Dtype>, IdlError> {
        let place = self.peek()?.1;
        let mut words = Vec::new();
        while let (Token::Name(word), _) = self.peek()? {
            if !is_type_word(&word) && word != "void" {
                break;
            }
            self.next()?;
            words.push(word);
        }
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        match type_from_words(&texts) {
            _ if texts == ["void"] => Ok(None),
            Some(BaseType::Number(dtype)) if can_be_returned(dtype) => Ok(Some(dtype)),
            _ => {
                let got = texts.join(" ");
                let message = format!(
                    "expected the type of the function's value, a number's, got '{got}'; a SUBROUTINE has no value, and \
                     others go to OUT parameters"
                );
                Err(self.error(place, message))
            }
        }
    }

    /// Returns the function's value as a parameter after the others.
    fn value_of(
        &self,
        function: &str,
        place: Position,
        dtype: Dtype,
        params: &[ParsedParam],
    ) -> Result<ParsedParam, IdlError> {
        if params.iter().any(|other| other.param.name == function) {
            let message = format!("parameter '{function}' has the name of the function, which is that of its value");
            return Err(self.error(place, format!("{message}; rename the parameter")));
        }
        let param = Param::scalar(function, Mode::Out, BaseType::Number(dtype));
        Ok(ParsedParam {
            param,
            dims: Vec::new(),
            slices: Vec::new(),
            values: None,
            on_ranks: RankShare::default(),
            place,
        })
    }

    /// Parses the settings of a problem, after its language, or of a routine.
    fn settings(&mut self, problem_in: Option<Language>) -> Result<Settings, IdlError> {
        let mut settings = Settings { language: problem_in, ..Settings::default() };
        loop {
            let (token, place) = self.peek()?;
            let Token::Name(word) = &token else { return Ok(settings) };
            if problem_in.is_some() && is_movability_mark(word) {
                self.next()?;
                continue;
            }
            if !WORDS.contains(&word.as_str()) {
                return self.end_of_settings(word, place, settings);
            }
            self.next()?;
            self.mark("=")?;
            let is_second = match word.as_str() {
                "LANGUAGE" => settings.language.replace(self.routine_language()?).is_some(),
                "MAJOR" => settings.order.replace(self.major()?).is_some(),
                "COMPLEXITY" => settings.work.replace(self.complexity()?).is_some(),
                "SYMBOL" => settings.symbol.replace(self.symbol()?).is_some(),
                _ => {
                    let libraries = self.text("libraries such as \"-llapack\"")?.0;
                    self.result.libraries.push(libraries);
                    false
                }
            };
            if is_second {
                return Err(self.error(place, format!("a second '{word}'; leave one out")));
            }
        }
    }

    /// Ends the settings at a word that is not a setting: it begins the next statement, unless `=` follows.
    fn end_of_settings(&self, word: &str, place: Position, settings: Settings) -> Result<Settings, IdlError> {
        if self.peek_second()? != Token::Mark("=") {
            return Ok(settings);
        }
        let near = did_you_mean(&near_names(word, WORDS.into_iter()));
        Err(self.error(place, format!("unknown setting '{word}'; there are {}{near}", WORDS.join(", "))))
    }

    fn routine_language(&mut self) -> Result<Language, IdlError> {
        let place = self.peek()?.1;
        match self.language()? {
            SourceLanguage::C => Ok(Language::C),
            SourceLanguage::Fortran => Ok(Language::Fortran),
            SourceLanguage::Cpp => {
                let message = "routines are \"C\" or \"FORTRAN\"; a C++ function is called by `Define … Calls \"C++\"`, or as \
                               \"C\" if it is extern \"C\"";
                Err(self.error(place, message.to_string()))
            }
        }
    }

    fn major(&mut self) -> Result<ArrayOrder, IdlError> {
        let (text, place) = self.text("\"ROW\" or \"COLUMN\"")?;
        match text.to_uppercase().as_str() {
            "ROW" => Ok(ArrayOrder::C),
            "COLUMN" | "COL" => Ok(ArrayOrder::Transposed),
            _ => Err(self.error(place, format!("expected \"ROW\" or \"COLUMN\", got {text:?}"))),
        }
    }

    fn symbol(&mut self) -> Result<String, IdlError> {
        let (text, place) = self.text("the routine's symbol")?;
        if text.is_empty() || text.contains('\0') || text.len() > NAME_BYTES_MAX {
            let message = format!("expected the routine's symbol, of at most {NAME_BYTES_MAX} bytes, got {text:?}");
            return Err(self.error(place, message));
        }
        Ok(text)
    }

    /// Parses an expression with or without quotes.
    fn complexity(&mut self) -> Result<ParsedExpr, IdlError> {
        let Some(quoted) = self.lexer.quoted_part().map_err(|failure| self.failed(failure))? else {
            return self.expression();
        };
        self.next()?;
        let behind = std::mem::replace(&mut self.lexer, quoted);
        let parsed = self.expression()?;
        let (token, place) = self.next()?;
        if token != Token::End {
            return Err(self.expected("an operator or the end of the expression", &token, place));
        }
        self.lexer = behind;
        Ok(parsed)
    }
}

const WORDS: [&str; 5] = ["LANGUAGE", "MAJOR", "LIBS", "COMPLEXITY", "SYMBOL"];

/// True if the word states whether a routine may be moved.
fn is_movability_mark(word: &str) -> bool {
    word.eq_ignore_ascii_case("MOVEABLE") || word.eq_ignore_ascii_case("NONMOVEABLE")
}
