//! Data that are forwarded while they are being received.
//!
//! ```text
//! sender ── first part ─┬─ middle ─────────────────────┬─ last part ─▶ a server: has begun … complete
//!                       └─▶ the server's own flow: first part, middle ─────── waits ── last part ─▶ the next server
//! ```
//! Cargo that may be forwarded flows in two stretches: its first part, after which it has *begun* at its receiver, and
//! the rest. A forwarded datum flows like any other, but its last part waits until the datum is complete at its
//! sender. So a chain of n servers takes the time of one transfer plus n parts. A transfer behind a slower link ends
//! one part after the transfer over that link.
//!
//! **Invariant:** an incoming datum is forgotten when it has arrived, or when its connection is lost. Its forwarded
//! copies then flow to their end, or break off at their receivers.
//!
//! **Known to be wrong.** Behind a slower link, the flow uses its full share of the links at first and nothing later,
//! instead of the slower rate all along. Other flows on the same links are delayed earlier than they should be, by the
//! same bytes in total.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, NodeId, PartSizes};

use super::cargo::Cargo;
use super::partials::ReceivedPart;
use crate::store::StoredValue;

/// Cargo that a node has to send in bulk.
#[derive(Debug)]
pub(super) struct BulkCargo {
    pub(super) cargo: Cargo,
    /// True if its receiver may forward it while receiving it.
    pub(super) may_pass: bool,
    /// True if its sender is still receiving it: the last part has not arrived there.
    pub(super) is_incoming: bool,
    /// True if its first part has arrived at its receiver.
    pub(super) has_begun: bool,
    /// The part that its receiver has; only the rest flows.
    pub(super) had: Option<ReceivedPart>,
}

impl BulkCargo {
    /// Returns the size of its next stretch with `left_bytes` left; 0 if it must wait.
    pub(super) fn stretch_bytes(&self, left_bytes: u64, parts: PartSizes) -> u64 {
        let part_bytes = parts.part_bytes(self.cargo.size_bytes());
        let is_first = left_bytes == self.flow_bytes();
        match (self.may_pass && is_first, self.is_incoming) {
            (true, _) => part_bytes.min(left_bytes),
            (false, true) => left_bytes.saturating_sub(part_bytes),
            (false, false) => left_bytes,
        }
    }

    /// Returns the total number of bytes that flow.
    pub(super) fn flow_bytes(&self) -> u64 {
        self.cargo.size_bytes() - self.had.as_ref().map_or(0, |had| had.bytes)
    }

    pub(super) fn is_forwarding(&self, known: DatumId) -> bool {
        self.is_incoming && matches!(self.cargo, Cargo::Datum { datum, .. } if datum == known)
    }
}

/// The data that nodes are receiving.
#[derive(Debug, Default)]
pub(super) struct IncomingData {
    /// The sender, and the final value.
    coming: BTreeMap<(NodeId, DatumId), (NodeId, StoredValue)>,
    /// Transfers that broke off since the datum last arrived there. The node may not have been notified yet.
    broken: BTreeSet<(NodeId, DatumId)>,
}

impl IncomingData {
    /// Records that the first part of a datum has arrived. Returns false if the node is already receiving it from another sender.
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

    /// Reports whether a node is receiving a datum from a given sender.
    pub(super) fn is_receiving(&self, (from, to): (NodeId, NodeId), datum: DatumId) -> bool {
        self.coming.get(&(to, datum)).is_some_and(|(sender, _)| *sender == from)
    }

    /// Records that a datum is complete at a node.
    pub(super) fn end(&mut self, at: NodeId, datum: DatumId) {
        self.coming.remove(&(at, datum));
        self.broken.remove(&(at, datum));
    }

    /// Records that a transfer broke off. Returns false if there was none.
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

    /// Iterates over the receivers and data of all incoming transfers.
    pub(super) fn receivers(&self) -> impl Iterator<Item = (NodeId, DatumId)> {
        self.coming.keys().copied()
    }

    /// Returns the receivers and data of the incoming transfers of a connection, in either direction.
    pub(super) fn transfers_between(&self, (a, b): (NodeId, NodeId)) -> Vec<(NodeId, DatumId)> {
        let is_between = |to: NodeId, from: NodeId| (to, from) == (a, b) || (to, from) == (b, a);
        let coming = self.coming.iter().filter(|((to, _), (from, _))| is_between(*to, *from));
        coming.map(|(place, _)| *place).collect()
    }
}
