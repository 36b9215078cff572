//! The connections of an element with another one: one of them, or with the filter `stripe` several, over which letters go in turn.
//!
//! An element that ends sends a goodbye over each of several connections, behind its last letter there. So the end of a connection without
//! a goodbye is a loss, and after a goodbye letters may still come over the others, however long that takes.

use std::collections::BTreeSet;

use gridloom_process::filter::Stripes;
use gridloom_process::{Letter, PeerId, ProcessError, ProcessWorld};

use super::NOTES;

/// Type of the letter that is the last of one of several connections.
pub(super) const GOODBYE: &str = "chares:goodbye";

pub(super) struct Ways {
    pub(super) peers: Vec<Option<PeerId>>,
    /// Over which one the next letter goes.
    turn: usize,
    /// None where there is one.
    pub(super) stripes: Option<Stripes>,
    /// Those with a goodbye.
    parting: BTreeSet<PeerId>,
    /// How many have closed.
    closed: usize,
    /// Whether one of several has closed without a goodbye.
    is_broken: bool,
}

impl Ways {
    pub(super) fn of(connections: usize) -> Ways {
        let stripes = (connections > 1).then(Stripes::default);
        let peers = vec![None; connections];
        Ways { peers, turn: 0, stripes, parting: BTreeSet::new(), closed: 0, is_broken: false }
    }

    pub(super) fn are_made(&self) -> bool {
        self.peers.iter().all(Option::is_some)
    }

    /// Whether the other element may still make some of them.
    pub(super) fn are_awaited(&self) -> bool {
        !self.are_made() && self.closed == 0
    }

    /// The last letter of that one of several has come.
    pub(super) fn parts(&mut self, peer: PeerId) {
        self.parting.insert(peer);
    }

    /// That one has closed. If the other element has ended by that: why, in words. It ends once.
    pub(super) fn closes(&mut self, peer: PeerId, why: String) -> Option<String> {
        self.closed += 1;
        let Some(stripes) = &self.stripes else { return Some(why) };
        if self.is_broken {
            return None;
        }
        if !self.parting.contains(&peer) {
            self.is_broken = true;
            let at = self.peers.iter().position(|way| *way == Some(peer)).map_or(0, |at| at + 1);
            return Some(format!("connection {at} of {} ended early: {why}", self.peers.len()));
        }
        match (self.closed == self.peers.len(), stripes.missing()) {
            (false, _) => None,
            (true, None) => Some(why),
            (true, Some(number)) => Some(format!("it has not sent its letter {number}, and later ones: {why}")),
        }
    }

    /// Offers a letter to the next connection in turn that takes it.
    pub(super) fn offer(
        &mut self,
        world: &mut dyn ProcessWorld,
        mut letter: Letter,
    ) -> Result<Option<Letter>, ProcessError> {
        // Notes have no number: they keep their order in one connection.
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

    /// Sends a goodbye over each of several, and waits until they have gone.
    pub(super) fn part(&self, world: &mut dyn ProcessWorld) -> Result<(), ProcessError> {
        // Where some were never made, or have ended, the other element waits for no more letters.
        if self.stripes.is_none() || !self.are_made() || self.closed > 0 {
            return Ok(());
        }
        let goodbye = || Letter { kind: GOODBYE.into(), payload: Vec::new() };
        self.peers.iter().flatten().try_for_each(|peer| world.send(*peer, goodbye()))
    }

    /// Sends a letter, and waits until it has gone.
    pub(super) fn send(&mut self, world: &mut dyn ProcessWorld, letter: Letter) -> Result<(), ProcessError> {
        let at = if &*letter.kind == NOTES { 0 } else { self.turn };
        self.turn = (self.turn + 1) % self.peers.len();
        self.peers[at].map_or(Ok(()), |peer| world.send(peer, letter))
    }
}
