//! Messages between a relay and nodes, inside of TLS: a length of two bytes (little endian), followed by the message in
//! postcard.

use std::io::{self, ErrorKind, Read, Write};

use gridloom_base::address::RelayTarget;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of these messages. A relay and its nodes have the same.
pub(super) const VERSION: u16 = 1;
/// Maximum length of a message.
pub(super) const MESSAGE_BYTES_MAX: usize = 2048;
/// Maximum number of characters of the reason for a refusal.
const WHY_CHARACTERS_MAX: usize = 384;

/// Identifies a connection that is being set up. Only the relay and the node know it.
pub(super) type ConnectionToken = [u8; 16];

/// A message to a relay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// "Forward connections to me."
    Register {
        version: u16,
        /// Random number of the node, from which its identifier is derived.
        number: [u8; 16],
        is_agent: bool,
    },
    /// "Connect me to this node."
    Connect {
        version: u16,
        /// Text of a [`RelayTarget`].
        target: String,
    },
    /// "I take the connection with this token."
    Accept { token: ConnectionToken },
    /// Keeps the registration of an idle node alive.
    Ping,
    /// A revocation that the authority has signed, as a line of JSON, from a registered node.
    Revoked { line: String },
}

/// A message of a relay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Registered,
    /// "From here on, you talk to the node."
    Connected,
    /// "A node wants to talk to you: open a connection and take it."
    Incoming {
        token: ConnectionToken,
    },
    Refused {
        why: String,
    },
    Pong,
}

impl Request {
    pub(super) fn connect(target: &RelayTarget) -> Request {
        Request::Connect { version: VERSION, target: target.to_string() }
    }
}

impl Reply {
    pub(super) fn refused(why: &str) -> Reply {
        Reply::Refused { why: why.chars().take(WHY_CHARACTERS_MAX).collect() }
    }
}

/// Returns the bytes of a message.
pub(super) fn encoded(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = postcard::to_extend(message, vec![0; 2]).expect("postcard into a vector fails for no type of ours");
    let length = u16::try_from(bytes.len() - 2).expect("messages are short");
    bytes[..2].copy_from_slice(&length.to_le_bytes());
    bytes
}

pub(super) fn write(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&encoded(message))?;
    stream.flush()
}

/// Reads one message, and no bytes after it.
pub(super) fn read<M: DeserializeOwned>(stream: &mut impl Read) -> io::Result<M> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; check_length(length)?];
    stream.read_exact(&mut body)?;
    parse(&body)
}

/// Takes the next complete message from received bytes.
pub(super) fn take<M: DeserializeOwned>(received: &mut Vec<u8>) -> io::Result<Option<M>> {
    let Some(length) = received.first_chunk::<2>() else { return Ok(None) };
    let end = 2 + check_length(*length)?;
    if received.len() < end {
        return Ok(None);
    }
    let message = parse(&received[2..end])?;
    received.drain(..end);
    Ok(Some(message))
}

fn check_length(length: [u8; 2]) -> io::Result<usize> {
    let length = usize::from(u16::from_le_bytes(length));
    match length <= MESSAGE_BYTES_MAX {
        true => Ok(length),
        false => Err(malformed(&format!("a message of {length} bytes exceeds the limit of {MESSAGE_BYTES_MAX} bytes"))),
    }
}

fn parse<M: DeserializeOwned>(body: &[u8]) -> io::Result<M> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(malformed("a message is malformed")),
    }
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not the protocol of a relay: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_one_by_one_and_malformed_ones_are_refused() {
        let messages = [Request::Register { version: 1, number: [7; 16], is_agent: true }, Request::Ping];
        let mut bytes: Vec<u8> = messages.iter().flat_map(encoded).collect();
        let mut reader = &bytes[..];
        assert_eq!(read::<Request>(&mut reader).unwrap(), messages[0]);
        assert_eq!(read::<Request>(&mut reader).unwrap(), messages[1]);
        assert_eq!(read::<Request>(&mut reader).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let last = bytes.pop().unwrap();
        assert_eq!(take(&mut bytes).unwrap(), Some(messages[0].clone()));
        assert_eq!(take::<Request>(&mut bytes).unwrap(), None);
        bytes.push(last);
        assert_eq!((take(&mut bytes).unwrap(), bytes.len()), (Some(messages[1].clone()), 0));
        for wrong in [&[1, 8][..], &[1, 0, 200], &[2, 0, 3, 3]] {
            assert_eq!(take::<Request>(&mut wrong.to_vec()).unwrap_err().kind(), ErrorKind::InvalidData, "{wrong:?}");
        }
    }

    #[test]
    fn all_messages_fit() {
        let target = RelayTarget::Node { node: gridloom_base::NodeId(u64::MAX), host: "h".repeat(255) };
        assert!(encoded(&Request::connect(&target)).len() <= MESSAGE_BYTES_MAX + 2);
        assert!(encoded(&Reply::refused(&"x".repeat(9999))).len() <= MESSAGE_BYTES_MAX + 2);
    }
}
