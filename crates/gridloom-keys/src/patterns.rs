//! Functions that a server may offer, or that a client may call. In a certificate, each pattern is a URI,
//! `gridloom://GRID/function/PATTERN`.

use std::fmt;

pub use gridloom_base::Pattern;
use serde::{Deserialize, Deserializer, Serialize};

use crate::identity::grid_uri;
use crate::invalid::Invalid;
use crate::percent;

/// A list of patterns, without repetitions. The empty list permits no function.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// # Errors
    /// If the patterns are too long for a certificate.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>) -> Result<Patterns, Invalid> {
        let mut all: Vec<Pattern> = patterns.into_iter().collect();
        all.sort();
        all.dedup();
        let length: usize = all.iter().map(|pattern| percent::encode(pattern.as_str()).len()).sum();
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
        Patterns(vec![Pattern::all()])
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
        self.0.iter().map(move |pattern| format!("{grid}/{FUNCTION}/{}", percent::encode(pattern.as_str())))
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
        Vec::<Pattern>::deserialize(deserializer).and_then(|all| Patterns::new(all).map_err(serde::de::Error::custom))
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
    fn a_list_permits_what_one_of_its_patterns_includes() {
        let some = Patterns::new([pattern("a/*"), pattern("b/c")]).unwrap();
        assert!(some.permit("a/x") && some.permit("b/c") && !some.permit("b/d"));
        assert!(!Patterns::default().permit("a/b") && Patterns::all().permit("a/b"));
    }

    #[test]
    fn too_many_patterns_are_refused_with_the_remedy() {
        let many = (0..1000).map(|number| pattern(&format!("module/function{number}")));
        let error = Patterns::new(many).unwrap_err().to_string();
        assert!(error.contains("the limit is 4096; use '*'"), "{error}");
    }
}
