//! Ways between hosts on which nothing passes.
//!
//! What arrives on a lost way is held. When the way heals it arrives, in order, at connections that still stand: the sending
//! system keeps what was not acknowledged and sends it again, so that a connection outlives a loss in which nobody tired.
//! Bulk cargo that was moving starts again.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_core::base::{NodeId, Time};
use gridloom_core::flow::LinkIndex;
use gridloom_core::platform::HostId;

use crate::simulation::{Occurrence, Simulation};

/// From one host to another.
pub(crate) type Way = (HostId, HostId);

/// The lost ways and what they hold.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    lost: BTreeSet<Way>,
    held: BTreeMap<Way, Vec<Occurrence>>,
    /// When a way was healed last.
    healed: BTreeMap<Way, Time>,
}

impl Ways {
    /// Whether word for a process is held.
    pub(crate) fn hold_for_process(&self) -> bool {
        self.held.values().flatten().any(Occurrence::is_of_process)
    }
}

impl Simulation {
    /// Lets nothing pass any more between two hosts, in either direction.
    pub fn cut(&mut self, a: HostId, b: HostId) {
        self.lose(a, b);
        self.lose(b, a);
    }

    /// Lets pass again what a cut or a loss between two hosts has held.
    pub fn heal(&mut self, a: HostId, b: HostId) {
        self.restore(a, b);
        self.restore(b, a);
    }

    /// Lets nothing pass any more from one host to another; the way back stays.
    pub fn lose(&mut self, from: HostId, to: HostId) {
        self.trace.way(self.now, from.0, to.0, "lost");
        self.ways.lost.insert((from, to));
        for (sender, receiver) in self.pairs_on((from, to)) {
            self.stop_bulk(sender, receiver);
        }
        self.stop_letters(|way, _| way == (from, to));
    }

    fn restore(&mut self, from: HostId, to: HostId) {
        if !self.ways.lost.remove(&(from, to)) {
            return;
        }
        self.trace.way(self.now, from.0, to.0, "healed");
        self.ways.healed.insert((from, to), self.now);
        self.release((from, to));
        for (sender, receiver) in self.pairs_on((from, to)) {
            self.move_next(sender, receiver);
        }
        self.move_letters();
    }

    /// Lets arrive what a way has held; what it cannot carry yet is held again.
    fn release(&mut self, way: Way) {
        for occurrence in self.ways.held.remove(&way).unwrap_or_default() {
            if occurrence.is_of_process() {
                self.processes.pending += 1;
            }
            self.occur(0, occurrence);
        }
    }

    /// What moves over a link that is off stops, and begins anew when its way is open again.
    pub(crate) fn ways_close(&mut self, link: LinkIndex) {
        for (sender, receiver) in self.connections.pairs() {
            let is_moving = self.connections.end(sender, receiver).is_some_and(|end| end.moving.is_some());
            if is_moving && self.path(sender, receiver).crossed().any(|crossed| *crossed == link) {
                self.stop_bulk(sender, receiver);
            }
        }
        self.stop_letters(|_, path| path.crossed().any(|crossed| *crossed == link));
    }

    /// Something passes again over links where nothing did.
    pub(crate) fn ways_open(&mut self) {
        let held = self.ways.held.keys().copied();
        let open: Vec<Way> = held.filter(|(from, to)| !self.paths.is_closed(*from, *to)).collect();
        for way in open {
            self.ways.healed.insert(way, self.now);
            self.release(way);
        }
        for (sender, receiver) in self.connections.pairs() {
            self.move_next(sender, receiver);
        }
        self.move_letters();
    }

    /// Lets everything pass again everywhere.
    pub fn heal_all(&mut self) {
        for (from, to) in self.ways.lost.clone() {
            self.restore(from, to);
        }
    }

    /// Whether nothing passes from one node to another.
    pub(crate) fn is_lost(&self, from: NodeId, to: NodeId) -> bool {
        self.is_way_lost(self.way(from, to))
    }

    /// Whether nothing passes from one host to another.
    pub(crate) fn is_way_lost(&self, (from, to): Way) -> bool {
        self.ways.lost.contains(&(from, to)) || self.paths.is_closed(from, to)
    }

    /// When the way from one node to another was healed last, unless it never was lost.
    pub(crate) fn healed(&self, from: NodeId, to: NodeId) -> Option<Time> {
        self.ways.healed.get(&self.way(from, to)).copied()
    }

    /// Keeps what would have arrived until the way heals.
    pub(crate) fn hold(&mut self, from: NodeId, to: NodeId, occurrence: Occurrence) {
        self.hold_on(self.way(from, to), occurrence);
    }

    pub(crate) fn hold_on(&mut self, way: Way, occurrence: Occurrence) {
        self.ways.held.entry(way).or_default().push(occurrence);
    }

    fn way(&self, from: NodeId, to: NodeId) -> Way {
        (self.node(from).host, self.node(to).host)
    }

    fn pairs_on(&self, way: Way) -> Vec<(NodeId, NodeId)> {
        self.connections.pairs().into_iter().filter(|(from, to)| self.way(*from, *to) == way).collect()
    }
}
