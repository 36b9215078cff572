//! What becomes of data that were passed on ([`super::passing`]) when they land, or break off, at the server that passes them on.

use gridloom_base::{DatumId, NodeId};

use super::cargo::Parcel;
use super::links::Links;
use super::routes::Routes;
use crate::kernel::Kernel;
use crate::store::StoredValue;

/// Bytes of a frame that says what has broken off.
const BROKEN_BYTES: u64 = 64;

impl Links {
    /// The first part of a datum has come. False if it has begun to come from another.
    pub(crate) fn begin(&mut self, (from, to): (NodeId, NodeId), datum: DatumId, value: StoredValue) -> bool {
        self.comings.begin((from, to), datum, value)
    }

    /// What comes to a node and has begun.
    pub(crate) fn coming(&self, at: NodeId, datum: DatumId) -> Option<&StoredValue> {
        self.comings.value(at, datum)
    }

    /// What comes to some node and has begun.
    pub(crate) fn comings(&self) -> impl Iterator<Item = (NodeId, DatumId)> {
        self.comings.places()
    }

    /// Whether it has begun at a node since it last landed there, and broke off.
    pub(crate) fn has_broken(&self, at: NodeId, datum: DatumId) -> bool {
        self.comings.has_broken(at, datum)
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
        if !self.comings.comes((from, to), datum) {
            return;
        }
        if !is_whole {
            return self.break_off(kernel, routes, vec![(to, datum)]);
        }
        self.comings.end(to, datum);
        for peer in self.peers(to) {
            self.let_end(kernel, routes, (to, peer), datum);
        }
    }

    /// A connection is lost: what came over it breaks off.
    pub(super) fn break_all(&mut self, kernel: &mut Kernel, routes: &mut Routes, (a, b): (NodeId, NodeId)) {
        let lost = self.comings.between((a, b));
        self.break_off(kernel, routes, lost);
    }

    /// Data break off at places, and so where they were passed on to.
    fn break_off(&mut self, kernel: &mut Kernel, routes: &mut Routes, mut places: Vec<(NodeId, DatumId)>) {
        while let Some((at, datum)) = places.pop() {
            if !self.comings.break_off(at, datum) {
                continue;
            }
            for peer in self.peers(at) {
                for _ in 0..self.give_up_passing(kernel, routes, (at, peer), datum) {
                    self.send_broken(kernel, routes, (at, peer), datum);
                    if self.comings.comes((at, peer), datum) {
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
