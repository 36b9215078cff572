//! The lanes on which large data are sent to one peer: one for complete data, and others for data that are forwarded
//! while they are received, which take as long as they arrive. No datum therefore waits for another that arrives over
//! a slow path, as long as fewer such data are forwarded than there are lanes.
//!
//! Each lane is a thread and a stream. **Invariant:** the numbers of its streams and data are congruent to the lane's
//! own number modulo [`LANES`], so that no two lanes use the same number, and the peer need not know about lanes.

use std::io;

use super::outgoing::OutgoingLane;
use super::shared::LANES;

/// The lanes to one peer, by number; the first is for complete data.
#[derive(Default)]
pub struct Lanes(Vec<OutgoingLane>);

impl Lanes {
    /// Returns the lane for complete data; `start` starts it if needed.
    ///
    /// # Errors
    /// If `start` fails.
    pub fn whole(&mut self, start: &dyn Fn(u64) -> io::Result<OutgoingLane>) -> io::Result<&OutgoingLane> {
        if self.0.is_empty() {
            self.0.push(start(0)?);
        }
        Ok(&self.0[0])
    }

    /// Returns a lane for data that are forwarded while they are received: an idle one, a new one, or the least loaded one.
    ///
    /// # Errors
    /// If `start` fails.
    pub fn passing_on(&mut self, start: &dyn Fn(u64) -> io::Result<OutgoingLane>) -> io::Result<&OutgoingLane> {
        self.whole(start)?;
        let least = self.0.iter().enumerate().skip(1).map(|(lane, outgoing)| (outgoing.jobs(), lane)).min();
        let lane = match least {
            Some((jobs, lane)) if jobs == 0 || self.0.len() as u64 == LANES => lane,
            Some(_) | None => {
                self.0.push(start(self.0.len() as u64)?);
                self.0.len() - 1
            }
        };
        Ok(&self.0[lane])
    }

    /// Returns the lane of a stream or datum number.
    pub fn of(&self, number: u64) -> Option<&OutgoingLane> {
        self.0.get((number % LANES) as usize)
    }

    /// Returns the existing lanes.
    pub fn all(&self) -> impl Iterator<Item = &OutgoingLane> {
        self.0.iter()
    }
}
