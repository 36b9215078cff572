//! The key of a node. The node's identifier is derived from it, so that nobody else can use that identifier.
//!
//! A node creates an Ed25519 key when it starts and signs each handshake with it. Nodes of one grid share the secret;
//! the key distinguishes them. **Limit:** an identifier has 64 bits. To obtain the identifier of a given node, an
//! attacker has to try 2^64 keys.

use std::io;
use std::sync::Arc;

use ed25519_compact::{KeyPair, PublicKey, Seed, Signature};
use gridloom_base::NodeId;

use super::{Secret, Ticket, TlsIdentity, random};

/// Length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = Signature::BYTES;

/// The key of one node. Its secret half never leaves the process.
pub struct NodeKey(KeyPair);

impl NodeKey {
    /// Generates a new key.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn random() -> io::Result<NodeKey> {
        NodeKey::from_seed(random()?)
    }

    /// Derives the key from a seed.
    ///
    /// # Errors
    /// If the seed is all zeros.
    pub fn from_seed(seed: [u8; 32]) -> io::Result<NodeKey> {
        KeyPair::try_from_seed(Seed::new(seed)).map(NodeKey).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Returns the public key.
    pub fn public(&self) -> [u8; 32] {
        *self.0.pk
    }

    /// Returns the identifier of the key's node.
    pub fn id(&self) -> NodeId {
        id_of(&self.public())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        *self.0.sk.sign(message, None)
    }
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(..)")
    }
}

/// Returns the identifier of the node with this public key.
pub(crate) fn id_of(public: &[u8; 32]) -> NodeId {
    let hash = blake3::derive_key("gridloom 2026 identifier of a node v1", public);
    NodeId(u64::from_le_bytes(*hash.first_chunk().expect("a hash has 32 bytes")))
}

/// Reports whether the node with this public key has signed the message.
pub(crate) fn has_signed(public: &[u8; 32], message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
    PublicKey::new(*public).verify(message, &Signature::new(*signature)).is_ok()
}

/// What a node proves in a handshake: membership in its grid, and its identity.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub secret: Secret,
    pub key: Arc<NodeKey>,
    /// Certificate of this process, for the connections that carry its handshakes.
    pub tls: TlsIdentity,
}

impl Credentials {
    /// Creates credentials for a node that starts in the grid with this secret.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(secret: Secret) -> io::Result<Credentials> {
        Credentials::with_key(secret, NodeKey::random()?)
    }

    /// Creates credentials for a node with this key.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn with_key(secret: Secret, key: NodeKey) -> io::Result<Credentials> {
        Ok(Credentials { secret, key: Arc::new(key), tls: TlsIdentity::new()? })
    }

    /// Returns credentials for a connection to a peer with this ticket.
    pub(crate) fn for_peer(&self, ticket: Option<Ticket>) -> Credentials {
        Credentials { secret: self.secret.for_peer(ticket), key: self.key.clone(), tls: self.tls.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_its_key_and_message_and_identifiers_differ() {
        let (one, other) = (NodeKey::random().unwrap(), NodeKey::random().unwrap());
        let signature = one.sign(b"hello");
        assert!(has_signed(&one.public(), b"hello", &signature));
        assert!(!has_signed(&one.public(), b"hullo", &signature));
        assert!(!has_signed(&other.public(), b"hello", &signature));
        assert_ne!(one.id(), other.id());
        assert_eq!(format!("{one:?}"), "NodeKey(..)");
    }
}
