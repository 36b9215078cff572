//! Received transfers that have not been reported to the agent yet.

use super::message::ReceivedTransfer;
use gridloom_base::limits::{LEARN_BYTES_MIN, TRANSFERS_PER_REPORT};
use gridloom_base::{NodeId, Time};

/// The largest transfers since the last report, with the time at which each arrived.
#[derive(Debug, Default)]
pub(super) struct UnreportedTransfers {
    seen: Vec<(ReceivedTransfer, Time)>,
}

impl UnreportedTransfers {
    /// Stores a transfer if it is large enough to learn from. Returns true if it is.
    pub(super) fn add(&mut self, now: Time, from: NodeId, size_bytes: u64, took_ns: u64) -> bool {
        if took_ns == 0 || size_bytes < LEARN_BYTES_MIN {
            return false;
        }
        self.seen.push((ReceivedTransfer { from, size_bytes, duration_ns: took_ns, age_ns: 0 }, now));
        if self.seen.len() > TRANSFERS_PER_REPORT {
            let least = self.seen.iter().enumerate().min_by_key(|(_, (seen, _))| seen.size_bytes);
            let least = least.expect("it is not empty").0;
            self.seen.remove(least);
        }
        true
    }

    /// Removes and returns the transfers, to report them now.
    pub(super) fn take(&mut self, now: Time) -> Vec<ReceivedTransfer> {
        let seen = std::mem::take(&mut self.seen);
        seen.iter().map(|(seen, at)| ReceivedTransfer { age_ns: now.since(*at), ..*seen }).collect()
    }
}
