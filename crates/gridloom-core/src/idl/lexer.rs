//! Text of the interface description language, cut into tokens with their places.
//!
//! Tokens are made on demand, so that the parser can stop at a C body whose text is no IDL. Comments (`/* */`, `//`)
//! and lines whose first character is `#` (left by the C preprocessor) are skipped.

use thiserror::Error;

/// An error in an IDL text, with its place and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct IdlError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, with the remedy.
    pub message: String,
}

/// A place in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// One token.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Token {
    Name(String),
    /// A number without point and exponent.
    Integer(f64),
    /// A number with one.
    Real(f64),
    Text(String),
    Character(u8),
    /// An operator or a mark of punctuation.
    Mark(&'static str),
    End,
}

impl Token {
    /// The token in words, for error messages.
    pub(crate) fn describe(&self) -> String {
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
pub(crate) struct Lexer<'a> {
    rest: &'a str,
    place: Place,
    line_is_blank: bool,
}

type Failure = (Place, String);

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Lexer<'a> {
        let rest = source.strip_prefix('\u{feff}').unwrap_or(source);
        Lexer { rest, place: Place { line: 1, column: 1 }, line_is_blank: true }
    }

    /// The next token and where it starts.
    pub(crate) fn next(&mut self) -> Result<(Token, Place), Failure> {
        self.skip_blank()?;
        let place = self.place;
        self.line_is_blank = false;
        let Some(first) = self.peek() else { return Ok((Token::End, place)) };
        let token = if first.is_alphabetic() || first == '_' {
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

    /// What is not read yet.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    fn number(&mut self, place: Place) -> Result<Token, Failure> {
        let start = self.rest;
        let mut real = false;
        self.take_while(|c| c.is_ascii_digit());
        if self.peek() == Some('.') {
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
        if !real && value > super::expr::EXACT_INTEGER_MAX {
            return Err((
                place,
                format!("the integer '{text}' is above 2^53 = 9007199254740992, the largest constant"),
            ));
        }
        Ok(if real { Token::Real(value) } else { Token::Integer(value) })
    }

    fn quoted(&mut self, quote: char, place: Place) -> Result<String, Failure> {
        self.advance();
        let mut text = String::new();
        loop {
            let at = self.place;
            let Some(character) = self.peek().filter(|c| *c != '\n') else {
                return Err((place, format!("this string has no closing {quote} on its line")));
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

    fn character(&mut self, place: Place) -> Result<Token, Failure> {
        let text = self.quoted('\'', place)?;
        match text.as_bytes() {
            [byte] if byte.is_ascii() => Ok(Token::Character(*byte)),
            _ => Err((place, format!("expected one ASCII character between ' and ', got {text:?}; a string takes \""))),
        }
    }

    fn mark(&mut self, first: char, place: Place) -> Result<Token, Failure> {
        for mark in MARKS {
            if self.rest.starts_with(mark) {
                mark.chars().for_each(|_| self.advance());
                return Ok(Token::Mark(mark));
            }
        }
        Err((place, format!("the character {first:?} has no meaning here")))
    }

    fn skip_blank(&mut self) -> Result<(), Failure> {
        loop {
            let place = self.place;
            if self.rest.starts_with("//") {
                self.take_while(|c| c != '\n');
            } else if self.rest.starts_with("/*") {
                let Some(length) = self.rest[2..].find("*/") else {
                    return Err((place, "this comment has no closing */".to_string()));
                };
                let after = self.rest.len() - (length + 4);
                while self.rest.len() > after {
                    self.advance();
                }
            } else if self.line_is_blank && self.rest.starts_with('#') {
                self.skip_directive();
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.advance();
            } else {
                return Ok(());
            }
        }
    }

    /// A `#` line, with the lines that its last backslash joins to it.
    fn skip_directive(&mut self) {
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
            self.place = Place { line: self.place.line + 1, column: 1 };
            self.line_is_blank = true;
        } else {
            self.place.column += 1;
        }
    }
}

pub(crate) fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Longer ones first, so that `<=` is not `<` and `=`.
const MARKS: [&str; 26] = [
    "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ";", ":", "?", "=", "<", ">", "+", "-", "*",
    "/", "%", "^", "!",
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
        assert_eq!(tokens(source).unwrap_err().0, Place { line: 5, column: 4 });
        assert_eq!(tokens("a/**/b").unwrap(), [Token::Name("a".into()), Token::Name("b".into())]);
    }

    #[test]
    fn numbers_tell_integers_from_reals() {
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
