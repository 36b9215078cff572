//! The frame with which a node refuses a connection during the handshake: a tag, the code of the [`ConnectionFault`] (one byte), and
//! text. It has the same form inside of TLS and, from a node without a free descriptor for TLS, outside of it.

use gridloom_base::dial::{ConnectionError, ConnectionFault};
use gridloom_channel::FrameLimits;

/// Maximum length of a handshake frame. It bounds the cost of an unknown peer.
pub const HANDSHAKE_BYTES_MAX: usize = 4096;
/// Limits of a channel until its handshake is complete.
pub const HANDSHAKE_LIMITS: FrameLimits = FrameLimits { control: HANDSHAKE_BYTES_MAX, process_message: 0 };
/// First byte of the body.
pub(super) const TAG_REFUSAL: u8 = 4;

/// Returns the body of a refusal.
pub fn refusal(fault: ConnectionFault, why: &str) -> Vec<u8> {
    let text = &why.as_bytes()[..why.len().min(HANDSHAKE_BYTES_MAX / 2)];
    [&[TAG_REFUSAL, fault.code()], text].concat()
}

/// Returns the reason if the body of a handshake frame is a refusal.
pub(super) fn refusal_of_body(body: &[u8]) -> Option<ConnectionError> {
    let [TAG_REFUSAL, code, text @ ..] = body else { return None };
    let why: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    Some(ConnectionError::new(ConnectionFault::from_code(*code), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_it_was_written_and_control_characters_are_left_out() {
        let body = refusal(ConnectionFault::WrongGrid, "of another\ngrid");
        let read = ConnectionError::new(ConnectionFault::WrongGrid, "of anothergrid");
        assert_eq!(refusal_of_body(&body), Some(read));
        assert_eq!(refusal_of_body(&[TAG_REFUSAL]), None);
        assert_eq!(refusal_of_body(&[1, 0]), None);
        assert!(refusal(ConnectionFault::Refused, &"x".repeat(9999)).len() < HANDSHAKE_BYTES_MAX);
    }
}
