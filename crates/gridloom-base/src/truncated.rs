/// Returns the beginning of a text, with at most this many bytes and no partial character.
pub fn truncated(text: &str, bytes_max: usize) -> &str {
    let end = (0..=text.len().min(bytes_max)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        assert_eq!((truncated("\u{e9}\u{e9}", 3), truncated("abc", 3), truncated("\u{e9}", 1)), ("\u{e9}", "abc", ""));
    }
}
