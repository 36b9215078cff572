//! Percent-encoding of the parts of a URI (RFC 3986). Each text has exactly one encoded form: the letters, digits and
//! `-._~` of ASCII stand for themselves, all other bytes are written as `%XX` with upper-case digits.

use std::fmt::Write;

/// Encodes a text.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_unreserved(byte) {
            true => encoded.push(char::from(byte)),
            false => write!(encoded, "%{byte:02X}").expect("a string has room"),
        }
    }
    encoded
}

/// Decodes a text; `None` if it is not the encoded form of one.
pub(crate) fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let byte = digit(*high)? * 16 + digit(*low)?;
                if is_unreserved(byte) {
                    return None;
                }
                bytes.push(byte);
                after
            }
            (byte, _) if is_unreserved(*byte) => {
                bytes.push(*byte);
                after
            }
            _ => return None,
        };
    }
    String::from_utf8(bytes).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_text_has_one_form(text in ".*", other in "[%A-Fa-f0-9/~ -]{0,12}") {
            prop_assert_eq!(decode(&encode(&text)), Some(text));
            if let Some(text) = decode(&other) {
                prop_assert_eq!(encode(&text), other);
            }
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for wrong in ["%41", "%c3%a4", "%C3", "%", "%2", "a b", "a/b", "ä", "%ED%A0%80", "%FF", "a\0"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        assert_eq!(decode("node%207%2Fa").as_deref(), Some("node 7/a"));
    }
}
