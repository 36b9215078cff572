//! Rules for names in the language.

/// True if the lexer reads the text as one name.
pub fn is_name(text: &str) -> bool {
    text.starts_with(is_name_start) && text.chars().all(is_name_character)
}

pub(crate) fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Letters, digits and `_`.
pub fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
