//! `compress`: a message is sent in LZ4's block format if it is long enough and becomes shorter.
//!
//! ```text
//! unchanged:  | bytes | 0u8 |
//! compressed: | block | original length, u32 le | 1u8 |
//! ```
//!
//! The receiver trusts no length: a block cannot expand to more than [`EXPANSION_MAX`] times its size or to more than
//! [`COMPRESS_BYTES_MAX`], and its expanded length must equal the stated one.
//!
//! Source: the LZ4 block format, <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>.

use gridloom_base::limits::{COMPRESS_BYTES_MAX, COMPRESS_BYTES_MIN};
use lz4_flex::block;

use super::{Filter, FilterError, FilterKind, FilteredMessage};

const NAME: &str = "compress";

pub(super) const KIND: FilterKind = FilterKind {
    name: NAME,
    about: "compresses messages from 1 KiB to 1 GiB if that makes them smaller (LZ4)",
    example: NAME,
    make: |_, _| Ok(Box::new(Compress { buffer: Vec::new() })),
};

const PLAIN: u8 = 0;
const BLOCK: u8 = 1;
/// Largest expansion: each byte of a block adds at most 255 bytes to the length of a match.
const EXPANSION_MAX: u64 = 255;

struct Compress {
    /// Output buffer, reused from message to message.
    buffer: Vec<u8>,
}

impl Filter for Compress {
    fn send(&mut self, letter: &mut FilteredMessage) {
        let length = letter.payload.len();
        if (COMPRESS_BYTES_MIN..=COMPRESS_BYTES_MAX).contains(&length) {
            let before = length as u32;
            self.buffer.resize(block::get_maximum_output_size(length), 0);
            let written = block::compress_into(&letter.payload, &mut self.buffer).expect("there is room for the most");
            if written + size_of_val(&before) < length {
                letter.payload.clear();
                letter.payload.extend_from_slice(&self.buffer[..written]);
                letter.payload.extend_from_slice(&before.to_le_bytes());
                letter.payload.push(BLOCK);
                return;
            }
        }
        letter.payload.push(PLAIN);
    }

    fn changes_bytes(&self) -> bool {
        true
    }

    fn receive(&mut self, letter: &mut FilteredMessage) -> Result<(), FilterError> {
        let (filter, length) = (NAME, letter.payload.len());
        match letter.payload.pop() {
            Some(PLAIN) => return Ok(()),
            Some(BLOCK) => {}
            Some(other) => {
                return Err(FilterError::Damaged { filter, length, why: format!("unknown message form {other}") });
            }
            None => return Err(FilterError::Truncated { filter, length }),
        }
        let Some((bytes, before)) = letter.payload.split_last_chunk::<4>() else {
            return Err(FilterError::Truncated { filter, length });
        };
        let says = u64::from(u32::from_le_bytes(*before));
        let limit = (COMPRESS_BYTES_MAX as u64).min(bytes.len() as u64 * EXPANSION_MAX);
        if says > limit {
            return Err(FilterError::TooLarge { filter, length, stated_bytes: says, limit });
        }
        let damaged = |why: String| FilterError::Damaged { filter, length, why };
        let mut whole = vec![0; says as usize];
        let written = block::decompress_into(bytes, &mut whole).map_err(|error| damaged(error.to_string()))?;
        if written as u64 != says {
            return Err(damaged(format!("they expand to {written} bytes, and the message states {says}")));
        }
        letter.payload = whole;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::SplitMix64;
    use gridloom_base::Time;

    use super::*;

    fn sent(payload: Vec<u8>) -> Vec<u8> {
        let mut letter = FilteredMessage { payload, at: Time::ZERO };
        Compress { buffer: Vec::new() }.send(&mut letter);
        letter.payload
    }

    fn received(payload: Vec<u8>) -> Result<Vec<u8>, FilterError> {
        let mut letter = FilteredMessage { payload, at: Time::ZERO };
        Compress { buffer: Vec::new() }.receive(&mut letter).map(|()| letter.payload)
    }

    #[test]
    fn what_is_short_or_random_goes_as_it_is() {
        let mut random = SplitMix64::new(1);
        let noise: Vec<u8> = (0..4096).map(|_| random.next_u64() as u8).collect();
        for plain in [vec![7; COMPRESS_BYTES_MIN - 1], noise, Vec::new()] {
            assert_eq!(sent(plain.clone()), [&plain[..], &[PLAIN]].concat());
        }
        let small = sent(vec![7; COMPRESS_BYTES_MIN]);
        assert!(small.len() < 50, "{} bytes", small.len());
        assert_eq!(received(small).unwrap(), vec![7; COMPRESS_BYTES_MIN]);
    }

    #[test]
    fn a_letter_that_the_filter_cannot_have_made_is_refused() {
        let whole = sent(vec![7; 8192]);
        let with_length = |says: u32| {
            let body = &whole[..whole.len() - 5];
            [body, &says.to_le_bytes(), &[BLOCK]].concat()
        };
        let told = |payload: Vec<u8>| received(payload).unwrap_err().to_string();
        let limit = (whole.len() as u64 - 5) * EXPANSION_MAX;
        let says = format!(
            "the message states that its {} bytes expand to 4294967295, at most {limit} are possible",
            whole.len()
        );
        assert_eq!(told(with_length(u32::MAX)), format!("filter compress: {says}"));
        assert!(matches!(received(with_length(8191)), Err(FilterError::Damaged { .. })));
        assert!(told(with_length(8193)).ends_with("they expand to 8192 bytes, and the message states 8193"));
        assert!(told(vec![2]).ends_with("unknown message form 2"));
        assert!(matches!(received(vec![]), Err(FilterError::Truncated { length: 0, .. })));
        assert!(matches!(received(vec![9, 9, BLOCK]), Err(FilterError::Truncated { length: 3, .. })));
    }

    #[test]
    fn no_change_of_bytes_makes_it_panic_or_take_more() {
        let mut random = SplitMix64::new(2);
        let text: Vec<u8> = (0..2000_u32).flat_map(|number| (number / 3).to_le_bytes()).collect();
        let whole = sent(text);
        for _ in 0..20_000 {
            let mut changed = whole[random.below(whole.len() as u64) as usize..].to_vec();
            for _ in 0..random.below(4) {
                let at = random.below(changed.len() as u64) as usize;
                changed[at] = random.next_u64() as u8;
            }
            let length = changed.len() as u64;
            if let Ok(bytes) = received(changed) {
                assert!(bytes.len() as u64 <= length * EXPANSION_MAX);
            }
        }
    }
}
