//! Rules for names in the language.

use gridloom_base::{is_identifier_character, is_identifier_start};

/// True if the lexer reads the text as one name.
pub fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(is_name_character)
}

pub(crate) fn is_name_start(c: char) -> bool {
    is_identifier_start(c)
}

/// Letters, digits and `_`.
pub fn is_name_character(c: char) -> bool {
    is_identifier_character(c)
}
