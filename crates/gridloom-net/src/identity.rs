//! A node's identity: its random identifier, the host it runs on, and the secret that admits it to its grid.
//!
//! **Promises:** two nodes have the same [`HostId`] only if they run on one kernel and in one network namespace, so an
//! abstract unix socket of one can be reached by the other and shared memory can pass between them; a [`Secret`] is
//! never printed and never leaves the process.
//!
//! **Not here:** certificates (the handshake has room for them) and encryption.

use std::fmt;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::{env, fs, io};

use gridloom_base::NodeId;

/// Environment variable that holds the grid's secret.
pub const SECRET_VARIABLE: &str = "GRIDLOOM_SECRET";
/// Environment variable that names a file with the grid's secret.
pub const SECRET_FILE_VARIABLE: &str = "GRIDLOOM_SECRET_FILE";
/// Largest file that is taken for a secret: a longer one is a mistake.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// What the nodes of one grid share and prove to each other, without showing it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret derived from these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Secret {
        Secret(blake3::derive_key("gridloom 2026 grid secret v1", bytes))
    }

    /// The secret of a grid that has none: only its address, which others would have to reach, keeps them out.
    pub fn none() -> Secret {
        Secret::from_bytes(b"")
    }

    /// The content of a file, without white space at its end.
    ///
    /// # Errors
    /// If it cannot be read, is empty, or too long to be meant.
    pub fn from_file(path: &Path) -> io::Result<Secret> {
        let say = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
        if fs::metadata(path)?.len() > SECRET_FILE_BYTES_MAX {
            return Err(say("too long for a grid secret (limit 4096 bytes)"));
        }
        let bytes = fs::read(path)?;
        match bytes.trim_ascii_end() {
            [] => Err(say("the file of the grid secret is empty")),
            bytes => Ok(Secret::from_bytes(bytes)),
        }
    }

    /// From `GRIDLOOM_SECRET`, or the file named by `GRIDLOOM_SECRET_FILE`; `None` if neither is set.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn from_env() -> io::Result<Option<Secret>> {
        if let Some(text) = env::var_os(SECRET_VARIABLE).filter(|text| !text.is_empty()) {
            return Ok(Some(Secret::from_bytes(text.as_encoded_bytes().trim_ascii_end())));
        }
        env::var_os(SECRET_FILE_VARIABLE).map(|path| Secret::from_file(Path::new(&path))).transpose()
    }

    /// Proof that the holder knows the secret and saw this transcript.
    pub(crate) fn prove(&self, side: &[u8], transcript: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(&side).chain(transcript) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Kernel and network namespace, in words; empty where memory is not to be shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostId(pub String);

impl HostId {
    /// This process's, empty if the system does not say.
    pub fn here() -> HostId {
        let read = || -> io::Result<String> {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
            let namespace = fs::metadata("/proc/self/ns/net")?.st_ino();
            Ok(format!("{}/{namespace}", boot.trim()))
        };
        HostId(read().unwrap_or_default())
    }
}

/// Random bytes from the system.
///
/// # Errors
/// If the system has none to give.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random bytes: {error}")))?;
    Ok(bytes)
}

/// A fresh node identifier; 64 random bits, so that a grid of thousands meets no collision.
///
/// # Errors
/// If the system has no random bytes to give.
pub fn random_node_id() -> io::Result<NodeId> {
    Ok(NodeId(u64::from_le_bytes(random()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_depends_on_secret_side_and_transcript() {
        let (one, other) = (Secret::from_bytes(b"one"), Secret::from_bytes(b"other"));
        let proof = one.prove(b"dial", &[b"ab", b"c"]);
        assert_eq!(proof, one.prove(b"dial", &[b"ab", b"c"]));
        assert_ne!(proof, one.prove(b"dial", &[b"a", b"bc"]));
        assert_ne!(proof, one.prove(b"accept", &[b"ab", b"c"]));
        assert_ne!(proof, other.prove(b"dial", &[b"ab", b"c"]));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::from_bytes(b"hunter2")), "Secret(..)");
    }

    #[test]
    fn identifiers_differ() {
        assert_ne!(random_node_id().unwrap(), random_node_id().unwrap());
    }
}
