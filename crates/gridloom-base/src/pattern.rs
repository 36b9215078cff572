//! Patterns of function names, which state what a user may call.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{EscapedLine, NameKind};

/// Names of functions: `*` is any sequence of characters, so `*` is every function, and `linalg/*` a whole module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pattern(String);

impl Pattern {
    /// Every function.
    pub fn all() -> Pattern {
        Pattern("*".into())
    }

    /// The functions that run code of the program.
    pub fn of_code() -> Pattern {
        Pattern("python/*".into())
    }

    /// True if the pattern includes a function, `module/function`.
    pub fn matches(&self, function: &str) -> bool {
        matches_with_stars(&self.0, function)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// True if a text has the form of a pattern, in which `*` is any sequence of characters.
pub(crate) fn matches_with_stars(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().expect("a split text has a first part");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        // The earliest place leaves the most for the other parts.
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let wrong = |why: String| {
            let shown: String = text.chars().take(64).collect();
            format!("'{}' is not a pattern of functions: {why}", EscapedLine(&shown))
        };
        let limit = NameKind::Function.bytes_max();
        if text.is_empty() || text.len() > limit {
            return Err(wrong(format!("it has {} bytes; use 1 to {limit}", text.len())));
        }
        // A pattern may have a star wherever a name has characters.
        let name = text.replace('*', "x");
        let named = if name.contains('/') { name.clone() } else { format!("{name}/x") };
        let is_star = text.bytes().all(|byte| byte == b'*');
        match NameKind::Function.check(&named) {
            Ok(()) if name.contains('/') || is_star => Ok(Pattern(text.into())),
            Ok(()) => Err(wrong(format!("expected '*', 'MODULE/FUNCTION' or 'MODULE/*', such as '{text}/*'"))),
            Err(error) => Err(wrong(error.why)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_include_modules_and_functions() {
        for (text, function, is_included) in [
            ("*", "linalg/dgemm", true),
            ("linalg/*", "linalg/dgemm", true),
            ("linalg/*", "linalg2/dgemm", false),
            ("linalg/d*", "linalg/dgemm", true),
            ("linalg/d*", "linalg/sgemm", false),
            ("*/dgemm", "linalg/dgemm", true),
            ("linalg/dgemm", "linalg/dgemm", true),
            ("linalg/dgemm", "linalg/dgemmx", false),
            ("a*a/b", "a/b", false),
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap().matches(function), is_included, "{text} {function}");
        }
    }

    #[test]
    fn wrong_patterns_are_refused_with_the_remedy() {
        for (text, why) in [
            ("", "use 1 to 255"),
            ("linalg", "such as 'linalg/*'"),
            ("a/b/c", "'/' is not allowed"),
            ("a b/c", "' ' is not allowed"),
            ("a/\u{1b}", "is not allowed"),
            (&"x".repeat(300), "it has 300 bytes"),
        ] {
            let error = text.parse::<Pattern>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
