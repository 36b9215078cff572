//! Letters on a stream: one byte for the length of the type's name, eight (little-endian) for that of the payload, the
//! name, the payload.

use gridloom_core::base::limits::LETTER_BYTES_MAX;
use gridloom_core::process::Letter;

const HEADER_BYTES: usize = 9;
/// A payload's buffer grows as its bytes come, from so many: a length alone allocates no more.
const TRUST_BYTES: usize = 1 << 20;

/// The header and the name of a letter.
pub(super) fn head(letter: &Letter) -> Vec<u8> {
    let kind = letter.kind.as_bytes();
    let mut head = Vec::with_capacity(HEADER_BYTES + kind.len());
    head.push(u8::try_from(kind.len()).expect("the sender checked the name's length"));
    head.extend_from_slice(&(letter.payload.len() as u64).to_le_bytes());
    head.extend_from_slice(kind);
    head
}

/// Takes a stream of bytes apart.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    head: Vec<u8>,
    kind: String,
    payload: Vec<u8>,
    left: Option<usize>,
}

impl Decoder {
    /// Takes bytes and appends the letters that are whole with them.
    ///
    /// # Errors
    /// What is wrong with them; the stream must be closed.
    pub(super) fn take(&mut self, mut bytes: &[u8], letters: &mut Vec<Letter>) -> Result<(), String> {
        loop {
            if let Some(left) = self.left {
                let part = left.min(bytes.len());
                self.payload.extend_from_slice(&bytes[..part]);
                bytes = &bytes[part..];
                if part < left {
                    self.left = Some(left - part);
                    return Ok(());
                }
                let (kind, payload) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.payload));
                letters.push(Letter { kind: kind.into(), payload });
                self.left = None;
            }
            if bytes.is_empty() && self.head.is_empty() {
                return Ok(());
            }
            let wanted = HEADER_BYTES + self.head.first().or(bytes.first()).map_or(0, |length| *length as usize);
            let part = (wanted - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            if self.head.len() < wanted {
                return Ok(());
            }
            let length = u64::from_le_bytes(self.head[1..HEADER_BYTES].try_into().expect("eight bytes"));
            if length > LETTER_BYTES_MAX {
                return Err(format!("a message of {length} bytes; the limit is {LETTER_BYTES_MAX}"));
            }
            let kind = std::str::from_utf8(&self.head[HEADER_BYTES..]).map_err(|_| "the name of a type is no text")?;
            self.kind = kind.to_string();
            self.head.clear();
            self.payload = Vec::with_capacity((length as usize).min(TRUST_BYTES));
            self.left = Some(length as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(letters: &[Letter]) -> Vec<u8> {
        letters.iter().flat_map(|letter| [head(letter), letter.payload.clone()].concat()).collect()
    }

    #[test]
    fn letters_survive_any_cut() {
        let letters = [("", 0), ("ping", 3), ("a longer name", 40)]
            .map(|(kind, size)| Letter { kind: kind.into(), payload: vec![size as u8; size] });
        let bytes = bytes(&letters);
        for step in 1..=bytes.len() {
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for part in bytes.chunks(step) {
                decoder.take(part, &mut got).unwrap();
            }
            assert_eq!(got, letters, "in parts of {step}");
        }
    }

    #[test]
    fn lengths_out_of_bounds_and_names_that_are_no_text_are_refused() {
        let mut long = vec![1];
        long.extend(u64::MAX.to_le_bytes());
        long.push(b'x');
        assert!(Decoder::default().take(&long, &mut Vec::new()).unwrap_err().contains("the limit is"));
        let mut odd = vec![1];
        odd.extend(0u64.to_le_bytes());
        odd.push(0xff);
        assert!(Decoder::default().take(&odd, &mut Vec::new()).unwrap_err().contains("no text"));
    }
}
