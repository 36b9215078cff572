//! Identifiers of shared data. Whoever states the identifier of a shared datum can read the datum. So users learn only the
//! identifiers of data that they may read, and cannot compute others.

use std::fmt;

use gridloom_base::DatumId;

/// The key from which an agent derives identifiers. Only the agent knows it, and each start of an agent has another one.
#[derive(Clone, Default)]
pub struct IdentifierKey(pub [u8; 32]);

impl fmt::Debug for IdentifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdentifierKey")
    }
}

#[derive(Debug)]
pub(super) struct DatumIdentifiers {
    key: IdentifierKey,
    serial: u64,
}

impl DatumIdentifiers {
    pub(super) fn new(key: IdentifierKey) -> DatumIdentifiers {
        DatumIdentifiers { key, serial: 0 }
    }

    pub(super) fn next(&mut self) -> DatumId {
        self.serial += 1;
        let hash = blake3::keyed_hash(&self.key.0, &self.serial.to_le_bytes());
        let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        DatumId::shared(u64::from_le_bytes(*first))
    }
}
