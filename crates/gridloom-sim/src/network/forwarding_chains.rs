//! Handles forwarded data ([`super::forwarding`]) that arrive, or break off, at the server that forwards them.

use gridloom_base::{DatumId, NodeId};

use super::cargo::Parcel;
use super::links::Links;
use super::routes::Routes;
use crate::kernel::Kernel;
use crate::store::StoredValue;

/// Size of a frame that reports a broken transfer, bytes.
const BROKEN_BYTES: u64 = 64;

impl Links {
    /// Records that the first part of a datum has arrived. Returns false if the node is already receiving it from another sender.
    pub(crate) fn begin(&mut self, (from, to): (NodeId, NodeId), datum: DatumId, value: StoredValue) -> bool {
        self.incoming.begin((from, to), datum, value)
    }

    /// Returns the value that a node is receiving, once its first part has arrived.
    pub(crate) fn incoming(&self, at: NodeId, datum: DatumId) -> Option<&StoredValue> {
        self.incoming.value(at, datum)
    }

    /// Iterates over the data that nodes are receiving.
    pub(crate) fn all_incoming(&self) -> impl Iterator<Item = (NodeId, DatumId)> {
        self.incoming.receivers()
    }

    /// Reports whether a transfer of the datum to the node has broken off since the datum last arrived there.
    pub(crate) fn has_broken(&self, at: NodeId, datum: DatumId) -> bool {
        self.incoming.has_broken(at, datum)
    }

    /// Handles a datum that has arrived, and was accepted or not. Its forwarded copies follow.
    pub(crate) fn on_arrival(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        (from, to): (NodeId, NodeId),
        datum: DatumId,
        is_whole: bool,
    ) {
        if !self.incoming.is_receiving((from, to), datum) {
            return;
        }
        if !is_whole {
            return self.break_off(kernel, routes, vec![(to, datum)]);
        }
        self.incoming.end(to, datum);
        for peer in self.peers(to) {
            self.allow_last_part(kernel, routes, (to, peer), datum);
        }
    }

    /// Breaks off the incoming transfers of a lost connection.
    pub(super) fn break_all(&mut self, kernel: &mut Kernel, routes: &mut Routes, (a, b): (NodeId, NodeId)) {
        let lost = self.incoming.transfers_between((a, b));
        self.break_off(kernel, routes, lost);
    }

    /// Breaks off transfers to these nodes, and the transfers forwarded from them.
    fn break_off(&mut self, kernel: &mut Kernel, routes: &mut Routes, mut places: Vec<(NodeId, DatumId)>) {
        while let Some((at, datum)) = places.pop() {
            if !self.incoming.break_off(at, datum) {
                continue;
            }
            for peer in self.peers(at) {
                for _ in 0..self.cancel_forwarding(kernel, routes, (at, peer), datum) {
                    self.send_broken(kernel, routes, (at, peer), datum);
                    if self.incoming.is_receiving((at, peer), datum) {
                        places.push((peer, datum));
                    }
                }
            }
        }
    }

    /// Notifies a node that a datum will not arrive from a peer.
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
