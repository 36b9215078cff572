//! Readers whose client was lost a moment ago: it may come back, as after a short break of its connection, and reads them still.
//!
//! A client that comes back says what it reads ([`Catalog::reads`]). What it does not name it has released meanwhile.

use std::collections::BTreeMap;

use gridloom_base::limits::RETURN_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

use super::Catalog;

/// How often lost clients had found versions, and when they were lost.
#[derive(Debug, Default)]
pub(super) struct Away(BTreeMap<(NodeId, DatumId), (Time, u64)>);

impl Away {
    /// A client is lost that has found a version so often. What it was to confirm after an earlier loss has waited since then.
    fn add(&mut self, now: Time, client: NodeId, datum: DatumId, times: u64) {
        let place = self.0.entry((client, datum)).or_insert((now, 0));
        if times > place.1 {
            *place = (now, times);
        }
    }

    /// A client says that it reads a version, or releases it. Gives how often it had found it when it was lost.
    pub(super) fn take(&mut self, client: NodeId, datum: DatumId) -> u64 {
        self.0.remove(&(client, datum)).map_or(0, |(_, times)| times)
    }

    fn take_old(&mut self, now: Time) -> Vec<(NodeId, DatumId, u64)> {
        let mut old = Vec::new();
        self.0.retain(|(client, datum), (since, times)| {
            let is_old = now.since(*since) >= RETURN_NS_MAX;
            old.extend(is_old.then_some((*client, *datum, *times)));
            !is_old
        });
        old
    }
}

impl Catalog {
    /// A client is gone, for a while or for ever: it waits and puts no longer.
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

    /// Clients that were lost and have not come back read no longer.
    pub fn forget_away(&mut self, now: Time) {
        for (client, datum, times) in self.away.take_old(now) {
            self.release(client, datum, times);
        }
    }
}
