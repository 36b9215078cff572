//! The connections of an element with another one: one of them, or with the filter `stripe` several, over which letters go in turn.

use gridloom_base::Time;
use gridloom_base::time::SECOND_NS;
use gridloom_process::filter::Stripes;
use gridloom_process::{Letter, PeerId, ProcessError, ProcessWorld};

use super::NOTES;

/// From the end of one of several connections, and what came last since, to the end of the others.
const CLOSING_NS: u64 = 30 * SECOND_NS;

pub(super) struct Ways {
    pub(super) peers: Vec<Option<PeerId>>,
    /// Over which one the next letter goes.
    turn: usize,
    /// None where there is one.
    pub(super) stripes: Option<Stripes>,
    /// How many have closed.
    closed: usize,
    /// When something last came.
    heard: Time,
}

impl Ways {
    pub(super) fn of(connections: usize) -> Ways {
        let stripes = (connections > 1).then(Stripes::default);
        Ways { peers: vec![None; connections], turn: 0, stripes, closed: 0, heard: Time::ZERO }
    }

    pub(super) fn are_made(&self) -> bool {
        self.peers.iter().all(Option::is_some)
    }

    /// Something has come.
    pub(super) fn hears(&mut self, now: Time) {
        self.heard = now;
    }

    /// One of them has closed. Whether all have.
    pub(super) fn closes(&mut self) -> bool {
        self.closed += 1;
        self.closed == self.peers.len()
    }

    /// If some have closed and others have not: until then these are waited for.
    pub(super) fn gives_up_at(&self) -> Time {
        self.heard + CLOSING_NS
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

    /// Sends a letter, and waits until it has gone.
    pub(super) fn send(&mut self, world: &mut dyn ProcessWorld, letter: Letter) -> Result<(), ProcessError> {
        let at = if &*letter.kind == NOTES { 0 } else { self.turn };
        self.turn = (self.turn + 1) % self.peers.len();
        self.peers[at].map_or(Ok(()), |peer| world.send(peer, letter))
    }
}
