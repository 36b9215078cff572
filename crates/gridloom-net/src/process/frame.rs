//! Letters on a stream: one byte for the length of the type's name, eight (little-endian) for that of the payload, the
//! name, the payload.

use gridloom_core::base::limits::{LETTER_BYTES_MAX, SPARE_BYTES_MAX};
use gridloom_core::process::{Letter, Spares};

const HEADER_BYTES: usize = 9;
/// A length alone allocates no more than a spare buffer may have, and touches none of it.
const TRUST_BYTES: usize = SPARE_BYTES_MAX;
/// A longer payload's buffer grows as its bytes come, by so many.
const GROWTH_BYTES: usize = 1 << 20;
/// Where so many bytes of a payload are to come, they are read into it, rather than copied from what was read.
const OWN_BYTES_MIN: usize = 8 << 10;

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
    /// Its length is at most the letter's, and grows towards it.
    payload: Vec<u8>,
    /// Bytes of the payload that came, and all of them; `None` between letters.
    under_way: Option<(usize, usize)>,
}

impl Decoder {
    /// Where the next bytes are to be read to, if that saves copying them; then [`Decoder::has_read`] is told.
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        let (came, all) = self.under_way.filter(|(came, all)| all - came >= OWN_BYTES_MIN)?;
        if came == self.payload.len() {
            self.payload.resize(all.min(came + GROWTH_BYTES), 0);
        }
        Some(&mut self.payload[came..])
    }

    /// So many bytes stand in the room. Appends the letter that is whole with them.
    pub(super) fn has_read(&mut self, length: usize, letters: &mut Vec<Letter>) {
        let (came, all) = self.under_way.expect("room is given within a letter only");
        assert!(came + length <= self.payload.len(), "no more was read than there was room for");
        self.under_way = Some((came + length, all));
        self.finish(letters);
    }

    /// Takes bytes and appends the letters that are whole with them.
    ///
    /// # Errors
    /// What is wrong with them; the stream must be closed.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        letters: &mut Vec<Letter>,
        spares: &mut Spares<u8>,
    ) -> Result<(), String> {
        loop {
            if let Some((came, all)) = self.under_way {
                let part = (all - came).min(bytes.len());
                if self.payload.len() < came + part {
                    self.payload.resize(came + part, 0);
                }
                self.payload[came..came + part].copy_from_slice(&bytes[..part]);
                bytes = &bytes[part..];
                self.under_way = Some((came + part, all));
                if !self.finish(letters) {
                    return Ok(());
                }
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
            self.payload = spares.take((length as usize).min(TRUST_BYTES));
            self.under_way = Some((0, length as usize));
        }
    }

    /// Whether the letter under way is whole, and was appended.
    fn finish(&mut self, letters: &mut Vec<Letter>) -> bool {
        let is_whole = self.under_way.is_some_and(|(came, all)| came == all);
        if is_whole {
            let (kind, payload) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.payload));
            letters.push(Letter { kind: kind.into(), payload });
            self.under_way = None;
        }
        is_whole
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
                decoder.take(part, &mut got, &mut Spares::default()).unwrap();
            }
            assert_eq!(got, letters, "in parts of {step}");
        }
    }

    #[test]
    fn long_letters_are_read_to_where_they_stay() {
        let longer = TRUST_BYTES + GROWTH_BYTES;
        let sizes = [longer + 3, 5, OWN_BYTES_MIN, TRUST_BYTES + OWN_BYTES_MIN + 1, 0, 3 * OWN_BYTES_MIN];
        let letters = sizes.map(|size| {
            let payload = (0..size).map(|at| (at / 251 + at) as u8).collect();
            Letter { kind: "long".into(), payload }
        });
        let bytes = bytes(&letters);
        for step in [1000, READ_STEP, TRUST_BYTES / 2, 3 * TRUST_BYTES] {
            let (mut decoder, mut got, mut spares) = (Decoder::default(), Vec::new(), Spares::default());
            // Of a buffer that was used before, nothing is seen.
            spares.put(vec![0xff; OWN_BYTES_MIN]);
            let mut left = &bytes[..];
            while !left.is_empty() {
                if let Some(room) = decoder.room() {
                    let length = room.len().min(left.len()).min(step);
                    room[..length].copy_from_slice(&left[..length]);
                    decoder.has_read(length, &mut got);
                    left = &left[length..];
                } else {
                    let length = left.len().min(step).min(READ_STEP);
                    decoder.take(&left[..length], &mut got, &mut spares).unwrap();
                    left = &left[length..];
                }
            }
            assert_eq!(got.len(), letters.len());
            assert!(got.iter().zip(&letters).all(|(got, letter)| got == letter), "in parts of {step}");
        }
    }

    const READ_STEP: usize = 64 << 10;

    #[test]
    fn lengths_out_of_bounds_and_names_that_are_no_text_are_refused() {
        let refused = |bytes: &[u8]| {
            let (mut letters, mut spares) = (Vec::new(), Spares::default());
            Decoder::default().take(bytes, &mut letters, &mut spares).unwrap_err()
        };
        let mut long = vec![1];
        long.extend(u64::MAX.to_le_bytes());
        long.push(b'x');
        assert!(refused(&long).contains("the limit is"));
        let mut odd = vec![1];
        odd.extend(0u64.to_le_bytes());
        odd.push(0xff);
        assert!(refused(&odd).contains("no text"));
    }
}
