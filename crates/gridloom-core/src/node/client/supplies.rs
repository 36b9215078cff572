//! Data transfers that failed: which servers wait for a source, which transfers were interrupted and how often, and
//! which servers cannot reach one another.
//!
//! **Invariant:** at most [`INTERRUPTIONS_MAX`] interruptions are counted per datum and destination.

use std::collections::{BTreeMap, BTreeSet};

use super::stateless::ArgumentCopies;
use gridloom_base::limits::INTERRUPTIONS_MAX;
use gridloom_base::{DatumId, NodeId};

#[derive(Debug, Default)]
pub(super) struct Supplies {
    /// Data that a server waits for and that no node could send yet.
    waiting: BTreeSet<(DatumId, NodeId)>,
    /// Data whose transfer to a node was interrupted, until they are resent.
    interrupted: BTreeSet<(DatumId, NodeId)>,
    /// How often the transfer of a group's datum to a node was interrupted since it last arrived there, and the last
    /// sender.
    broken: BTreeMap<(DatumId, NodeId), (u32, NodeId)>,
    /// Data that a server wants to write back to the client, so that it can evict its copy.
    write_backs: BTreeSet<(DatumId, NodeId)>,
    /// Servers that could not fetch a datum from another (first from second).
    unreachable: BTreeSet<(NodeId, NodeId)>,
    /// Number of sends until a server has a datum, if the plan has more than one.
    hops: BTreeMap<(DatumId, NodeId), u16>,
    /// Arguments for stateless servers.
    pub(super) copies: ArgumentCopies,
}

impl Supplies {
    /// Records that no node can send that datum to the server yet.
    pub(super) fn wait(&mut self, datum: DatumId, server: NodeId) {
        self.waiting.insert((datum, server));
    }

    pub(super) fn end_wait(&mut self, datum: DatumId, server: NodeId) {
        self.waiting.remove(&(datum, server));
    }

    /// Returns the servers that wait for a source of that datum.
    pub(super) fn waiting_for(&self, datum: DatumId) -> Vec<NodeId> {
        let all = (datum, NodeId(u64::MIN))..=(datum, NodeId(u64::MAX));
        self.waiting.range(all).map(|(_, server)| *server).collect()
    }

    /// Returns the data that servers wait for.
    pub(super) fn awaited(&self) -> BTreeSet<DatumId> {
        self.waiting.iter().map(|(datum, _)| *datum).collect()
    }

    /// Records an interrupted transfer to a node: the datum is resent later.
    pub(super) fn record_interrupted(&mut self, datum: DatumId, place: NodeId) {
        self.interrupted.insert((datum, place));
    }

    pub(super) fn is_interrupted(&self, datum: DatumId, place: NodeId) -> bool {
        self.interrupted.contains(&(datum, place))
    }

    pub(super) fn take_interrupted(&mut self) -> BTreeSet<(DatumId, NodeId)> {
        std::mem::take(&mut self.interrupted)
    }

    /// Counts an interrupted transfer of a datum between two nodes. Returns true if there were too many; the count
    /// restarts then.
    pub(super) fn count_interruption(&mut self, datum: DatumId, (from, place): (NodeId, NodeId)) -> bool {
        let (times, last) = self.broken.entry((datum, place)).or_insert((0, from));
        (*times, *last) = (*times + 1, from);
        let too_often = *times > INTERRUPTIONS_MAX;
        if too_often {
            self.broken.remove(&(datum, place));
        }
        too_often
    }

    /// Returns the first of these sources from which the last transfer to that node was not interrupted, if there is
    /// one.
    pub(super) fn best_source(
        &self,
        datum: DatumId,
        place: NodeId,
        sources: impl Iterator<Item = NodeId>,
    ) -> Option<NodeId> {
        let broken = self.last_interrupted_source(datum, place);
        sources.min_by_key(|source| Some(*source) == broken)
    }

    /// Returns the sender of the last interrupted transfer of a datum to a node where it has not arrived since.
    pub(super) fn last_interrupted_source(&self, datum: DatumId, place: NodeId) -> Option<NodeId> {
        self.broken.get(&(datum, place)).map(|(_, from)| *from)
    }

    /// Returns how often the transfer of a datum to a node was interrupted since it last arrived there.
    pub(super) fn interruption_count(&self, datum: DatumId, place: NodeId) -> u32 {
        self.broken.get(&(datum, place)).map_or(0, |(times, _)| *times)
    }

    pub(super) fn arrived(&mut self, datum: DatumId, place: NodeId) {
        self.broken.remove(&(datum, place));
    }

    /// Records that a server wants to write a datum back to the client.
    pub(super) fn request_write_back(&mut self, datum: DatumId, server: NodeId) {
        self.write_backs.insert((datum, server));
    }

    /// True if a server wants to write a datum back to the client.
    pub(super) fn needs_write_back(&self, datum: DatumId) -> bool {
        let all = (datum, NodeId(u64::MIN))..=(datum, NodeId(u64::MAX));
        self.write_backs.range(all).next().is_some()
    }

    /// Removes and returns the servers that wait for the write-back of a datum, which has completed or failed.
    pub(super) fn take_write_backs(&mut self, datum: DatumId) -> Vec<NodeId> {
        let all = (datum, NodeId(u64::MIN))..=(datum, NodeId(u64::MAX));
        let servers: Vec<NodeId> = self.write_backs.range(all).map(|(_, server)| *server).collect();
        self.write_backs.retain(|(known, _)| *known != datum);
        servers
    }

    /// Records that a server was given a source and has the datum after `hops` sends.
    pub(super) fn set_hops(&mut self, datum: DatumId, server: NodeId, hops: u16) {
        match hops > 1 {
            true => self.hops.insert((datum, server), hops),
            false => self.hops.remove(&(datum, server)),
        };
    }

    /// Returns the number of sends after which a server has a datum, according to its source.
    pub(super) fn hops(&self, datum: DatumId, server: NodeId) -> u16 {
        self.hops.get(&(datum, server)).copied().unwrap_or(1)
    }

    /// Records that a server could not reach a source.
    pub(super) fn mark_unreachable(&mut self, server: NodeId, source: NodeId) {
        self.unreachable.insert((server, source));
    }

    pub(super) fn are_unreachable(&self, server: NodeId, source: NodeId) -> bool {
        self.unreachable.contains(&(server, source))
    }

    pub(super) fn forget_server(&mut self, server: NodeId) {
        self.unreachable.retain(|(a, b)| *a != server && *b != server);
        self.waiting.retain(|(_, waiting)| *waiting != server);
        self.broken.retain(|(_, place), _| *place != server);
        self.write_backs.retain(|(_, place)| *place != server);
        self.hops.retain(|(_, place), _| *place != server);
    }

    pub(super) fn forget_datum(&mut self, datum: DatumId) {
        self.broken.retain(|(known, _), _| *known != datum);
        self.hops.retain(|(known, _), _| *known != datum);
        self.take_write_backs(datum);
        for server in self.waiting_for(datum) {
            self.end_wait(datum, server);
        }
    }

    /// Returns the number of data that servers wait for and that no node could send yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of records about waiting servers, and that of interrupted transfers.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.waiting.len() + self.write_backs.len() + self.hops.len(), self.interrupted.len())
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert!(self.broken.values().all(|(times, _)| (1..=INTERRUPTIONS_MAX).contains(times)), "{:?}", self.broken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: NodeId = NodeId(2);

    fn datum(serial: u64) -> DatumId {
        DatumId { client: NodeId(9), serial }
    }

    #[test]
    fn a_transfer_that_breaks_too_often_is_abandoned_and_its_count_reset() {
        let mut supplies = Supplies::default();
        let way = (NodeId(3), SERVER);
        let too_often = (0..=INTERRUPTIONS_MAX).map(|_| supplies.count_interruption(datum(1), way));
        assert_eq!(too_often.filter(|too_often| *too_often).count(), 1);
        assert!(!supplies.count_interruption(datum(1), way));
        supplies.check();
    }

    #[test]
    fn what_broke_off_comes_from_another_if_there_is_one() {
        let mut supplies = Supplies::default();
        let (three, both) = (vec![NodeId(3)], vec![NodeId(3), NodeId(4)]);
        let from = |supplies: &Supplies, sources: &[NodeId]| {
            supplies.best_source(datum(1), SERVER, sources.iter().copied()).map(|NodeId(number)| number)
        };
        assert_eq!((from(&supplies, &both), from(&supplies, &[])), (Some(3), None));
        supplies.count_interruption(datum(1), (NodeId(3), SERVER));
        assert_eq!((from(&supplies, &both), from(&supplies, &three)), (Some(4), Some(3)));
        supplies.count_interruption(datum(1), (NodeId(4), SERVER));
        assert_eq!(from(&supplies, &both), Some(3));
        supplies.arrived(datum(1), SERVER);
        assert_eq!(from(&supplies, &both), Some(3));
    }

    #[test]
    fn a_lost_server_waits_for_nothing() {
        let mut supplies = Supplies::default();
        for server in [SERVER, NodeId(3)] {
            supplies.wait(datum(1), server);
        }
        supplies.mark_unreachable(NodeId(3), SERVER);
        assert_eq!(supplies.waiting_for(datum(1)), [SERVER, NodeId(3)]);
        supplies.forget_server(SERVER);
        assert_eq!(supplies.waiting_for(datum(1)), [NodeId(3)]);
        assert!(!supplies.are_unreachable(NodeId(3), SERVER));
        supplies.forget_datum(datum(1));
        assert!(supplies.awaited().is_empty());
        supplies.check();
    }
}
