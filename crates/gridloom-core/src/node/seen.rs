//! Received transfers that have not been reported to the agent yet.

use super::message::SeenTransfer;
use gridloom_base::limits::{LEARN_BYTES_MIN, SEEN_PER_REPORT};
use gridloom_base::{NodeId, Time};

/// The largest transfers since the last report, with the time at which each arrived.
#[derive(Debug, Default)]
pub(super) struct SeenTransfers {
    seen: Vec<(SeenTransfer, Time)>,
}

impl SeenTransfers {
    /// Stores a transfer if it is large enough to learn from. Returns true if it is.
    pub(super) fn add(&mut self, now: Time, from: NodeId, size_bytes: u64, took_ns: u64) -> bool {
        if took_ns == 0 || size_bytes < LEARN_BYTES_MIN {
            return false;
        }
        self.seen.push((SeenTransfer { from, size_bytes, took_ns, age_ns: 0 }, now));
        if self.seen.len() > SEEN_PER_REPORT {
            let least = self.seen.iter().enumerate().min_by_key(|(_, (seen, _))| seen.size_bytes);
            let least = least.expect("it is not empty").0;
            self.seen.remove(least);
        }
        true
    }

    /// Removes and returns the transfers, to report them now.
    pub(super) fn take(&mut self, now: Time) -> Vec<SeenTransfer> {
        let seen = std::mem::take(&mut self.seen);
        seen.iter().map(|(seen, at)| SeenTransfer { age_ns: now.since(*at), ..*seen }).collect()
    }
}
