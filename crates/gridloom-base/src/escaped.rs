//! Displays untrusted text on a terminal: names in files, messages of peers.

use std::fmt::{self, Write};

/// Displays a text with its control characters escaped, except line breaks and tabs. A terminal interprets control
/// characters as commands, which may change its title, hide lines or type for the user. Text direction marks can make
/// a line read like another one.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match is_harmless(character) {
            true => f.write_char(character),
            false => write!(f, "{}", character.escape_unicode()),
        })
    }
}

fn is_harmless(character: char) -> bool {
    let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    matches!(character, '\n' | '\t') || !character.is_control() && !turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_terminals_are_escaped_and_text_stays() {
        let shown = |text| Escaped(text).to_string();
        assert_eq!(shown("\x1b]0;owned\x07\r\u{9b}2J"), "\\u{1b}]0;owned\\u{7}\\u{d}\\u{9b}2J");
        assert_eq!(shown("über 'x'\n\tλ → 日本"), "über 'x'\n\tλ → 日本");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
    }
}
