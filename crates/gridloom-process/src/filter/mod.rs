//! Filters between two processes, which a message passes on the sending and on the receiving side. One file each, and
//! a line in [`FILTERS`].
//!
//! ```text
//! sender:   message ─▶ filter 1 ─▶ filter 2 ─▶ time when it leaves ─▶ connection
//! receiver: message ◀─ filter 1 ◀─ filter 2 ◀─ time when it left   ◀─ connection
//! ```
//!
//! A filter changes a message's bytes or its times: when it leaves and when it is due. The owner of a chain offers a
//! message to the connection at the time that the chain returns, and delivers a received one when it is due. So a
//! filter knows no clock and no connection, and works the same for a socket, shared memory and a simulated link.
//! Between sites of a grid there are byte streams instead of messages, where filters only compute times ([`FilterTimes`]).
//!
//! **Invariants:** the bytes received are the bytes sent. Messages keep their order. Without a filter a message is not
//! touched. **Does not do:** urgent messages, and a connection's own traffic (its probes, its end).

mod compress;
mod delay;
mod jitter;
mod rate;
mod stripe;
mod times;

pub use stripe::StripeSequencer;
pub use times::FilterTimes;

use std::str::FromStr;

use gridloom_base::Time;
use gridloom_base::limits::{FILTER_AHEAD_NS, FILTER_DELAY_SECONDS_MAX};
use gridloom_base::time::seconds_to_ns;
use gridloom_platform::units;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A message that passes through a chain.
#[derive(Debug)]
struct FilteredMessage {
    payload: Vec<u8>,
    /// When sending: the time at which its last byte leaves. When receiving: the time at which it is due.
    at: Time,
}

/// One filter of a pair of processes, with the state of both directions.
trait Filter: Send {
    /// Returns the time at which `_size_bytes` bytes sent at `at` have left.
    fn departure(&mut self, at: Time, _size_bytes: usize) -> Time {
        at
    }

    /// Returns the time at which bytes that left at `left` are due.
    fn delivery(&mut self, left: Time) -> Time {
        left
    }

    /// Processes a message to the other process.
    fn send(&mut self, letter: &mut FilteredMessage) {
        letter.at = self.departure(letter.at, letter.payload.len());
    }

    /// Processes a message from the other process.
    ///
    /// # Errors
    /// If the other process's filter cannot have produced it.
    fn receive(&mut self, letter: &mut FilteredMessage) -> Result<(), FilterError> {
        letter.at = self.delivery(letter.at);
        Ok(())
    }

    /// Returns the longest time for which it delays bytes that have left, in nanoseconds.
    fn delay_ns_max(&self) -> u64 {
        0
    }

    /// True if it changes the bytes of messages.
    fn changes_bytes(&self) -> bool {
        false
    }

    /// True if messages may leave later than they are sent.
    fn delays_sending(&self) -> bool {
        false
    }

    /// Returns the number of connections over which messages are spread.
    fn connections(&self) -> usize {
        1
    }
}

/// A received message that the same chain of filters cannot have produced.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FilterError {
    #[error("{length} bytes end before what filter {filter} adds: both processes need the same filters")]
    Truncated { filter: &'static str, length: usize },
    #[error(
        "filter {filter}: the message states that its {length} bytes expand to {stated_bytes}, at most {limit} are possible"
    )]
    TooLarge { filter: &'static str, length: usize, stated_bytes: u64, limit: u64 },
    #[error("filter {filter}: {length} bytes are damaged: {why}")]
    Damaged { filter: &'static str, length: usize, why: String },
}

type FilterResult = Result<Box<dyn Filter>, String>;

/// A filter, found by its name.
#[derive(Debug)]
pub struct FilterKind {
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// An example of its syntax, with a value if it takes one.
    pub example: &'static str,
    /// Creates the filter from its value.
    make: fn(&str, PeerPair) -> FilterResult,
}

/// All filters, in their usual order in a chain.
pub const FILTERS: &[FilterKind] = &[compress::KIND, rate::KIND, stripe::KIND, delay::KIND, jitter::KIND];

/// The direction of received messages: the numbers of the sender and of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerPair {
    pub from: u32,
    pub to: u32,
}

/// A filter with its value, such as `delay=16ms`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilterSpec {
    name: String,
    value: String,
}

impl FilterSpec {
    fn make(&self, pair: PeerPair) -> FilterResult {
        let kind = FILTERS.iter().find(|kind| kind.name == self.name).expect("named by a kind");
        (kind.make)(&self.value, pair).map_err(|why| format!("{self}: {why}"))
    }
}

impl FromStr for FilterSpec {
    type Err = String;

    /// # Errors
    /// If there is no such filter, or it does not accept the value.
    fn from_str(text: &str) -> Result<FilterSpec, String> {
        let text = text.trim();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(kind) = FILTERS.iter().find(|kind| kind.name == name) else {
            let known: Vec<&str> = FILTERS.iter().map(|kind| kind.name).collect();
            return Err(format!("filter '{name}' is unknown; filters are {}", known.join(", ")));
        };
        match (kind.example.contains('='), value) {
            (true, None) => return Err(format!("filter {name} needs a value, such as {}", kind.example)),
            (false, Some(_)) => return Err(format!("filter {name} takes no value: write {name}")),
            (true, Some(_)) | (false, None) => {}
        }
        // Lists of filters are split at blanks.
        let value = value.unwrap_or_default().trim();
        if value.contains(char::is_whitespace) {
            return Err(format!(
                "filter {name}: '{value}' has blanks: write it without them, such as {}",
                kind.example
            ));
        }
        let spec = FilterSpec { name: kind.name.into(), value: value.into() };
        spec.make(PeerPair { from: 0, to: 0 })?;
        Ok(spec)
    }
}

impl TryFrom<String> for FilterSpec {
    type Error = String;

    fn try_from(text: String) -> Result<FilterSpec, String> {
        text.parse()
    }
}

impl From<FilterSpec> for String {
    fn from(spec: FilterSpec) -> String {
        spec.to_string()
    }
}

impl std::fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{sign}{}", self.name, self.value)
    }
}

/// The filters between this process and another one, for both directions.
#[derive(Default)]
pub struct FilterChain {
    filters: Vec<Box<dyn Filter>>,
    /// True if messages are sent ahead of their time: the receiver holds them until then.
    paces: bool,
    /// The time at which the last received message is due.
    last: Time,
}

impl FilterChain {
    /// Creates the filters. `pair` is the direction of received messages.
    pub fn new(specs: &[FilterSpec], pair: PeerPair) -> FilterChain {
        let filters = specs.iter().map(|spec| spec.make(pair).expect("made when it was parsed"));
        let filters: Vec<Box<dyn Filter>> = filters.collect();
        FilterChain { paces: filters.iter().any(|filter| filter.delays_sending()), filters, last: Time::ZERO }
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns the number of connections over which the owner must spread messages ([`StripeSequencer`]).
    pub fn connections(&self) -> usize {
        self.filters.iter().map(|filter| filter.connections()).max().unwrap_or(1)
    }

    /// Filters a message to be sent. Returns its bytes for the connection, and the time from which they may be offered
    /// to it. The chain must have at least one filter.
    pub fn send(&mut self, now: Time, payload: Vec<u8>) -> (Vec<u8>, Time) {
        let mut letter = FilteredMessage { payload, at: now };
        self.filters.iter_mut().for_each(|filter| filter.send(&mut letter));
        letter.payload.extend_from_slice(&letter.at.0.to_le_bytes());
        (letter.payload, letter.at - FILTER_AHEAD_NS)
    }

    /// Filters a received message. Returns its bytes and the time at which it is due. The chain must have at least
    /// one filter.
    ///
    /// # Errors
    /// If the other process's chain cannot have produced it.
    pub fn receive(&mut self, now: Time, mut payload: Vec<u8>) -> Result<(Vec<u8>, Time), FilterError> {
        let length = payload.len();
        let Some((_, left)) = payload.split_last_chunk::<8>() else {
            return Err(FilterError::Truncated { filter: "chain", length });
        };
        let left = Time(u64::from_le_bytes(*left));
        payload.truncate(length - 8);
        // If the sender's clock is ahead, messages must not be held longer.
        let latest = if self.paces { now + FILTER_AHEAD_NS } else { now };
        let mut letter = FilteredMessage { payload, at: left.min(latest) };
        for filter in self.filters.iter_mut().rev() {
            filter.receive(&mut letter)?;
        }
        self.last = self.last.max(letter.at);
        Ok((letter.payload, self.last))
    }

    /// Returns when the close of the connection may be reported: after the messages received before it.
    pub fn closed(&self, now: Time) -> Time {
        self.last.max(now)
    }
}

/// Parses the delay of a filter into nanoseconds.
fn parse_delay_ns(text: &str) -> Result<u64, String> {
    let seconds = units::time(text)?;
    let is_time = (0.0..=FILTER_DELAY_SECONDS_MAX).contains(&seconds);
    is_time.then(|| seconds_to_ns(seconds)).ok_or_else(|| format!("expected 0s to {FILTER_DELAY_SECONDS_MAX}s"))
}

#[cfg(test)]
mod tests;
