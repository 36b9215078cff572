//! A process message, and its frame on a channel (`gridloom_channel::frame`).

use std::sync::Arc;

use gridloom_base::limits::{KIND_BYTES_MAX, PROCESS_MESSAGE_BYTES_MAX, URGENT_BYTES_MAX};
use gridloom_channel::{Body, BufferPool, BulkFrame, FrameLimits, Kind};

use super::ProcessError;

/// A message: the name of its type and its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessMessage {
    /// Name of the message's type.
    pub kind: Arc<str>,
    /// The contents, in the format of the type.
    pub payload: Vec<u8>,
}

impl ProcessMessage {
    /// Limits for the channel between two processes after the handshake.
    pub const LIMITS: FrameLimits =
        FrameLimits { control: 0, process_message: PROCESS_MESSAGE_BYTES_MAX as usize + KIND_BYTES_MAX + 1 };

    /// Checks that the message fits the bulk lane.
    ///
    /// # Errors
    /// [`ProcessError::TooLarge`].
    pub fn check(&self) -> Result<(), ProcessError> {
        self.check_size(PROCESS_MESSAGE_BYTES_MAX)
    }

    /// Checks that the message fits the urgent lane.
    ///
    /// # Errors
    /// [`ProcessError::TooLarge`].
    pub fn check_urgent(&self) -> Result<(), ProcessError> {
        self.check_size(URGENT_BYTES_MAX)
    }

    fn check_size(&self, limit: u64) -> Result<(), ProcessError> {
        let (kind, size_bytes) = (&self.kind, self.payload.len() as u64);
        if size_bytes > limit || kind.len() > KIND_BYTES_MAX {
            return Err(ProcessError::TooLarge { kind: kind.to_string(), size_bytes, limit });
        }
        Ok(())
    }

    /// Converts the message to its frame for the bulk lane.
    ///
    /// # Errors
    /// [`ProcessError::TooLarge`].
    pub fn into_frame(self) -> Result<BulkFrame, ProcessError> {
        self.check()?;
        let trailer = self.trailer();
        Ok(BulkFrame { kind: Kind::ProcessMessage, payload: self.payload, trailer })
    }

    /// Converts the message to the body of its frame for the urgent lane.
    ///
    /// # Errors
    /// [`ProcessError::TooLarge`].
    pub fn into_urgent_body(self) -> Result<Vec<u8>, ProcessError> {
        self.check_urgent()?;
        let trailer = self.trailer();
        let mut body = self.payload;
        body.extend_from_slice(&trailer);
        Ok(body)
    }

    /// Returns the bytes after the payload: the name of the type and its length.
    fn trailer(&self) -> Vec<u8> {
        let kind = self.kind.as_bytes();
        [kind, &[kind.len() as u8]].concat()
    }
}

/// Parses the body of a frame.
///
/// # Errors
/// What is wrong with it. The channel must be closed.
pub fn parse_message(body: Body<'_>, spares: &mut BufferPool<u8>) -> Result<ProcessMessage, String> {
    let (length, rest) = body.bytes().split_last().ok_or("a message without the length of its type's name")?;
    let at = rest.len().checked_sub(*length as usize).ok_or("the name of a type is longer than its message")?;
    let kind = std::str::from_utf8(&rest[at..]).map_err(|_| "the name of a type is not UTF-8 text")?.into();
    let payload = match body {
        Body::Borrowed(bytes) => Body::Borrowed(&bytes[..at]).into_owned(spares),
        Body::Owned(mut bytes) => {
            bytes.truncate(at);
            bytes
        }
    };
    Ok(ProcessMessage { kind, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_out_of_their_frames_as_they_went_in() {
        for (kind, size) in [("", 0), ("ping", 3), ("a longer name", 40)] {
            let letter = ProcessMessage { kind: kind.into(), payload: vec![size as u8; size] };
            let frame = letter.clone().into_frame().unwrap();
            let body = [frame.payload, frame.trailer].concat();
            assert_eq!(letter.clone().into_urgent_body(), Ok(body.clone()));
            assert_eq!(parse_message(Body::Borrowed(&body), &mut BufferPool::default()), Ok(letter.clone()));
            assert_eq!(parse_message(Body::Owned(body), &mut BufferPool::default()), Ok(letter));
        }
    }

    #[test]
    fn names_that_are_no_text_or_too_long_are_refused() {
        let refused = |body: &[u8]| parse_message(Body::Borrowed(body), &mut BufferPool::default()).unwrap_err();
        assert!(refused(&[]).contains("without"));
        assert!(refused(b"x\x02").contains("longer"));
        assert!(refused(&[0xff, 1]).contains("not UTF-8 text"));
        let long = ProcessMessage { kind: "x".repeat(KIND_BYTES_MAX + 1).into(), payload: Vec::new() };
        assert!(matches!(long.into_frame(), Err(ProcessError::TooLarge { .. })));
        let large = ProcessMessage { kind: "x".into(), payload: vec![0; URGENT_BYTES_MAX as usize + 1] };
        assert!(matches!(large.into_urgent_body(), Err(ProcessError::TooLarge { limit: URGENT_BYTES_MAX, .. })));
    }
}
