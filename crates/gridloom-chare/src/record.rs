//! The format of the records in a batch between two elements.
//!
//! ```text
//!  0      1         5          9         13        17
//!  +------+---------+----------+---------+---------+------ - -
//!  | kind | array   | priority | number  | length  | body
//!  +------+---------+----------+---------+---------+------ - -
//!   u8     u32 LE    i32 LE     u32 LE    u32 LE    `length` bytes
//! ```
//! The upper five bits of `kind` are bits 32 to 36 of the length.
//!
//! | kind | number | body |
//! |---|---|---|
//! | message to one | of the chare | the message |
//! | message to all | | the message |
//! | message to a section | of chares | their numbers (u32 LE each), the message |
//! | control | | a `Control` in postcard |
//! | message to one that has moved | of the chare | number of moves to the location known to the sender (u32 LE), the message |
//! | result for one | of the chare | number of moves, an `Outcome` in postcard |
//! | chare that moves here | of the chare | number of moves after this one, its next reduction round (u32 LE), its state, data for its waiting methods, the length of that (u32 LE) |
//!
//! **Promise:** no input makes the reader panic or allocate.

use serde::{Deserialize, Serialize};

use super::decision::Order;
use super::id::{ArrayId, Pe};
use super::load_meter::LoadReport;
use super::mail::Outcome;
use super::parking::DeadlockProbe;
use super::proxy::{Callback, Recipients};
use super::quiescence::Report;
use super::reduction::Partial;
use super::value::Value;

/// Length of the record header, bytes.
pub(crate) const HEAD_BYTES: usize = 17;
/// Bits of the first byte that encode the kind. The other bits are the upper bits of the length.
const KIND_BITS: u32 = 3;
/// Lengths of bodies are below this.
const LENGTH_END: u64 = 1 << (40 - KIND_BITS);

/// The kind of a record's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    One = 1,
    All = 2,
    Section = 3,
    Control = 4,
    Sought = 5,
    Result = 6,
    Move = 7,
}

impl Kind {
    /// Reports whether such a record must wait if there is no credit: messages must.
    #[inline]
    pub(crate) fn takes_credit(self) -> bool {
        match self {
            Kind::One | Kind::All | Kind::Section | Kind::Sought => true,
            Kind::Control | Kind::Result | Kind::Move => false,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) kind: Kind,
    pub(crate) array: u32,
    pub(crate) priority: i32,
    pub(crate) number: u32,
}

/// Control records: everything that elements send one another except messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Control {
    /// A part of a reduction, sent to its root.
    Partial {
        array: ArrayId,
        round: u32,
        partial: Partial,
    },
    /// A result for those chares of the receiver that are in `to`.
    Outcome {
        array: ArrayId,
        to: Recipients,
        outcome: Outcome,
    },
    /// A chare has moved to `at`, after that number of moves.
    ChareMoved {
        array: ArrayId,
        number: u32,
        at: Pe,
        moves: u32,
    },
    /// From the first element: report the chares' load since the last report.
    Measure,
    Measured {
        from: Pe,
        measured: LoadReport,
    },
    /// Move these chares of the receiver to other elements.
    Order(Vec<Order>),
    /// The sender has moved the ordered chares that could leave at once.
    OrdersDone,
    /// From the first element, at quiescence: save all chares under that number, for another number of elements if one is given.
    Save {
        number: u64,
        elements: Option<u32>,
        /// The resize was requested from outside: a failure to save does not fail the program.
        is_asked: bool,
    },
    Saved(u64),
    /// To the first element: the chares cannot be saved for another number of elements, and are unchanged.
    SaveFailed {
        number: u64,
        why: String,
    },
    /// To the first element: continue with this number of elements from the next checkpoint on.
    Resize(u32),
    /// All have saved for this number of elements: the receiver must end.
    EndForResize(u32),
    /// Messages of the receiver, of this many bytes, have run.
    Credit {
        from: Pe,
        bytes: u64,
    },
    /// The mailbox limit that the program has set at `from`, bytes.
    MailboxLimit {
        from: Pe,
        bytes: u64,
    },
    /// A deadlock probe: an element is blocked at `from` until the receiver returns credit.
    DeadlockProbe {
        from: Pe,
        question: DeadlockProbe,
    },
    /// A callback that waits for quiescence, sent to the first element.
    WaitForQuiescence(Callback),
    /// A request of the first element to answer once nothing waits.
    Probe {
        wave: u64,
    },
    Report {
        from: Pe,
        report: Report,
    },
    /// The program has ended with this value.
    End(Value),
    /// The program has failed on this element.
    Fail {
        from: Pe,
        why: String,
    },
}

/// Begins a record. Pass the returned position to [`close`] to end it.
pub(crate) fn open(head: RecordHeader, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.push(head.kind as u8);
    out.extend_from_slice(&head.array.to_le_bytes());
    out.extend_from_slice(&head.priority.to_le_bytes());
    out.extend_from_slice(&head.number.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    start
}

/// # Errors
/// If the body is too long. The record is then removed.
pub(crate) fn close(start: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let length = (out.len() - start - HEAD_BYTES) as u64;
    if length >= LENGTH_END {
        out.truncate(start);
        return Err(format!(
            "a message of {length} bytes exceeds the limit of {} bytes; send it in parts",
            LENGTH_END - 1
        ));
    }
    out[start] |= ((length >> 32) as u8) << KIND_BITS;
    out[start + HEAD_BYTES - 4..start + HEAD_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// Splits the next record off the front; `None` at the end.
///
/// # Errors
/// If the record is malformed.
pub(crate) fn next<'a>(bytes: &mut &'a [u8]) -> Result<Option<(RecordHeader, &'a [u8])>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Err(format!("{} bytes are not a record", bytes.len()));
    };
    let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    let kind = match head[0] % (1 << KIND_BITS) {
        1 => Kind::One,
        2 => Kind::All,
        3 => Kind::Section,
        4 => Kind::Control,
        5 => Kind::Sought,
        6 => Kind::Result,
        7 => Kind::Move,
        other => return Err(format!("unknown record kind {other}")),
    };
    let length = u64::from(head[0] >> KIND_BITS) << 32 | u64::from(u32::from_le_bytes(word(13)));
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some((body, rest)) = rest.split_at_checked(length) else {
        return Err(format!("a record of {length} bytes in {} bytes", rest.len()));
    };
    *bytes = rest;
    let (array, priority) = (u32::from_le_bytes(word(1)), i32::from_le_bytes(word(5)));
    Ok(Some((RecordHeader { kind, array, priority, number: u32::from_le_bytes(word(9)) }, body)))
}

/// Splits a section's body into its numbers and the message.
///
/// # Errors
/// If the body is too short.
pub(crate) fn section(count: u32, body: &[u8]) -> Result<(impl Iterator<Item = u32> + '_, &[u8]), String> {
    let length = (count as usize).checked_mul(4).filter(|length| *length <= body.len());
    let Some(length) = length else { return Err(format!("{count} numbers in {} bytes", body.len())) };
    let (numbers, message) = body.split_at(length);
    let number = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    Ok((numbers.chunks_exact(4).map(number), message))
}

/// Splits a number off the front of a body.
///
/// # Errors
/// If the body is too short.
pub(crate) fn number(body: &[u8]) -> Result<(u32, &[u8]), String> {
    let (number, rest) = body.split_first_chunk().ok_or_else(|| format!("a number in {} bytes", body.len()))?;
    Ok((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let heads = [
            RecordHeader { kind: Kind::One, array: 7, priority: -3, number: 1 << 20 },
            RecordHeader { kind: Kind::All, array: 0, priority: i32::MAX, number: 0 },
        ];
        let mut bytes = Vec::new();
        for (length, head) in heads.iter().enumerate() {
            let start = open(*head, &mut bytes);
            bytes.extend(std::iter::repeat_n(9, length));
            close(start, &mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        for (length, head) in heads.iter().enumerate() {
            assert_eq!(next(&mut rest), Ok(Some((*head, &vec![9; length][..]))));
        }
        assert_eq!(next(&mut rest), Ok(None));
        for cut in 1..bytes.len() {
            let mut rest = &bytes[..cut];
            let all: Result<Vec<_>, _> = std::iter::from_fn(|| next(&mut rest).transpose()).collect();
            assert!(all.is_err() || cut == HEAD_BYTES, "cut at {cut}");
        }
    }

    #[test]
    fn numbers_of_a_section_that_is_too_short_are_refused() {
        let (numbers, message) = section(2, &[1, 0, 0, 0, 2, 1, 0, 0, 5]).unwrap();
        assert_eq!((numbers.collect::<Vec<u32>>(), message), (vec![1, 258], &[5][..]));
        assert!(section(3, &[0; 11]).is_err());
        assert!(section(u32::MAX, &[0; 11]).is_err());
    }
}
