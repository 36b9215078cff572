//! Errors of chare programs. Each of them ends the program.

use thiserror::Error;

use super::id::{Index, Pe};

/// The reason why a program of chares ended.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ChareError {
    #[error("array {array} has no chare {index}: {has}")]
    NoSuchChare {
        array: String,
        index: Index,
        /// Which indices it has, as text.
        has: String,
    },
    #[error("array {array}: the placement puts {index} on element {}, but there are only {count} elements", .element.0)]
    NoSuchElement { array: String, index: Index, element: Pe, count: u32 },
    #[error("a message for array {array}: {why}")]
    Message { array: String, why: String },
    #[error("a message batch from element {}: {why}", .from.0)]
    Batch { from: Pe, why: String },
    #[error("a reduction of array {array}: {why}")]
    Reduction { array: String, why: String },
    #[error("array {array} got a result with tag {tag} but does not handle it: give its chare a method `outcome`")]
    Unexpected { array: String, tag: u32 },
    #[error("chare {index} of array {array} cannot move: {why}")]
    Migration { array: String, index: Index, why: String },
    #[error("chare {index} of array {array} cannot be saved: {why}")]
    Save { array: String, index: Index, why: String },
    #[error("array {array} cannot be restored: {why}")]
    Restore { array: String, why: String },
    #[error("the program cannot continue with {elements} elements: {why}")]
    Resize { elements: u32, why: String },
    #[error("element {} has more than {limit} waiting messages: let chares wait for what they need, or send less at a \
    time", .element.0)]
    WaitingLimit { element: Pe, limit: usize },
    #[error(
        "more than {limit} bytes of messages wait at element {} for element {}, and the two elements wait for each \
        other: send less before handling incoming messages, or raise the limit (Job::mailbox_bytes)", .element.0, .to.0
    )]
    UnsentLimit { element: Pe, to: Pe, limit: u64 },
    #[error(
        "the elements have different limits for waiting messages: {bytes} bytes at element {}, {other_bytes} bytes at \
        element {}. Set the same mailbox_bytes on every element, or on none", .element.0, .other.0
    )]
    MailboxLimitsDiffer { element: Pe, bytes: u64, other: Pe, other_bytes: u64 },
    /// The element's process ended, or its connection broke.
    #[error("element {} was lost before the program ended: {why}", .element.0)]
    Lost { element: Pe, why: String },
    /// Both an element and its buddy, which had the copy of its part of the last checkpoint, were lost.
    #[error(
        "the last in-memory checkpoint is lost, because elements were lost at the same time: {}; keep checkpoints in \
        a folder (--checkpoint DIR) if that can happen",
        parts_in_words(.parts)
    )]
    PartsLost { parts: Vec<(Pe, Pe)> },
    /// The reason that another element reported before it ended.
    #[error("element {} has ended the program: {why}", .element.0)]
    RemoteFailure { element: Pe, why: String },
    /// Detected by quiescence.
    #[error(
        "the program can never end: no message is waiting or in transit on {elements} elements, and no chare has \
        called Context::exit; is a chare waiting for a message that is never sent, or a reduction for a chare that \
        does not contribute?{waiting}"
    )]
    Stalled {
        elements: u32,
        /// Description of the waits of this element's chares.
        waiting: String,
    },
    /// An error raised by the program itself.
    #[error("{0}")]
    Failed(String),
}

fn parts_in_words(parts: &[(Pe, Pe)]) -> String {
    let part = |(of, buddy): &(Pe, Pe)| format!("element {} and element {} with the copy of its part", of.0, buddy.0);
    parts.iter().map(part).collect::<Vec<String>>().join(", ")
}
