//! Paces the data that a lane sends to another site: they wait until they are due, and their parts leave at the rate of
//! the link ([`super::emulated_sites`]).
//!
//! The data wait in the store, so a lane buffers no bytes of its own.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::emulated_sites::{Delays, PIECE_BYTES};
use super::shared::Shared;

/// Shorter waits are skipped and added to the next one.
const WAIT_MIN: Duration = Duration::from_millis(2);

/// The pacing of one lane.
pub(super) struct Pacer {
    delays: Delays,
    shared: Arc<Shared>,
    /// Time at which the next part is due.
    due: Instant,
}

impl Pacer {
    pub(super) fn new(delays: Delays, shared: Arc<Shared>) -> Pacer {
        Pacer { delays, shared, due: Instant::now() }
    }

    /// Waits until data sent at `sent` are due.
    ///
    /// # Errors
    /// If the lane has ended.
    pub(super) fn hold(&mut self, sent: Instant) -> io::Result<()> {
        self.due = self.delays.due(sent);
        self.shared.wait_until(self.due)
    }

    /// Waits until these bytes have left.
    ///
    /// # Errors
    /// If the lane has ended.
    pub(super) fn part(&mut self, size_bytes: usize) -> io::Result<()> {
        let mut left_bytes = size_bytes;
        while left_bytes > 0 {
            let piece = left_bytes.min(PIECE_BYTES);
            left_bytes -= piece;
            let now = Instant::now();
            self.due = self.delays.link().departure(self.due, now, piece);
            if left_bytes == 0 || self.due > now + WAIT_MIN {
                self.shared.wait_until(self.due)?;
            }
        }
        Ok(())
    }
}
