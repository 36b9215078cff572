//! The record of a run: a hash of every input delivered and every effect performed, in order; the bytes moved; and the
//! intervals of tasks and transfers, for a timeline.
//!
//! **Invariant:** two runs with the same hash delivered the same inputs and performed the same effects at the same
//! times (up to collisions of 64 bits). A message is hashed when it is sent; when it is received, only that hash is
//! added. A started task is hashed by its name.
//!
//! Text records are kept only on request, because they are long.
//!
//! Source of the hash: FNV-1a, 64 bits (Fowler, Noll, Vo).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use gridloom_base::{DatumId, NodeId, TaskId, Time};
use gridloom_core::node::{Effect, Input};
use gridloom_flow::{LinkIndex, Quantity};

use crate::event::SimEvent;
use crate::store::StoredValue;

/// An interval of the timeline.
#[derive(Clone, PartialEq, Debug)]
pub enum Interval {
    /// A task that ran to its end.
    Task { node: NodeId, task: TaskId, function: String, start: Time, end: Time },
    /// A datum that arrived.
    Transfer {
        from: NodeId,
        to: NodeId,
        datum: DatumId,
        size_bytes: u64,
        /// Time at which the transfer began: after the transfers that preceded it on the same connection.
        start: Time,
        end: Time,
    },
}

/// One line of the trace as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub at: Time,
    /// The node that received the input or performed the effect.
    pub node: NodeId,
    pub what: String,
}

#[derive(Debug)]
pub(crate) struct Trace {
    hash: Fnv,
    records: Option<Vec<Record>>,
    /// Events for checking invariants, if they are recorded.
    events: Option<Vec<(Time, SimEvent)>>,
    intervals: Vec<Interval>,
    bytes_by_pair: BTreeMap<(NodeId, NodeId), u64>,
    /// Indexed by link number.
    bytes_by_link: Vec<f64>,
}

impl Trace {
    pub(crate) fn new(seed: u64, links: usize) -> Trace {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        hash.add(&seed.to_le_bytes());
        let (intervals, bytes_by_link) = (Vec::new(), vec![0.0; links]);
        Trace { hash, records: None, events: None, intervals, bytes_by_pair: BTreeMap::new(), bytes_by_link }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.0
    }

    /// Also records the trace as text from now on.
    pub(crate) fn keep_records(&mut self) {
        self.records.get_or_insert_default();
    }

    pub(crate) fn records(&self) -> &[Record] {
        self.records.as_deref().unwrap_or_default()
    }

    /// Takes the events since the last call, and records the following ones.
    pub(crate) fn take_events(&mut self) -> Vec<(Time, SimEvent)> {
        self.events.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns the intervals in order of their ends.
    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Returns the bytes of data that arrived, by sender and receiver.
    pub(crate) fn bytes_by_pair(&self) -> &BTreeMap<(NodeId, NodeId), u64> {
        &self.bytes_by_pair
    }

    /// Returns the bytes of data that arrived, by link number.
    pub(crate) fn bytes_by_link(&self) -> &[f64] {
        &self.bytes_by_link
    }

    /// Records the interval of a task that has ended, or of a datum that has arrived.
    pub(crate) fn record_interval(&mut self, interval: Interval) {
        self.intervals.push(interval);
    }

    /// Records an input that is about to be handled; `digest` is that of the message, if it is one.
    pub(crate) fn input(&mut self, at: Time, node: NodeId, input: &Input, digest: u64) {
        self.open(b'<', at, node);
        match input {
            Input::Received { from, .. } => self.hash.numbers(&[from.0, digest]),
            other => self.hash.debug(other),
        }
        self.record(at, node, "<", input);
        if let Some(events) = &mut self.events {
            SimEvent::of_input(node, input, |event| events.push((at, event)));
        }
    }

    /// Records that a process sends a message.
    pub(crate) fn process_message(&mut self, at: Time, process: u32, kind: &str, payload: &[u8]) {
        self.hash.add(b"@");
        self.hash.numbers(&[at.0, u64::from(process), payload.len() as u64]);
        self.hash.add(kind.as_bytes());
        self.hash.add(payload);
    }

    /// Records that a process sends an urgent message.
    pub(crate) fn urgent_letter(&mut self, at: Time, process: u32, kind: &str, payload: &[u8]) {
        self.hash.add(b"!");
        self.process_message(at, process, kind, payload);
    }

    /// Records an event of a process by a sign: `+` added, `>` resumed, `=` message delivered, `x` requested to end,
    /// `-` ended.
    pub(crate) fn process(&mut self, sign: u8, at: Time, process: u32) {
        self.hash.add(&[b'&', sign]);
        self.hash.numbers(&[at.0, u64::from(process)]);
    }

    /// Records that a process computes.
    pub(crate) fn computes(&mut self, at: Time, process: u32, flops: f64) {
        self.hash.add(b"%");
        self.hash.numbers(&[at.0, u64::from(process), flops.to_bits()]);
    }

    /// Records an effect that is about to be performed; `digest` is that of the message, if it is one.
    pub(crate) fn effect(&mut self, at: Time, node: NodeId, effect: &Effect, digest: u64) {
        self.open(b'>', at, node);
        match effect {
            Effect::Send { to, .. } => self.hash.numbers(&[to.0, digest]),
            Effect::StartTask { task } => self.hash.debug(&task.id),
            other => self.hash.debug(other),
        }
        self.record(at, node, ">", effect);
        if let Some(events) = &mut self.events {
            SimEvent::of_effect(node, effect, |event| events.push((at, event)));
        }
    }

    pub(crate) fn fault(&mut self, at: Time, node: NodeId, what: &str) {
        self.open(b'!', at, node);
        self.hash.add(what.as_bytes());
        self.record(at, node, "!", &what);
    }

    /// Records that the route from one host to another was lost or healed.
    pub(crate) fn route_changed(&mut self, at: Time, from: u32, to: u32, what: &str) {
        self.hash.add(b"x");
        self.hash.numbers(&[at.0, u64::from(from), u64::from(to)]);
        self.hash.add(what.as_bytes());
        self.record(at, NodeId(0), "!", &format_args!("route from host {from} to host {to} {what}"));
    }

    /// Records a change by a profile.
    pub(crate) fn changed(&mut self, at: Time, quantity: &Quantity, value: f64) {
        self.hash.add(b"^");
        self.hash.numbers(&[at.0, value.to_bits()]);
        self.hash.debug(quantity);
        self.record(at, NodeId(0), "!", &format_args!("{quantity:?} is {value}"));
    }

    /// Records that a host's speed is scaled.
    pub(crate) fn scale(&mut self, at: Time, host: u32, factor: f64) {
        self.hash.add(b"~");
        self.hash.numbers(&[at.0, u64::from(host), factor.to_bits()]);
        self.record(at, NodeId(0), "!", &format_args!("host {host} at {factor} of its speed"));
    }

    /// Records that a disk's rate is scaled.
    pub(crate) fn scale_disk(&mut self, at: Time, host: u32, factor: f64) {
        self.hash.add(b"_");
        self.hash.numbers(&[at.0, u64::from(host), factor.to_bits()]);
        self.record(at, NodeId(0), "!", &format_args!("disk of host {host} at {factor} of its rate"));
    }

    /// Counts a datum that arrived over these links.
    pub(crate) fn count_datum(&mut self, from: NodeId, to: NodeId, size_bytes: u64, links: &[LinkIndex]) {
        *self.bytes_by_pair.entry((from, to)).or_default() += size_bytes;
        self.count_bytes(size_bytes, links);
    }

    /// Counts bytes that crossed links.
    pub(crate) fn count_bytes(&mut self, size_bytes: u64, links: &[LinkIndex]) {
        for link in links {
            self.bytes_by_link[link.0 as usize] += size_bytes as f64;
        }
    }

    /// Records a value that was put into a store.
    pub(crate) fn stored(&mut self, at: Time, node: NodeId, datum: DatumId, value: &StoredValue) {
        if let Some(events) = &mut self.events {
            events.push((at, SimEvent::Stored { node, datum, value: value.clone() }));
        }
    }

    /// Records that a corrupted datum was rejected. `is_lost` is true if its connection is closed.
    pub(crate) fn corruption_rejected(&mut self, at: Time, is_lost: bool) {
        if let Some(events) = &mut self.events {
            events.push((at, SimEvent::Corrupted { is_lost }));
        }
    }

    pub(crate) fn transfer_continued(&mut self, at: Time) {
        if let Some(events) = &mut self.events {
            events.push((at, SimEvent::Continues));
        }
    }

    pub(crate) fn forwarding_began(&mut self, at: Time) {
        if let Some(events) = &mut self.events {
            events.push((at, SimEvent::Forwards));
        }
    }

    fn open(&mut self, mark: u8, at: Time, node: NodeId) {
        self.hash.add(&[mark]);
        self.hash.numbers(&[at.0, node.0]);
    }

    fn record(&mut self, at: Time, node: NodeId, mark: &str, what: &dyn fmt::Debug) {
        if let Some(records) = &mut self.records {
            records.push(Record { at, node, what: format!("{mark} {what:?}") });
        }
    }
}

/// Returns the hash of a message's bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.add(bytes);
    hash.0
}

#[derive(Debug)]
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.add(&number.to_le_bytes());
        }
    }

    fn debug(&mut self, value: &dyn fmt::Debug) {
        write!(self, "{value:?}").expect("hashing does not fail");
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}
