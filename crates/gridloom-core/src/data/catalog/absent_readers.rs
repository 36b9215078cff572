//! Readers whose client was lost recently. The client may return, for example after a short interruption of its
//! connection, and still read its versions.
//!
//! A client that returns reports what it reads ([`Catalog::reads`]). Versions that it does not report were released
//! meanwhile.

use std::collections::BTreeMap;

use gridloom_base::limits::RECONNECT_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

use super::Catalog;

/// For each lost client and version: when the client was lost, and how many finds of the version it held then.
#[derive(Debug, Default)]
pub(super) struct AbsentReaders(BTreeMap<(NodeId, DatumId), (Time, u64)>);

impl AbsentReaders {
    /// Records a lost client that held `times` finds of a version. Finds not confirmed since an earlier loss keep the
    /// time of that loss.
    fn add(&mut self, now: Time, client: NodeId, datum: DatumId, times: u64) {
        let place = self.0.entry((client, datum)).or_insert((now, 0));
        if times > place.1 {
            *place = (now, times);
        }
    }

    /// Removes the entry when a client reports or releases a version. Returns how many finds it held when it was lost.
    pub(super) fn take(&mut self, client: NodeId, datum: DatumId) -> u64 {
        self.0.remove(&(client, datum)).map_or(0, |(_, times)| times)
    }

    fn take_old(&mut self, now: Time) -> Vec<(NodeId, DatumId, u64)> {
        let mut old = Vec::new();
        self.0.retain(|(client, datum), (since, times)| {
            let is_old = now.since(*since) >= RECONNECT_NS_MAX;
            old.extend(is_old.then_some((*client, *datum, *times)));
            !is_old
        });
        old
    }
}

impl Catalog {
    /// Handles a lost client, which may or may not return: cancels its waits and puts.
    pub fn client_lost(&mut self, now: Time, client: NodeId) {
        self.waits.client_lost(client);
        self.early_readers.retain(|(_, reader), _| *reader != client);
        let none = DatumId { client: NodeId(0), serial: 0 };
        let its = self.by_client.range((client, none)..).take_while(|(node, _)| *node == client);
        for datum in its.map(|(_, datum)| *datum).collect::<Vec<_>>() {
            self.withdraw(client, datum);
            let times = self.versions.get(&datum).and_then(|version| version.readers.get(&client));
            if let Some(times) = times.copied() {
                self.away.add(now, client, datum, times);
            }
        }
    }

    /// Releases the versions read by lost clients that have not returned in time.
    pub fn forget_away(&mut self, now: Time) {
        for (client, datum, times) in self.away.take_old(now) {
            self.release(client, datum, times);
        }
    }
}
