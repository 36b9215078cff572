//! Errors in a platform or deployment file, with their positions.
//!
//! Every message names the wrong value, and the names that would have been right.

use std::fmt;

use gridloom_base::Escaped;

/// Line and column in a file, from 1.
pub(crate) type Position = (u32, u32);

/// A mistake in a platform or deployment, with its position in the file.
///
/// Prints as `star.toml:12:3: unknown host 'x'; known hosts: a, b`. A mistake that is not in a file (a builder call,
/// a route that does not exist) has an empty file name and line 0, which are not printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlatformError {
    /// Name of the file, as given by the caller.
    pub file: String,
    /// Line, from 1; 0 if it is not known.
    pub line: u32,
    /// Column in characters, from 1; 0 if it is not known.
    pub column: u32,
    /// The mistake.
    pub message: String,
}

impl PlatformError {
    /// Creates an error without a position (yet: see [`PlatformError::at`]).
    pub fn new(message: impl Into<String>) -> PlatformError {
        PlatformError { file: String::new(), line: 0, column: 0, message: message.into() }
    }

    /// Adds a position, unless the error has one already.
    #[must_use]
    pub fn at(mut self, file: &str, (line, column): Position) -> PlatformError {
        if self.file.is_empty() {
            self.file = file.to_owned();
        }
        if self.line == 0 {
            (self.line, self.column) = (line, column);
        }
        self
    }
}

impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names in files are untrusted.
        let (file, message) = (Escaped(&self.file), Escaped(&self.message));
        match (self.file.is_empty(), self.line) {
            (true, 0) => write!(f, "{message}"),
            (true, line) => write!(f, "line {line}, column {}: {message}", self.column),
            (false, 0) => write!(f, "{file}: {message}"),
            (false, line) => write!(f, "{file}:{line}:{}: {message}", self.column),
        }
    }
}

impl std::error::Error for PlatformError {}

/// `unknown host 'x'; known hosts: a, b`: all known names if they are few, otherwise those most similar to the wrong one.
pub(crate) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = known.collect();
    let many = what.replace(" or ", "s or ") + "s";
    if all.is_empty() {
        return format!("unknown {what} '{name}'; there are no {many}");
    }
    if all.len() <= NAMES_SHOWN_MAX {
        return format!("unknown {what} '{name}'; known {many}: {}", all.join(", "));
    }
    let mut ranked: Vec<(usize, &str)> = all.iter().map(|candidate| (distance(name, candidate), *candidate)).collect();
    ranked.sort();
    let near: Vec<&str> =
        ranked.iter().filter(|(d, _)| *d <= DISTANCE_MAX.max(name.len() / 3)).take(5).map(|(_, n)| *n).collect();
    if near.is_empty() {
        let some: Vec<&str> = all.iter().take(5).copied().collect();
        format!("unknown {what} '{name}'; {} {many} are known: {}, ...", all.len(), some.join(", "))
    } else {
        format!("unknown {what} '{name}'; known {many} with a name like it: {}", near.join(", "))
    }
}

/// Maximum number of known names that are all shown.
const NAMES_SHOWN_MAX: usize = 8;
/// Maximum edit distance of similar names.
const DISTANCE_MAX: usize = 2;
/// Longer names are compared by their first characters only, so that hostile files cannot make an error expensive.
const COMPARED_CHARS_MAX: usize = 64;

/// Edit distance (Levenshtein) between the beginnings of two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(COMPARED_CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(COMPARED_CHARS_MAX).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_proposed() {
        let names: Vec<String> = (0..100).map(|i| format!("node-{i}")).collect();
        let text = unknown("host", "nod-17", names.iter().map(String::as_str));
        assert!(text.starts_with("unknown host 'nod-17'; known hosts with a name like it: node-17,"), "{text}");
        assert_eq!(unknown("host", "x", ["a", "b"].into_iter()), "unknown host 'x'; known hosts: a, b");
    }

    #[test]
    fn escapes_in_names_are_shown_escaped() {
        let error = PlatformError::new("unknown host '\x1b[2J'").at("a\x07.toml", (1, 2));
        assert_eq!(error.to_string(), "a\\u{7}.toml:1:2: unknown host '\\u{1b}[2J'");
    }

    #[test]
    fn place_is_printed_once_known() {
        let error = PlatformError::new("bad").at("star.toml", (12, 3)).at("other", (1, 1));
        assert_eq!(error.to_string(), "star.toml:12:3: bad");
        assert_eq!(PlatformError::new("bad").to_string(), "bad");
    }
}
