//! Displays untrusted text on a terminal or in a log: names in files, messages of peers, output of programs. All output of
//! Gridloom is escaped here.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Displays a text with its control characters escaped, except line breaks and tabs. A terminal interprets control
/// characters as commands, which may change its title, hide lines or type for the user. Text direction marks can make
/// a line read like another one.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

/// Like [`Escaped`], but escapes line breaks too, so that the text cannot imitate further lines.
#[derive(Clone, Copy, Debug)]
pub struct EscapedLine<'a>(pub &'a str);

/// Displays bytes that may not be UTF-8, such as a path: like [`EscapedLine`], with invalid bytes as `\xff`.
#[derive(Clone, Copy, Debug)]
pub struct EscapedBytes<'a>(pub &'a [u8]);

impl<'a> EscapedBytes<'a> {
    /// Displays a path, or a word of a command line.
    pub fn of(path: &'a (impl AsRef<OsStr> + ?Sized)) -> EscapedBytes<'a> {
        EscapedBytes(path.as_ref().as_bytes())
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0, |character| matches!(character, '\n' | '\t') || is_printable(character))
    }
}

impl fmt::Display for EscapedLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_escaped(f, self.0, |character| character == '\t' || is_printable(character))
    }
}

impl fmt::Display for EscapedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.utf8_chunks().try_for_each(|chunk| {
            EscapedLine(chunk.valid()).fmt(f)?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        })
    }
}

/// Returns a text with the characters escaped that [`EscapedLine`] escapes.
pub fn escaped_line(text: Cow<'static, str>) -> Cow<'static, str> {
    match text.chars().all(is_printable) {
        true => text,
        false => EscapedLine(&text).to_string().into(),
    }
}

/// Returns bytes as text. Bytes that are not UTF-8 become `\xff`, so that no output is lost.
pub fn bytes_as_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut text = String::with_capacity(bytes.len() + 3);
            for chunk in bytes.utf8_chunks() {
                text.push_str(chunk.valid());
                for byte in chunk.invalid() {
                    write!(text, "\\x{byte:02x}").expect("a string has room");
                }
            }
            text.into()
        }
    }
}

/// Returns JSON with the characters escaped that terminals interpret. They occur in its strings only.
pub fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match is_printable(character) || character == '\n' {
            true => text.push(character),
            false => {
                let units = &mut [0; 2];
                for unit in character.encode_utf16(units) {
                    write!(text, "\\u{unit:04x}").expect("a string has room");
                }
            }
        }
    }
    text
}

/// False for characters that a terminal interprets or does not show: control characters, line separators, text direction
/// marks, and invisible characters.
pub fn is_printable(character: char) -> bool {
    let is_direction = matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_separator = matches!(character, '\u{2028}' | '\u{2029}');
    let is_invisible = matches!(character,
        '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}');
    !(character.is_control() || is_direction || is_separator || is_invisible)
}

fn write_escaped(f: &mut fmt::Formatter<'_>, text: &str, is_shown: impl Fn(char) -> bool) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(|character| !is_shown(character)) {
        let character = rest[at..].chars().next().expect("found there");
        write!(f, "{}{}", &rest[..at], character.escape_default())?;
        rest = &rest[at + character.len_utf8()..];
    }
    f.write_str(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_terminals_are_escaped_and_text_stays() {
        let shown = |text| Escaped(text).to_string();
        assert_eq!(shown("\x1b]0;owned\x07\r\u{9b}2J"), "\\u{1b}]0;owned\\u{7}\\r\\u{9b}2J");
        assert_eq!(shown("über 'x'\n\tλ → 日本"), "über 'x'\n\tλ → 日本");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(EscapedLine("a\nb\tc\u{2028}").to_string(), "a\\nb\tc\\u{2028}");
    }

    #[test]
    fn bytes_are_never_lost() {
        assert_eq!(EscapedBytes(b"caf\xe9/\x1b\n\xc3\xa9").to_string(), "caf\\xe9/\\u{1b}\\n\u{e9}");
        assert_eq!(bytes_as_text(b"a\xff\nb\xc3"), "a\\xff\nb\\xc3");
        assert_eq!(bytes_as_text("ä\n".as_bytes()), "ä\n");
    }

    #[test]
    fn escaped_json_means_the_same() {
        assert_eq!(escaped_json("{\"a\": \"\u{9b}\u{202e}ä\"}\n"), "{\"a\": \"\\u009b\\u202eä\"}\n");
        assert_eq!(escaped_json("\"\u{e0001}\""), "\"\\udb40\\udc01\"");
    }
}
