//! The 64-bit FNV-1a hash, for fingerprints that must be the same on every machine and in every release. It does not
//! protect against forgery.
//!
//! Source: Fowler, Noll, Vo, Eastlake, *The FNV Non-Cryptographic Hash Algorithm*, IETF draft-eastlake-fnv.

/// A hash computation in progress.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Hashes a number as eight bytes, the least significant first.
    pub fn number(&mut self, number: u64) {
        number.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
    }

    /// Hashes the length of a text, then the text.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        text.bytes().for_each(|byte| self.byte(byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        let mut hash = Fnv::default();
        b"foobar".iter().for_each(|byte| hash.byte(*byte));
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }
}
