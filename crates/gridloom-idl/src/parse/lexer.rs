//! Splits text of the interface description language into tokens with their positions.
//!
//! Tokens are made on demand, so that the parser can stop at a C body, which is not IDL ([`Lexer::c_text`]). Comments are
//! those of C; lines that begin with `#` (left by the C preprocessor) are skipped. In a file of the language, GridSolve's
//! comments are accepted too, from any `#` to the end of its line. But a `#define`, or another directive, that begins a line
//! is a separate item between statements ([`Lexer::directive`]). Names that the file `#define`s are replaced ([`Macros`]); the
//! replacement has the position of the name.

use gridloom_base::Escaped;
use thiserror::Error;

use super::macros::Macros;
use crate::c_text::CText;
use crate::expr::EXACT_INTEGER_MAX;
use crate::names::{is_name_character, is_name_start};

/// An error in an IDL text, with its position and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{}:{line}:{column}: {}", Escaped(file), Escaped(message))]
pub struct IdlError {
    /// Name of the file, as given by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The mistake and the remedy.
    pub message: String,
}

/// A position in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Token {
    Name(String),
    /// A number without point and exponent.
    Integer(f64),
    /// A number with a point or an exponent.
    Real(f64),
    Text(String),
    Character(u8),
    /// An operator or a mark of punctuation.
    Mark(&'static str),
    End,
}

impl Token {
    /// The token in words, for error messages.
    pub fn describe(&self) -> String {
        match self {
            Token::Name(name) => format!("'{name}'"),
            Token::Integer(number) => format!("the number {number}"),
            Token::Real(number) => format!("the number {number:?}"),
            Token::Text(text) => format!("the string {text:?}"),
            Token::Character(character) => format!("the character {:?}", char::from(*character)),
            Token::Mark(mark) => format!("'{mark}'"),
            Token::End => "the end of the text".to_string(),
        }
    }
}

/// Reads tokens. Cheap to copy, so that the parser can look ahead.
#[derive(Clone, Copy, Debug)]
pub struct Lexer<'a> {
    rest: &'a str,
    place: Position,
    line_is_blank: bool,
    /// True if strings may continue on the next line, as in NetSolve.
    pub has_long_texts: bool,
    /// True if the text is a file of the language, and not an expression or C.
    is_file: bool,
    macros: Option<&'a Macros>,
    /// While a replacement is read: the text after the name, and the positions of the name and of its end.
    outer: Option<(&'a str, Position, Position)>,
}

/// Position and reason of text that is not a token.
pub type Failure = (Position, String);

impl<'a> Lexer<'a> {
    pub fn new(source: &'a str) -> Lexer<'a> {
        let rest = source.strip_prefix('\u{feff}').unwrap_or(source);
        let place = Position { line: 1, column: 1 };
        Lexer { rest, place, line_is_blank: true, has_long_texts: false, is_file: false, macros: None, outer: None }
    }

    /// Reads a file, and replaces the names in `macros`.
    pub(crate) fn of_file(source: &'a str, macros: &'a Macros) -> Lexer<'a> {
        Lexer { macros: Some(macros), is_file: true, ..Lexer::new(source) }
    }

    /// Returns the next token and its position.
    #[allow(clippy::should_implement_trait, reason = "a parser asks for tokens past the end, too")]
    pub fn next(&mut self) -> Result<(Token, Position), Failure> {
        loop {
            let used = self.outer.map(|(_, used, _)| used);
            let read = self.token();
            let (token, place) = match (read, used) {
                (Ok((token, _)), Some(used)) => (token, used),
                (Err((_, message)), Some(used)) => return Err((used, message)),
                (read, None) => read?,
            };
            match (&token, self.outer) {
                (Token::End, Some((rest, _, behind))) => {
                    (self.rest, self.place, self.outer) = (rest, behind, None);
                }
                (Token::Name(name), None) => match self.macros.and_then(|macros| macros.get(name)) {
                    Some(text) => {
                        self.outer = Some((self.rest, place, self.place));
                        self.rest = text;
                    }
                    None => return Ok((token, place)),
                },
                _ => return Ok((token, place)),
            }
        }
    }

    fn token(&mut self) -> Result<(Token, Position), Failure> {
        self.skip_blank()?;
        let place = self.place;
        self.line_is_blank = false;
        let Some(first) = self.peek() else { return Ok((Token::End, place)) };
        let token = if is_name_start(first) {
            Token::Name(self.take_while(is_name_character).to_string())
        } else if first.is_ascii_digit() || (first == '.' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            self.number(place)?
        } else if first == '"' {
            Token::Text(self.quoted('"', place)?)
        } else if first == '\'' {
            self.character(place)?
        } else {
            self.mark(first, place)?
        };
        Ok((token, place))
    }

    /// The text that is not read yet.
    pub fn rest(&self) -> &'a str {
        self.rest
    }

    /// Reads the text between quotes, if a string without escapes is next.
    pub fn quoted_part(&self) -> Result<Option<Lexer<'a>>, Failure> {
        let mut ahead = *self;
        ahead.skip_blank()?;
        let Some(rest) = ahead.rest.strip_prefix('"') else { return Ok(None) };
        let Some(part) = rest.find(['"', '\\', '\n']).map(|end| &rest[..end]) else { return Ok(None) };
        let Position { line, column } = ahead.place;
        let place = Position { line, column: column + 1 };
        let ends = rest[part.len()..].starts_with('"');
        Ok(ends.then_some(Lexer { rest: part, place, line_is_blank: false, outer: None, ..*self }))
    }

    fn number(&mut self, place: Position) -> Result<Token, Failure> {
        let start = self.rest;
        let mut real = false;
        self.take_while(|c| c.is_ascii_digit());
        // Two points separate the bounds of a range.
        if self.peek() == Some('.') && !self.rest.starts_with("..") {
            real = true;
            self.advance();
            self.take_while(|c| c.is_ascii_digit());
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            let sign = usize::from(self.rest[1..].starts_with(['+', '-']));
            if self.rest[1 + sign..].starts_with(|c: char| c.is_ascii_digit()) {
                real = true;
                (0..=sign).for_each(|_| self.advance());
                self.take_while(|c| c.is_ascii_digit());
            }
        }
        let text = &start[..start.len() - self.rest.len()];
        if self.peek().is_some_and(is_name_character) {
            let tail = self.take_while(is_name_character);
            return Err((
                place,
                format!("expected a number, got '{text}{tail}'; suffixes and other bases are not used"),
            ));
        }
        let value: f64 = text.parse().map_err(|_| (place, format!("expected a number, got '{text}'")))?;
        if real && !value.is_finite() {
            return Err((place, format!("the number '{text}' is too large for a double")));
        }
        if !real && value > EXACT_INTEGER_MAX {
            return Err((
                place,
                format!("the integer '{text}' is above 2^53 = 9007199254740992, the largest constant"),
            ));
        }
        Ok(if real { Token::Real(value) } else { Token::Integer(value) })
    }

    fn quoted(&mut self, quote: char, place: Position) -> Result<String, Failure> {
        self.advance();
        let mut text = String::new();
        loop {
            let at = self.place;
            let Some(character) = self.peek().filter(|c| *c != '\n' || self.has_long_texts) else {
                let line = if self.has_long_texts { "" } else { " on its line" };
                return Err((place, format!("this string has no closing {quote}{line}")));
            };
            self.advance();
            if character == quote {
                return Ok(text);
            }
            if character != '\\' {
                text.push(character);
                continue;
            }
            let escaped = self.peek();
            self.advance();
            text.push(match escaped {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(same @ ('\\' | '"' | '\'')) => same,
                _ => return Err((at, r#"expected \n, \t, \\, \" or \' after the backslash"#.to_string())),
            });
        }
    }

    fn character(&mut self, place: Position) -> Result<Token, Failure> {
        let text = self.quoted('\'', place)?;
        match text.as_bytes() {
            [byte] if byte.is_ascii() => Ok(Token::Character(*byte)),
            _ => Err((place, format!("expected one ASCII character between ' and ', got {text:?}; a string takes \""))),
        }
    }

    fn mark(&mut self, first: char, place: Position) -> Result<Token, Failure> {
        for mark in MARKS {
            if self.rest.starts_with(mark) {
                mark.chars().for_each(|_| self.advance());
                return Ok(Token::Mark(mark));
            }
        }
        Err((place, format!("the character {first:?} has no meaning here")))
    }

    /// Reads the next `#define`, or other directive of the C preprocessor, if only blank precedes it. Returns its position, and
    /// its line joined with the next ones if it ends in a backslash.
    pub fn directive(&mut self) -> Result<Option<(Position, &'a str)>, Failure> {
        self.skip_to_directive()?;
        if !self.is_at_directive() {
            return Ok(None);
        }
        let (place, start) = (self.place, self.rest);
        self.skip_joined_lines();
        Ok(Some((place, &start[..start.len() - self.rest.len()])))
    }

    /// Reads the C text up to the brace that closes the one just read, which is at `opening`.
    pub fn c_text(&mut self, opening: Position) -> Result<CText, Failure> {
        let (start, Position { line, column }) = (self.rest, self.place);
        let mut depth = 0usize;
        loop {
            if self.skip_comment()? {
                continue;
            }
            match self.peek() {
                None => return Err((opening, "this '{' has no closing '}'".to_string())),
                Some('"' | '\'') => self.skip_c_quoted(),
                Some('}') if depth == 0 => {
                    let text = start[..start.len() - self.rest.len()].to_string();
                    self.advance();
                    return Ok(CText { line, column, text });
                }
                Some(character) => {
                    depth = match character {
                        '{' => depth + 1,
                        '}' => depth - 1,
                        _ => depth,
                    };
                    self.advance();
                }
            }
        }
    }

    /// Returns all directives of a text, including those in its C parts, up to an unterminated comment.
    pub fn directives(source: &'a str) -> Vec<&'a str> {
        let mut lexer = Lexer { is_file: true, ..Lexer::new(source) };
        let mut found = Vec::new();
        while let Ok(directive) = lexer.directive() {
            match (directive, lexer.peek()) {
                (Some((_, line)), _) => found.push(line),
                (None, None) => break,
                (None, Some('"' | '\'')) => lexer.skip_c_quoted(),
                (None, Some(_)) => {
                    lexer.line_is_blank = false;
                    lexer.advance();
                }
            }
        }
        found
    }

    fn skip_blank(&mut self) -> Result<(), Failure> {
        self.skip_to_directive()?;
        match self.is_at_directive() {
            true => Err((self.place, "directives of the C preprocessor must be between definitions".to_string())),
            false => Ok(()),
        }
    }

    fn skip_to_directive(&mut self) -> Result<(), Failure> {
        loop {
            if self.skip_comment()? {
                continue;
            }
            if self.rest.starts_with('#') && self.line_is_blank && !self.is_at_directive() {
                self.skip_joined_lines();
            } else if self.rest.starts_with('#') && !self.line_is_blank && self.is_file {
                self.take_while(|c| c != '\n');
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.advance();
            } else {
                return Ok(());
            }
        }
    }

    /// Skips one comment of C, if one begins here.
    fn skip_comment(&mut self) -> Result<bool, Failure> {
        if self.rest.starts_with("//") {
            self.take_while(|c| c != '\n');
            return Ok(true);
        }
        if !self.rest.starts_with("/*") {
            return Ok(false);
        }
        let Some(length) = self.rest[2..].find("*/") else {
            return Err((self.place, "this comment has no closing */".to_string()));
        };
        let after = self.rest.len() - (length + 4);
        while self.rest.len() > after {
            self.advance();
        }
        Ok(true)
    }

    /// Skips a string or character of C. A quote without a match on its line is an ordinary character, as in `#error` lines.
    fn skip_c_quoted(&mut self) {
        let quote = self.peek();
        let mut ahead = *self;
        ahead.advance();
        loop {
            match ahead.peek() {
                None | Some('\n') => return self.advance(),
                Some('\\') => {
                    ahead.advance();
                    ahead.advance();
                }
                character => {
                    ahead.advance();
                    if character == quote {
                        *self = ahead;
                        return;
                    }
                }
            }
        }
    }

    /// True if a directive begins here: `#` as the line's first character, directly followed by its word.
    fn is_at_directive(&self) -> bool {
        let word = self.rest.strip_prefix('#').filter(|_| self.is_file && self.line_is_blank);
        word.is_some_and(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            DIRECTIVES.contains(&&rest[..end])
        })
    }

    /// Skips a line, with the next ones if it ends in a backslash.
    fn skip_joined_lines(&mut self) {
        loop {
            let line = self.take_while(|c| c != '\n');
            if !line.trim_end_matches('\r').ends_with('\\') || self.peek().is_none() {
                return;
            }
            self.advance();
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let start = self.rest;
        while self.peek().is_some_and(&wanted) {
            self.advance();
        }
        &start[..start.len() - self.rest.len()]
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn advance(&mut self) {
        let Some(character) = self.peek() else { return };
        self.rest = &self.rest[character.len_utf8()..];
        if character == '\n' {
            self.place = Position { line: self.place.line + 1, column: 1 };
            self.line_is_blank = true;
        } else {
            self.place.column += 1;
        }
    }
}

/// Directives that affect what is read. Others (`#pragma`, line markers) are comments.
const DIRECTIVES: [&str; 9] = ["define", "undef", "include", "if", "ifdef", "ifndef", "elif", "else", "endif"];

/// Longer ones first, so that `<=` is not `<` and `=`.
const MARKS: [&str; 27] = [
    "..", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ";", ":", "?", "=", "<", ">", "+",
    "-", "*", "/", "%", "^", "!",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Result<Vec<Token>, Failure> {
        let mut lexer = Lexer::new(source);
        let mut found = Vec::new();
        loop {
            match lexer.next()? {
                (Token::End, _) => return Ok(found),
                (token, _) => found.push(token),
            }
        }
    }

    #[test]
    fn comments_and_directives_are_skipped() {
        let source = "/* a\n b */ x // c\n  # define a \\\n more\r\n y # ";
        assert_eq!(tokens(source).unwrap_err().0, Position { line: 5, column: 4 });
        assert_eq!(tokens("a/**/b").unwrap(), [Token::Name("a".into()), Token::Name("b".into())]);
    }

    #[test]
    fn c_text_ends_at_its_brace() {
        let text = " a(\"}\"); /* } */ if (b) { c = '}'; } // }\n#error don't\n ";
        let source = format!("{{{text}}} x");
        let mut lexer = Lexer::new(&source);
        let (_, opening) = lexer.next().unwrap();
        let CText { line, column, text: found } = lexer.c_text(opening).unwrap();
        assert_eq!((line, column, found.as_str()), (1, 2, text));
        assert_eq!(lexer.next().unwrap(), (Token::Name("x".into()), Position { line: 3, column: 4 }));
        let mut open = Lexer::new("{ { }");
        let (_, opening) = open.next().unwrap();
        assert_eq!(open.c_text(opening).unwrap_err().0, Position { line: 1, column: 1 });
    }

    #[test]
    fn directives_are_between_statements() {
        let macros = Macros::default();
        let source = " /* a */ #define N \\\n 2\n# 1 \"x\"\n#pragma p\n x # y\n#if 1\n";
        let mut lexer = Lexer::of_file(source, &macros);
        assert_eq!(lexer.directive().unwrap(), Some((Position { line: 1, column: 10 }, "#define N \\\n 2")));
        assert_eq!(lexer.directive().unwrap(), None);
        assert_eq!(lexer.next().unwrap().0, Token::Name("x".into()));
        assert_eq!(lexer.next().unwrap_err().0, Position { line: 6, column: 1 });
        assert_eq!(
            Lexer::directives("#define A 1\n/*\n#define B 2\n*/ { \"\n#define C 3\n}"),
            ["#define A 1", "#define C 3"]
        );
    }

    #[test]
    fn numbers_are_integers_or_reals() {
        let found = tokens("1 1. .5 1e3 2E-1 9007199254740992").unwrap();
        let reals = [1.0, 0.5, 1000.0, 0.2].map(Token::Real);
        assert_eq!(found[0], Token::Integer(1.0));
        assert_eq!(found[1..5], reals);
        assert!(tokens("1x").unwrap_err().1.contains("got '1x'"));
        assert!(tokens("1e999").unwrap_err().1.contains("too large"));
        assert!(tokens("9007199254740993000").unwrap_err().1.contains("above 2^53"));
    }

    #[test]
    fn strings_have_escapes_and_an_end() {
        assert_eq!(tokens(r#""a\"b\n" 'N'"#).unwrap(), [Token::Text("a\"b\n".into()), Token::Character(b'N')]);
        assert!(tokens("\"a\n\"").unwrap_err().1.contains("no closing \""));
        assert!(tokens("'NT'").unwrap_err().1.contains("one ASCII character"));
        assert!(tokens(r#""\q""#).unwrap_err().1.contains("after the backslash"));
    }
}
