//! The connections of an element to another one: a single one, or several with the filter `stripe`, which batches use in turn.
//!
//! An element that ends sends a goodbye on each of several connections, after its last message there. So if a
//! connection ends without a goodbye, the element is lost. After a goodbye, batches may still arrive on the other
//! connections, however long that takes.

use std::collections::BTreeSet;

use gridloom_process::filter::StripeSequencer;
use gridloom_process::{PeerId, ProcessError, ProcessMessage, ProcessWorld};

use super::NOTES;

/// Type of the last message on one of several connections.
pub(super) const GOODBYE: &str = "chares:goodbye";

pub(super) struct Connections {
    pub(super) peers: Vec<Option<PeerId>>,
    /// The connection for the next batch.
    turn: usize,
    /// `None` if there is one connection.
    pub(super) stripes: Option<StripeSequencer>,
    /// Connections on which a goodbye was received.
    goodbyes: BTreeSet<PeerId>,
    /// Number of closed connections.
    closed: usize,
    /// True if one of several connections has closed without a goodbye.
    is_broken: bool,
}

impl Connections {
    pub(super) fn of(connections: usize) -> Connections {
        let stripes = (connections > 1).then(StripeSequencer::default);
        let peers = vec![None; connections];
        Connections { peers, turn: 0, stripes, goodbyes: BTreeSet::new(), closed: 0, is_broken: false }
    }

    pub(super) fn are_made(&self) -> bool {
        self.peers.iter().all(Option::is_some)
    }

    /// True if the other element may still make some of the connections.
    pub(super) fn are_awaited(&self) -> bool {
        !self.are_made() && self.closed == 0
    }

    /// Notes that the last message on one of several connections has arrived.
    pub(super) fn on_goodbye(&mut self, peer: PeerId) {
        self.goodbyes.insert(peer);
    }

    /// Notes that a connection has closed. If the other element has thereby ended, returns the reason as text; it does so once.
    pub(super) fn on_closed(&mut self, peer: PeerId, why: String) -> Option<String> {
        self.closed += 1;
        let Some(stripes) = &self.stripes else { return Some(why) };
        if self.is_broken {
            return None;
        }
        if !self.goodbyes.contains(&peer) {
            self.is_broken = true;
            let at = self.peers.iter().position(|way| *way == Some(peer)).map_or(0, |at| at + 1);
            return Some(format!("connection {at} of {} ended early: {why}", self.peers.len()));
        }
        match (self.closed == self.peers.len(), stripes.missing()) {
            (false, _) => None,
            (true, None) => Some(why),
            (true, Some(number)) => Some(format!("it has not sent its batch {number}, but later ones: {why}")),
        }
    }

    /// Offers a message to the connections in turn, until one accepts it.
    pub(super) fn offer(
        &mut self,
        world: &mut dyn ProcessWorld,
        mut letter: ProcessMessage,
    ) -> Result<Option<ProcessMessage>, ProcessError> {
        // Notes have no number: they keep their order on a single connection.
        let (first, count) = if &*letter.kind == NOTES { (0, 1) } else { (self.turn, self.peers.len()) };
        for step in 0..count {
            let at = (first + step) % self.peers.len();
            let Some(peer) = self.peers[at] else { break };
            match world.offer(peer, letter)? {
                Some(back) => letter = back,
                None => {
                    self.turn = (at + 1) % self.peers.len();
                    return Ok(None);
                }
            }
        }
        Ok(Some(letter))
    }

    /// Sends a goodbye on each of several connections, and waits until they are sent.
    pub(super) fn say_goodbye(&self, world: &mut dyn ProcessWorld) -> Result<(), ProcessError> {
        // If some connections were never made, or have ended, the other element expects no more batches.
        if self.stripes.is_none() || !self.are_made() || self.closed > 0 {
            return Ok(());
        }
        let goodbye = || ProcessMessage { kind: GOODBYE.into(), payload: Vec::new() };
        self.peers.iter().flatten().try_for_each(|peer| world.send(*peer, goodbye()))
    }

    /// Sends a message, and waits until it is sent.
    pub(super) fn send(&mut self, world: &mut dyn ProcessWorld, letter: ProcessMessage) -> Result<(), ProcessError> {
        let at = if &*letter.kind == NOTES { 0 } else { self.turn };
        self.turn = (self.turn + 1) % self.peers.len();
        self.peers[at].map_or(Ok(()), |peer| world.send(peer, letter))
    }
}
