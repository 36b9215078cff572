//! The lanes on which large data go to one peer: one for what is whole, and others for what is passed on as it comes, which takes as
//! long as it comes. So nothing waits for a datum that comes over a slow way, as long as fewer do than there are lanes.
//!
//! Each lane is a thread and a stream. **Invariant:** the numbers of its streams and data leave its own number as the rest by [`LANES`], so
//! that no two lanes have the same, and the peer need not know of lanes.

use std::io;

use super::outgoing::Outgoing;
use super::shared::LANES;

/// The lanes to one peer, by number; the first is for what is whole.
#[derive(Default)]
pub struct Lanes(Vec<Outgoing>);

impl Lanes {
    /// The lane for what is whole; `start` starts one.
    ///
    /// # Errors
    /// If `start` fails.
    pub fn whole(&mut self, start: &dyn Fn(u64) -> io::Result<Outgoing>) -> io::Result<&Outgoing> {
        if self.0.is_empty() {
            self.0.push(start(0)?);
        }
        Ok(&self.0[0])
    }

    /// A lane for what is passed on as it comes: one that has nothing to send, a new one, or the one with least.
    ///
    /// # Errors
    /// If `start` fails.
    pub fn passing_on(&mut self, start: &dyn Fn(u64) -> io::Result<Outgoing>) -> io::Result<&Outgoing> {
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

    /// The lane of a stream or a datum with that number.
    pub fn of(&self, number: u64) -> Option<&Outgoing> {
        self.0.get((number % LANES) as usize)
    }

    /// Those that there are.
    pub fn all(&self) -> impl Iterator<Item = &Outgoing> {
        self.0.iter()
    }
}
