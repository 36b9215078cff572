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

use gridloom_base::{DatumId, NodeId};

use super::cargo::{Cargo, Parcel};
use super::links::Links;
use super::routes::Routes;
use crate::kernel::Kernel;
use crate::store::StoredValue;

/// Bytes of a frame that says what has broken off.
const BROKEN_BYTES: u64 = 64;

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
}

impl Load {
    /// Bytes of its next stretch, with so many left: 0 if it has to wait.
    pub(super) fn stretch_bytes(&self, left_bytes: u64, part_bytes: u64) -> u64 {
        let is_first = left_bytes == self.cargo.size_bytes();
        match (self.may_pass && is_first, self.is_coming) {
            (true, _) => part_bytes.min(left_bytes),
            (false, true) => left_bytes.saturating_sub(part_bytes),
            (false, false) => left_bytes,
        }
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

impl Links {
    /// The first part of a datum has come. False if it has begun to come from another.
    pub(crate) fn begin(&mut self, (from, to): (NodeId, NodeId), datum: DatumId, value: StoredValue) -> bool {
        let is_new = !self.comings.coming.contains_key(&(to, datum));
        if is_new {
            self.comings.coming.insert((to, datum), (from, value));
        }
        is_new
    }

    /// What comes to a node and has begun.
    pub(crate) fn coming(&self, at: NodeId, datum: DatumId) -> Option<&StoredValue> {
        self.comings.coming.get(&(at, datum)).map(|(_, value)| value)
    }

    /// What comes to some node and has begun.
    pub(crate) fn comings(&self) -> impl Iterator<Item = (NodeId, DatumId)> {
        self.comings.coming.keys().copied()
    }

    /// Whether it has begun at a node since it last landed there, and broke off.
    pub(crate) fn has_broken(&self, at: NodeId, datum: DatumId) -> bool {
        self.comings.broken.contains(&(at, datum))
    }

    /// A datum has landed, and was taken in or not: so goes what was passed on of it.
    pub(crate) fn landed(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        (from, to): (NodeId, NodeId),
        datum: DatumId,
        is_whole: bool,
    ) {
        if self.comings.coming.get(&(to, datum)).is_none_or(|(sender, _)| *sender != from) {
            return;
        }
        if !is_whole {
            return self.break_off(kernel, routes, vec![(to, datum)]);
        }
        self.comings.coming.remove(&(to, datum));
        self.comings.broken.remove(&(to, datum));
        for peer in self.peers(to) {
            self.let_end(kernel, routes, (to, peer), datum);
        }
    }

    /// A connection is lost: what came over it breaks off.
    pub(super) fn break_all(&mut self, kernel: &mut Kernel, routes: &mut Routes, (a, b): (NodeId, NodeId)) {
        let is_lost = |to: NodeId, from: NodeId| (to, from) == (a, b) || (to, from) == (b, a);
        let lost = self.comings.coming.iter().filter(|((to, _), (from, _))| is_lost(*to, *from));
        let lost = lost.map(|(place, _)| *place).collect();
        self.break_off(kernel, routes, lost);
    }

    /// Data break off at places, and so where they were passed on to.
    fn break_off(&mut self, kernel: &mut Kernel, routes: &mut Routes, mut places: Vec<(NodeId, DatumId)>) {
        while let Some((at, datum)) = places.pop() {
            if self.comings.coming.remove(&(at, datum)).is_none() {
                continue;
            }
            self.comings.broken.insert((at, datum));
            for peer in self.peers(at) {
                for _ in 0..self.give_up_passing(kernel, routes, (at, peer), datum) {
                    self.send_broken(kernel, routes, (at, peer), datum);
                    if self.comings.coming.get(&(peer, datum)).is_some_and(|(from, _)| *from == at) {
                        places.push((peer, datum));
                    }
                }
            }
        }
    }

    /// Tells a node that a datum will not come from another.
    pub(crate) fn send_broken(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        pair: (NodeId, NodeId),
        datum: DatumId,
    ) {
        self.send_frame(kernel, routes, pair, BROKEN_BYTES, Parcel::Broken { datum });
    }
}
