//! Functions that a server may offer, or that a client may call. In a certificate, each pattern is a URI,
//! `gridloom://GRID/function/PATTERN`.

use std::fmt;
use std::str::FromStr;

use gridloom_base::NameKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::identity::grid_uri;
use crate::invalid::Invalid;
use crate::percent;

/// Names of functions: `*` is any sequence of characters, so `*` is every function, and `linalg/*` a whole module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pattern(String);

/// A list of patterns, without repetitions. The empty list permits no function.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct Patterns(Vec<Pattern>);

impl Pattern {
    /// True if the pattern includes a function, `module/function`.
    pub fn matches(&self, function: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().expect("a split text has a first part");
        let Some(mut rest) = function.strip_prefix(first) else { return false };
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

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Pattern, Invalid> {
        let wrong = |why: String| {
            let shown: String = text.chars().take(64).collect();
            let shown = gridloom_base::EscapedLine(&shown);
            Invalid::new(format!("'{shown}' is not a pattern of functions: {why}"))
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

impl Patterns {
    /// # Errors
    /// If the patterns are too long for a certificate.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>) -> Result<Patterns, Invalid> {
        let mut all: Vec<Pattern> = patterns.into_iter().collect();
        all.sort();
        all.dedup();
        let length: usize = all.iter().map(|pattern| percent::encode(&pattern.0).len()).sum();
        match length > PATTERNS_BYTES_MAX {
            true => Err(Invalid::new(format!(
                "{} patterns of functions have {length} bytes in a certificate, and the limit is {PATTERNS_BYTES_MAX}; \
                 use '*' in them",
                all.len()
            ))),
            false => Ok(Patterns(all)),
        }
    }

    /// Every function.
    pub fn all() -> Patterns {
        Patterns(vec![Pattern("*".into())])
    }

    /// True if one of the patterns includes a function, `module/function`.
    pub fn permit(&self, function: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(function))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    pub(crate) fn uris<'a>(&'a self, grid: &str) -> impl Iterator<Item = String> + use<'a> {
        let grid = grid_uri(grid);
        self.0.iter().map(move |pattern| format!("{grid}/{FUNCTION}/{}", percent::encode(&pattern.0)))
    }

    /// Returns the pattern of a URI of this grid; `None` if the URI does not stand for one.
    pub(crate) fn of_uri(grid: &str, uri: &str) -> Option<Pattern> {
        let rest = uri.strip_prefix(&grid_uri(grid))?.strip_prefix('/')?;
        percent::decode(rest.strip_prefix(FUNCTION)?.strip_prefix('/')?)?.parse().ok()
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&self.0.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" ")),
        }
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Patterns, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let patterns: Result<Vec<Pattern>, Invalid> = texts.iter().map(|text| text.parse()).collect();
        patterns.and_then(Patterns::new).map_err(serde::de::Error::custom)
    }
}

/// Maximum size of the patterns in a certificate. Certificates are part of each handshake, which has 16 KiB.
const PATTERNS_BYTES_MAX: usize = 4096;
/// In a URI, the word in the place of a role.
const FUNCTION: &str = "function";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    /// Says the same as [`Pattern::matches`], by trying everything.
    fn matches_slowly(pattern: &str, text: &str) -> bool {
        match pattern.chars().next() {
            None => text.is_empty(),
            Some('*') => (0..=text.len()).any(|at| matches_slowly(&pattern[1..], &text[at..])),
            Some(first) => text.starts_with(first) && matches_slowly(&pattern[1..], &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn stars_are_any_text(text in "[ab*]{0,4}/[ab*]{0,4}", function in "[ab]{0,6}/[ab]{0,6}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                prop_assert_eq!(pattern.matches(&function), matches_slowly(&text, &function));
            }
        }

        #[test]
        fn patterns_and_uris_belong_together(text in "[a-z*./]{1,12}", grid in "[a-z.-]{1,8}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                let patterns = Patterns::new([pattern.clone()]).unwrap();
                let uri = patterns.uris(&grid).next().unwrap();
                prop_assert_eq!(Patterns::of_uri(&grid, &uri), Some(pattern));
                prop_assert_eq!(Patterns::of_uri("other~", &uri), None);
            }
        }
    }

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
            assert_eq!(pattern(text).matches(function), is_included, "{text} {function}");
        }
        assert!(!Patterns::default().permit("a/b") && Patterns::all().permit("a/b"));
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
            let error = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let many = (0..1000).map(|number| pattern(&format!("module/function{number}")));
        let error = Patterns::new(many).unwrap_err().to_string();
        assert!(error.contains("the limit is 4096; use '*'"), "{error}");
    }
}
