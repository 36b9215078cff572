//! Data that are passed on while they come.
//!
//! ```text
//! sender ── first part ─┬─ what is between ────────────┬─ last part ─▶ a server: has begun … whole
//!                       └─▶ the server's own flow: first part, what is between ── waits ── last part ─▶ the next server
//! ```
//! Cargo that may be passed on flows in two stretches: its first part, after which it has *begun* at its receiver, and the rest.
//! What is passed on flows like any other, but keeps its last part back until it is whole at its sender. So a chain of n servers takes
//! what one transfer takes and n parts more. One behind a slower way ends a part after that way has.
//!
//! **Invariant:** what comes is forgotten when it has landed, or when its connection is lost; what was passed on of it then flows to
//! its end, or breaks off at its receiver.
//!
//! **Where it is wrong.** Behind a slower way the flow takes its full share of the links at first and nothing later, instead of the
//! slower rate all along. Others on the same links are so delayed early rather than late, by the same bytes in all.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, NodeId, Parts};

use super::cargo::Cargo;
use super::partials::Had;
use crate::store::StoredValue;

/// What a node has to send, in bulk.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) cargo: Cargo,
    /// Its receiver may pass it on while it comes.
    pub(super) may_pass: bool,
    /// It is on its way to its sender: the last part has not come there.
    pub(super) is_coming: bool,
    /// It has begun at its receiver.
    pub(super) has_begun: bool,
    /// What its receiver has of it: the rest alone flows.
    pub(super) had: Option<Had>,
}

impl Load {
    /// Bytes of its next stretch, with so many left: 0 if it has to wait.
    pub(super) fn stretch_bytes(&self, left_bytes: u64, parts: Parts) -> u64 {
        let part_bytes = parts.of(self.cargo.size_bytes());
        let is_first = left_bytes == self.flow_bytes();
        match (self.may_pass && is_first, self.is_coming) {
            (true, _) => part_bytes.min(left_bytes),
            (false, true) => left_bytes.saturating_sub(part_bytes),
            (false, false) => left_bytes,
        }
    }

    /// Bytes that flow in all.
    pub(super) fn flow_bytes(&self) -> u64 {
        self.cargo.size_bytes() - self.had.as_ref().map_or(0, |had| had.bytes)
    }

    pub(super) fn passes_on(&self, known: DatumId) -> bool {
        self.is_coming && matches!(self.cargo, Cargo::Datum { datum, .. } if datum == known)
    }
}

/// What comes to which node.
#[derive(Debug, Default)]
pub(super) struct Comings {
    /// From whom, and what it will be.
    coming: BTreeMap<(NodeId, DatumId), (NodeId, StoredValue)>,
    /// What broke off since it last landed there: its node may not have heard of it yet.
    broken: BTreeSet<(NodeId, DatumId)>,
}

impl Comings {
    /// The first part of a datum has come. False if it has begun to come from another.
    pub(super) fn begin(&mut self, (from, to): (NodeId, NodeId), datum: DatumId, value: StoredValue) -> bool {
        let is_new = !self.coming.contains_key(&(to, datum));
        if is_new {
            self.coming.insert((to, datum), (from, value));
        }
        is_new
    }

    pub(super) fn value(&self, at: NodeId, datum: DatumId) -> Option<&StoredValue> {
        self.coming.get(&(at, datum)).map(|(_, value)| value)
    }

    /// Whether a datum comes to a node from that one.
    pub(super) fn comes(&self, (from, to): (NodeId, NodeId), datum: DatumId) -> bool {
        self.coming.get(&(to, datum)).is_some_and(|(sender, _)| *sender == from)
    }

    /// It is whole there.
    pub(super) fn end(&mut self, at: NodeId, datum: DatumId) {
        self.coming.remove(&(at, datum));
        self.broken.remove(&(at, datum));
    }

    /// It comes no longer; false if it did not.
    pub(super) fn break_off(&mut self, at: NodeId, datum: DatumId) -> bool {
        let came = self.coming.remove(&(at, datum)).is_some();
        if came {
            self.broken.insert((at, datum));
        }
        came
    }

    pub(super) fn has_broken(&self, at: NodeId, datum: DatumId) -> bool {
        self.broken.contains(&(at, datum))
    }

    /// All that comes, by where.
    pub(super) fn places(&self) -> impl Iterator<Item = (NodeId, DatumId)> {
        self.coming.keys().copied()
    }

    /// What comes over a connection, in either direction, by where.
    pub(super) fn between(&self, (a, b): (NodeId, NodeId)) -> Vec<(NodeId, DatumId)> {
        let is_between = |to: NodeId, from: NodeId| (to, from) == (a, b) || (to, from) == (b, a);
        let coming = self.coming.iter().filter(|((to, _), (from, _))| is_between(*to, *from));
        coming.map(|(place, _)| *place).collect()
    }
}
