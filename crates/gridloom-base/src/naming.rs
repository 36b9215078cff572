//! The grammar of names. All names in programs and files are checked here when they are defined, and invalid names
//! in files of other programs are replaced by valid ones. `docs/names.md` describes the grammar to users.
//!
//! | kind | form |
//! |---|---|
//! | word | letters and numbers of any script, other characters of Unicode identifiers (`XID_Continue`), `.` and `-` |
//! | text | printable characters, not all blank, without a blank at the beginning or end |
//!
//! A function is named by two words, `module/function`.

use std::borrow::Cow;

use thiserror::Error;

use crate::Fnv;
use crate::escaped::{EscapedLine, is_printable};
use crate::limits::{DATUM_NAME_BYTES_MAX, GRID_NAME_BYTES_MAX, NAME_BYTES_MAX};

/// The kind of object that has the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameKind {
    /// `module/function`, or `module/class.method`.
    Function,
    /// A module, or the part of a function's name after the slash.
    FunctionPart,
    /// A parameter, result or callback of a function.
    Parameter,
    /// A program that a server offers.
    Program,
    /// Shared data.
    Data,
    Server,
    /// A host, router, link or zone of a platform, or a host in a file of hosts.
    Host,
    User,
    /// A grid; also the name of the folder with its keys.
    Grid,
    /// An input or a call of a declared graph.
    GraphNode,
    /// The display name of a function that a program sends to servers.
    Label,
}

/// A text that is not a valid name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("'{}' cannot be {}: {why}", EscapedLine(name), kind.noun())]
pub struct InvalidName {
    pub kind: NameKind,
    /// The first characters of the text.
    pub name: String,
    pub why: String,
}

impl NameKind {
    /// Checks that a text is a name of this kind.
    ///
    /// # Errors
    /// Names the rule that the text violates.
    pub fn check(self, name: &str) -> Result<(), InvalidName> {
        let checked = match (self.is_word(), self) {
            (_, NameKind::Function) => match name.split_once('/') {
                Some((module, function)) if name.len() <= self.bytes_max() => {
                    self.check_word(module).and_then(|()| self.check_word(function))
                }
                Some(_) => self.check_length(name),
                None => Err("expected the form module/function".to_string()),
            },
            (true, _) => self.check_word(name),
            (false, _) => self.check_text(name),
        };
        checked.map_err(|why| InvalidName { kind: self, name: name.chars().take(SHOWN_CHARACTERS_MAX).collect(), why })
    }

    /// Returns a valid name for a name from a file of another program. A valid name is unchanged. Otherwise, invalid
    /// characters are replaced by `_`, a long name is truncated, and a digest of the original is appended, so that
    /// different names stay different.
    pub fn mapped(self, name: &str) -> Cow<'_, str> {
        if self.check(name).is_ok() {
            return Cow::Borrowed(name);
        }
        let mut digest = Fnv::default();
        digest.text(name);
        let suffix = format!("-{:016x}", digest.0);
        let is_kept = |c: char| if self.is_word() { is_word_character(c) } else { is_printable(c) };
        let mut mapped = String::new();
        for character in name.trim().chars() {
            let character = if is_kept(character) { character } else { '_' };
            if mapped.len() + character.len_utf8() + suffix.len() > self.bytes_max() {
                break;
            }
            mapped.push(character);
        }
        Cow::Owned(mapped + &suffix)
    }

    /// Largest number of bytes of a name of this kind.
    pub fn bytes_max(self) -> usize {
        match self {
            NameKind::Data => DATUM_NAME_BYTES_MAX,
            NameKind::Grid => GRID_NAME_BYTES_MAX,
            _ => NAME_BYTES_MAX,
        }
    }

    fn is_word(self) -> bool {
        match self {
            NameKind::Function | NameKind::FunctionPart | NameKind::Parameter | NameKind::Program | NameKind::Grid => {
                true
            }
            NameKind::Data | NameKind::Server | NameKind::Host | NameKind::User => false,
            NameKind::GraphNode | NameKind::Label => false,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            NameKind::Function => "the name of a function",
            NameKind::FunctionPart => "the name of a module or function",
            NameKind::Parameter => "the name of a parameter",
            NameKind::Program => "the name of a program",
            NameKind::Data => "the name of shared data",
            NameKind::Server => "the name of a server",
            NameKind::Host => "the name of a host or link",
            NameKind::User => "the name of a user",
            NameKind::Grid => "the name of a grid",
            NameKind::GraphNode => "the name of an input or a call of a graph",
            NameKind::Label => "the display name of a function",
        }
    }

    fn check_word(self, word: &str) -> Result<(), String> {
        self.check_length(word)?;
        match word.chars().find(|c| !is_word_character(*c)) {
            None => Ok(()),
            Some(wrong) => Err(format!(
                "the character '{}' is not allowed; use letters, digits, '_', '.' and '-'",
                EscapedLine(wrong.encode_utf8(&mut [0; 4]))
            )),
        }
    }

    fn check_text(self, text: &str) -> Result<(), String> {
        self.check_length(text)?;
        if let Some(wrong) = text.chars().find(|c| !is_printable(*c)) {
            let wrong = wrong.escape_default();
            return Err(format!("the control character '{wrong}' is not allowed; use printable characters"));
        }
        match text.trim().len() {
            0 => Err("it is blank; use at least one character that is not a blank".to_string()),
            length if length < text.len() => Err("it begins or ends with a blank; remove the blank".to_string()),
            _ => Ok(()),
        }
    }

    fn check_length(self, name: &str) -> Result<(), String> {
        let limit = self.bytes_max();
        match name.len() {
            0 => Err(format!("it is empty; use 1 to {limit} bytes")),
            length if length > limit => Err(format!("it has {length} bytes, and the limit is {limit}")),
            _ => Ok(()),
        }
    }
}

/// Maximum number of characters of an invalid name that its error shows.
const SHOWN_CHARACTERS_MAX: usize = 64;

/// True for letters, digits, `_`, `.` and `-`. In some scripts, a letter consists of several characters, such as a
/// consonant and a vowel sign.
fn is_word_character(character: char) -> bool {
    is_identifier_character(character) || character.is_alphanumeric() || matches!(character, '.' | '-')
}

/// True if an identifier may begin with this character, as in Python and Rust.
pub fn is_identifier_start(character: char) -> bool {
    (character == '_' || unicode_ident::is_xid_start(character)) && is_printable(character)
}

/// True if an identifier may contain this character, as in Python and Rust. Invisible characters are excluded.
pub fn is_identifier_character(character: char) -> bool {
    unicode_ident::is_xid_continue(character) && is_printable(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [NameKind; 11] = [
        NameKind::Function,
        NameKind::FunctionPart,
        NameKind::Parameter,
        NameKind::Program,
        NameKind::Data,
        NameKind::Server,
        NameKind::Host,
        NameKind::User,
        NameKind::Grid,
        NameKind::GraphNode,
        NameKind::Label,
    ];

    fn refusal(kind: NameKind, name: &str) -> String {
        kind.check(name).unwrap_err().to_string()
    }

    #[test]
    fn words_and_texts_are_names() {
        let names = ["workflow/NFCORE_SAREK.SAREK.PREPARE_GENOME.X_8", "my.module/größe", "a-b/c.d.e", "m/7"];
        let scripts = ["m/हिन्दी", "தமிழ்/မြန်မာ", "m/ภาษาไทย", "m/e\u{301}", "m/العربية", "m/日本語", "m/𐐀"];
        for name in names.into_iter().chain(scripts) {
            assert_eq!(NameKind::Function.check(name), Ok(()), "{name}");
        }
        for name in ["server-1", "node 7 (rack 2)", "日本", "a/b:c"] {
            assert_eq!(NameKind::Server.check(name), Ok(()), "{name}");
        }
        assert_eq!(NameKind::Data.check(&"\u{e9}".repeat(DATUM_NAME_BYTES_MAX / 2)), Ok(()));
        assert!(refusal(NameKind::Function, "f").contains("module/function"));
        assert!(refusal(NameKind::Function, "a/b/c").contains("'/' is not allowed"));
        assert!(refusal(NameKind::Program, "a b").contains("' ' is not allowed"));
        assert!(refusal(NameKind::Program, "a€").contains("'€' is not allowed"));
    }

    #[test]
    fn no_kind_accepts_characters_that_a_terminal_cannot_show() {
        let wrong = [
            "",
            " ",
            "\u{3000}",
            "a\0",
            "a\nb",
            "\tb",
            "a\x1b[2J",
            "a\u{7f}",
            "a\u{9b}",
            "a\u{202e}b",
            "a\u{2066}",
            "\u{200f}a",
            "a\u{2028}b",
            "a\u{feff}",
        ];
        for kind in KINDS {
            for name in wrong {
                let prefix = if kind == NameKind::Function { "m/" } else { "" };
                let error = refusal(kind, &format!("{prefix}{name}"));
                assert!(error.chars().all(|c| c == '\t' || is_printable(c)), "{error}");
            }
            let long = format!("{}{}", if kind == NameKind::Function { "m/" } else { "" }, "x".repeat(50_000_000));
            let error = refusal(kind, &long);
            assert!(error.contains("the limit is") && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn foreign_names_are_mapped_to_valid_and_different_ones() {
        let part = |name: &'static str| NameKind::FunctionPart.mapped(name);
        assert_eq!(part("NFCORE_SAREK.SAREK.PREPARE_GENOME.X_8"), "NFCORE_SAREK.SAREK.PREPARE_GENOME.X_8");
        assert!(part("NFCORE:SAREK (s 1)").starts_with("NFCORE_SAREK__s_1_-"));
        assert_ne!(part("a:b"), part("a b"));
        let long = "x".repeat(100_000);
        for kind in KINDS.into_iter().filter(|kind| *kind != NameKind::Function) {
            for name in ["", " ", "a\x1bb\n", "\u{202e}", "a/b c", "ä ö", long.as_str()] {
                assert_eq!(kind.check(&kind.mapped(name)), Ok(()), "{kind:?} {name:?}");
            }
        }
    }
}
