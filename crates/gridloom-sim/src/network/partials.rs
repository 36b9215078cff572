//! Received parts of transfers that broke off. If the node requests such a datum again, only the rest is sent, whoever sends it.
//!
//! The receiver reports how much it has before its request. In this model, the sender knows it when the request
//! leaves, not when it arrives. The part left out by the sender is compared with the part at the receiver, because a
//! recomputed datum may differ.
//!
//! **Not modelled.** The limit on the number of partial data: here all of them are kept for the same time.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, NodeId, Time};

use crate::store::StoredValue;

/// Maximum time for which a part is kept, as in the real network.
const PARTIAL_NS_MAX: u64 = 60 * SECOND_NS;

/// The first bytes of a datum.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedPart {
    pub(crate) bytes: u64,
    /// The value to which the bytes belong.
    pub(super) of: StoredValue,
}

impl ReceivedPart {
    /// Reports whether a value begins with these bytes.
    fn begins(&self, value: &StoredValue) -> bool {
        let end = self.bytes as usize;
        self.of.meta == value.meta
            && match (&self.of.bytes, &value.bytes) {
                (Some(had), Some(bytes)) => had[..end] == bytes[..end],
                (had, bytes) => had.is_none() && bytes.is_none(),
            }
    }

    /// Joins these bytes with the rest of the value.
    pub(crate) fn complete(&self, rest_of: StoredValue) -> StoredValue {
        let end = self.bytes as usize;
        let whole =
            self.of.bytes.as_ref().zip(rest_of.bytes.as_ref()).map(|(had, rest)| [&had[..end], &rest[end..]].concat());
        StoredValue { bytes: whole.map(Into::into), ..rest_of }
    }
}

/// The parts that nodes keep.
#[derive(Debug, Default)]
pub(super) struct Partials {
    kept: BTreeMap<(NodeId, DatumId), (Time, ReceivedPart)>,
    /// Sender, receiver and datum for which the sender knows the receiver's part.
    announced: BTreeSet<(NodeId, NodeId, DatumId)>,
}

impl Partials {
    /// Keeps the received part of a transfer that broke off.
    pub(super) fn keep(&mut self, now: Time, at: NodeId, datum: DatumId, had: ReceivedPart) {
        self.kept.retain(|_, (since, _)| now.since(*since) < PARTIAL_NS_MAX);
        let known = self.kept.get(&(at, datum)).map_or(0, |(_, known)| known.bytes);
        if had.bytes > known {
            self.kept.insert((at, datum), (now, had));
        }
    }

    /// Records that a node requests a datum from a peer.
    pub(super) fn announce(&mut self, (from, to): (NodeId, NodeId), datum: DatumId) {
        if self.kept.contains_key(&(to, datum)) {
            self.announced.insert((from, to, datum));
        }
    }

    /// Takes the receiver's part of a value sent to it, if the sender knows of it.
    pub(super) fn take(
        &mut self,
        now: Time,
        (from, to): (NodeId, NodeId),
        datum: DatumId,
        value: &StoredValue,
    ) -> Option<ReceivedPart> {
        if !self.announced.remove(&(from, to, datum)) {
            return None;
        }
        let (since, had) = self.kept.remove(&(to, datum))?;
        (now.since(since) < PARTIAL_NS_MAX && had.begins(value)).then_some(had)
    }

    /// Drops the part of a datum that is complete at a node, or no longer needed there.
    pub(super) fn forget(&mut self, at: NodeId, datum: DatumId) {
        self.kept.remove(&(at, datum));
    }

    /// Drops the senders' knowledge when a connection is gone.
    pub(super) fn forget_told(&mut self, (a, b): (NodeId, NodeId)) {
        self.announced.retain(|(from, to, _)| (*from, *to) != (a, b) && (*from, *to) != (b, a));
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::Meta;

    use super::*;

    const PAIR: (NodeId, NodeId) = (NodeId(1), NodeId(2));

    fn datum() -> DatumId {
        DatumId { client: NodeId(9), serial: 1 }
    }

    fn value(bytes: &[u8]) -> StoredValue {
        StoredValue { meta: Meta::Bytes { size_bytes: bytes.len() as u64 }, bytes: Some(bytes.into()) }
    }

    #[test]
    fn the_rest_continues_behind_the_same_bytes_only() {
        let take = |sent: &[u8], told: bool, at_ns| {
            let mut partials = Partials::default();
            partials.keep(Time(0), PAIR.1, datum(), ReceivedPart { bytes: 2, of: value(b"abcd") });
            if told {
                partials.announce(PAIR, datum());
            }
            partials.take(Time(at_ns), PAIR, datum(), &value(sent)).map(|had| had.complete(value(b"--yz")))
        };
        assert_eq!(take(b"abyz", true, 5), Some(value(b"abyz")));
        assert_eq!(take(b"abyz", false, 5), None);
        assert_eq!(take(b"abyz", true, PARTIAL_NS_MAX), None);
        assert_eq!(take(b"axyz", true, 5), None);
        assert_eq!(take(b"abyzz", true, 5), None);
    }
}
