//! Filters between two processes: what a letter passes on its way out and on its way in. One file each, and a line in [`FILTERS`].
//!
//! ```text
//! sender:   letter ─▶ filter 1 ─▶ filter 2 ─▶ time when it leaves ─▶ connection
//! receiver: letter ◀─ filter 1 ◀─ filter 2 ◀─ time when it left   ◀─ connection
//! ```
//!
//! A filter changes the bytes of a letter, or its time: when it leaves, when it is due. The owner of a chain offers a letter to the
//! connection when the chain says, and hands over one that came when it is due. So a filter knows no clock and no connection, and
//! is the same for a socket, shared memory and a simulated link. Between sites of a grid there are streams of bytes and no letters: there
//! filters give times alone ([`Times`]).
//!
//! **Invariants:** what comes out has the bytes that went in. Letters keep their order. Without a filter a letter is not touched.
//! **Does not do:** urgent letters, and what a connection says to itself (its probes, its end).

mod compress;
mod delay;
mod jitter;
mod rate;
mod stripe;
mod times;

pub use stripe::Stripes;
pub use times::Times;

use std::str::FromStr;

use gridloom_base::Time;
use gridloom_base::limits::{FILTER_AHEAD_NS, FILTER_DELAY_SECONDS_MAX};
use gridloom_base::time::seconds_to_ns;
use gridloom_platform::units;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A letter on its way through a chain.
#[derive(Debug)]
struct Passing {
    payload: Vec<u8>,
    /// On the way out, when its last byte leaves. On the way in, when it is due.
    at: Time,
}

/// One filter of a pair of processes. It holds the state of both directions.
trait Filter: Send {
    /// When so many bytes have left that are sent then.
    fn leaves(&mut self, at: Time, _size_bytes: usize) -> Time {
        at
    }

    /// When what left then is due.
    fn due(&mut self, left: Time) -> Time {
        left
    }

    /// A letter goes to the other process.
    fn send(&mut self, letter: &mut Passing) {
        letter.at = self.leaves(letter.at, letter.payload.len());
    }

    /// A letter has come from the other process.
    ///
    /// # Errors
    /// If the other process's filter cannot have made it.
    fn receive(&mut self, letter: &mut Passing) -> Result<(), FilterError> {
        letter.at = self.due(letter.at);
        Ok(())
    }

    /// For how long it holds what has left, at most, nanoseconds.
    fn holds_ns_max(&self) -> u64 {
        0
    }

    /// Whether it changes the bytes of letters.
    fn changes_bytes(&self) -> bool {
        false
    }

    /// Whether letters may leave later than they are sent.
    fn paces(&self) -> bool {
        false
    }

    /// Over how many connections the letters go.
    fn connections(&self) -> usize {
        1
    }
}

/// A letter that does not come from the same chain of filters.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FilterError {
    #[error("{length} bytes end before what filter {filter} adds: both processes need the same filters")]
    Truncated { filter: &'static str, length: usize },
    #[error("filter {filter}: the letter says that its {length} bytes become {says}, at most {limit} can be")]
    TooLarge { filter: &'static str, length: usize, says: u64, limit: u64 },
    #[error("filter {filter}: {length} bytes are damaged: {why}")]
    Damaged { filter: &'static str, length: usize, why: String },
}

type Made = Result<Box<dyn Filter>, String>;

/// A filter that is known by name.
#[derive(Debug)]
pub struct FilterKind {
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// How it is written, with its value if it takes one.
    pub example: &'static str,
    /// From its value.
    make: fn(&str, Pair) -> Made,
}

/// All there are, in the order in which a chain usually has them.
pub const FILTERS: &[FilterKind] = &[compress::KIND, rate::KIND, stripe::KIND, delay::KIND, jitter::KIND];

/// The direction of the letters that come: the numbers of the sender and of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    pub from: u32,
    pub to: u32,
}

/// A filter with its value, as `delay=16ms`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilterSpec {
    name: String,
    value: String,
}

impl FilterSpec {
    fn make(&self, pair: Pair) -> Made {
        let kind = FILTERS.iter().find(|kind| kind.name == self.name).expect("named by a kind");
        (kind.make)(&self.value, pair).map_err(|why| format!("{self}: {why}"))
    }
}

impl FromStr for FilterSpec {
    type Err = String;

    /// # Errors
    /// If there is no such filter, or it takes no such value.
    fn from_str(text: &str) -> Result<FilterSpec, String> {
        let text = text.trim();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(kind) = FILTERS.iter().find(|kind| kind.name == name) else {
            let known: Vec<&str> = FILTERS.iter().map(|kind| kind.name).collect();
            return Err(format!("filter '{name}' is not known; there are {}", known.join(", ")));
        };
        match (kind.example.contains('='), value) {
            (true, None) => return Err(format!("filter {name} needs a value, such as {}", kind.example)),
            (false, Some(_)) => return Err(format!("filter {name} takes no value: write {name}")),
            (true, Some(_)) | (false, None) => {}
        }
        // A list of filters is divided at blanks.
        let value = value.unwrap_or_default().trim();
        if value.contains(char::is_whitespace) {
            return Err(format!(
                "filter {name}: '{value}' has blanks: write it without them, such as {}",
                kind.example
            ));
        }
        let spec = FilterSpec { name: kind.name.into(), value: value.into() };
        spec.make(Pair { from: 0, to: 0 })?;
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
pub struct Chain {
    filters: Vec<Box<dyn Filter>>,
    /// Whether letters go out before their time: the receiver holds them until then.
    paces: bool,
    /// When the last letter that came is due.
    last: Time,
}

impl Chain {
    /// `pair` is the direction of the letters that come.
    pub fn new(specs: &[FilterSpec], pair: Pair) -> Chain {
        let filters = specs.iter().map(|spec| spec.make(pair).expect("made when it was parsed"));
        let filters: Vec<Box<dyn Filter>> = filters.collect();
        Chain { paces: filters.iter().any(|filter| filter.paces()), filters, last: Time::ZERO }
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Over how many connections its owner is to spread the letters ([`Stripes`]).
    pub fn connections(&self) -> usize {
        self.filters.iter().map(|filter| filter.connections()).max().unwrap_or(1)
    }

    /// A letter goes, through at least one filter: its bytes for the connection, and when these may be offered to it.
    pub fn send(&mut self, now: Time, payload: Vec<u8>) -> (Vec<u8>, Time) {
        let mut letter = Passing { payload, at: now };
        self.filters.iter_mut().for_each(|filter| filter.send(&mut letter));
        letter.payload.extend_from_slice(&letter.at.0.to_le_bytes());
        (letter.payload, letter.at - FILTER_AHEAD_NS)
    }

    /// A letter has come that passed at least one filter: its bytes, and when it is due.
    ///
    /// # Errors
    /// If the other process's chain cannot have made it.
    pub fn receive(&mut self, now: Time, mut payload: Vec<u8>) -> Result<(Vec<u8>, Time), FilterError> {
        let length = payload.len();
        let Some((_, left)) = payload.split_last_chunk::<8>() else {
            return Err(FilterError::Truncated { filter: "chain", length });
        };
        let left = Time(u64::from_le_bytes(*left));
        payload.truncate(length - 8);
        // A clock that is ahead must not hold letters longer.
        let latest = if self.paces { now + FILTER_AHEAD_NS } else { now };
        let mut letter = Passing { payload, at: left.min(latest) };
        for filter in self.filters.iter_mut().rev() {
            filter.receive(&mut letter)?;
        }
        self.last = self.last.max(letter.at);
        Ok((letter.payload, self.last))
    }

    /// The connection has closed: when that is to be known, which is after the letters that came before.
    pub fn closed(&self, now: Time) -> Time {
        self.last.max(now)
    }
}

/// A time that a filter holds letters, in nanoseconds.
fn held_ns(text: &str) -> Result<u64, String> {
    let seconds = units::time(text)?;
    let is_time = (0.0..=FILTER_DELAY_SECONDS_MAX).contains(&seconds);
    is_time.then(|| seconds_to_ns(seconds)).ok_or_else(|| format!("expected 0s to {FILTER_DELAY_SECONDS_MAX}s"))
}

#[cfg(test)]
mod tests;
