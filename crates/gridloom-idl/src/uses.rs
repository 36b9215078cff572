//! Declarations of shared data that a function gets and puts by name, in addition to its arguments.
//!
//! A name is a text with values of the call in braces: `part/{i}` is `part/3` if `i` is 3. Braces contain an integer expression
//! over the scalars of the call, or a string argument.

use gridloom_base::Method;
use serde::{Deserialize, Serialize};

use crate::expr::Expr;

/// One declared use of shared data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SharedUse {
    pub kind: UseKind,
    pub name: Vec<NamePart>,
    /// Its size in bytes.
    pub size_bytes: Expr,
    /// How servers keep it, if it is put.
    pub retention: Retention,
}

/// How servers keep data that are put.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retention {
    /// Number of servers that keep a copy.
    pub replicas: u16,
    /// True if it survives restarts of the servers.
    pub is_durable: bool,
    /// Transfer method to the servers that read it.
    #[serde(default)]
    pub method: Method,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { replicas: 1, is_durable: false, method: Method::Auto }
    }
}

/// Access of a function to a shared name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UseKind {
    Get,
    Put,
    /// It puts a new version.
    Replace,
}

/// A part of a name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum NamePart {
    Text(String),
    /// An integer, in decimal.
    Number(Expr),
    /// A string, by the index of its parameter.
    Param(usize),
}

/// A use of shared data by one call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UsedName {
    pub kind: UseKind,
    pub name: String,
    pub size_bytes: u64,
    pub retention: Retention,
}

impl UseKind {
    /// The keyword that declares it.
    pub fn word(self) -> &'static str {
        match self {
            UseKind::Get => "Gets",
            UseKind::Put => "Puts",
            UseKind::Replace => "Replaces",
        }
    }

    pub fn gets(self) -> bool {
        self == UseKind::Get
    }

    pub fn puts(self) -> bool {
        !self.gets()
    }

    pub(crate) fn of_word(word: &str) -> Option<UseKind> {
        [UseKind::Get, UseKind::Put, UseKind::Replace].into_iter().find(|does| does.word() == word)
    }
}

/// Splits a name into texts (`Ok`) and the contents of braces (`Err`).
///
/// # Errors
/// In words, if a brace is unmatched.
pub fn split(pattern: &str) -> Result<Vec<Result<String, String>>, String> {
    let mut parts: Vec<Result<String, String>> = Vec::new();
    let mut text = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '{' | '}' if rest.peek() == Some(&character) => {
                rest.next();
                text.push(character);
            }
            '{' => {
                let mut inside = String::new();
                loop {
                    match rest.next() {
                        Some('}') => break,
                        Some(other) => inside.push(other),
                        None => {
                            return Err(format!("'{{' in {pattern:?} has no '}}'; write '{{{{' for a literal one"));
                        }
                    }
                }
                if !text.is_empty() {
                    parts.push(Ok(std::mem::take(&mut text)));
                }
                parts.push(Err(inside));
            }
            '}' => return Err(format!("'}}' in {pattern:?} has no '{{'; write '}}}}' for a literal one")),
            other => text.push(other),
        }
    }
    if !text.is_empty() {
        parts.push(Ok(text));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_its_braces() {
        let parts = |pattern: &str| split(pattern);
        let (text, value) = (|text: &str| Ok(text.to_string()), |text: &str| Err(text.to_string()));
        assert_eq!(parts("mesh"), Ok(vec![text("mesh")]));
        assert_eq!(parts("part/{i}/{j+1}"), Ok(vec![text("part/"), value("i"), text("/"), value("j+1")]));
        assert_eq!(parts("{{a}}{b}"), Ok(vec![text("{a}"), value("b")]));
        assert_eq!(parts(""), Ok(vec![]));
        assert!(parts("part/{i").unwrap_err().contains("has no '}'"));
        assert!(parts("part/i}").unwrap_err().contains("has no '{'"));
    }
}
