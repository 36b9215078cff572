//! Locations of shared data: the catalog's answers when this client knows no server that has a copy.

use std::collections::btree_map::Entry;

use super::Client;
use crate::node::protocol::Effect;
use gridloom_base::limits::RECONNECT_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// How long to dial servers that have a datum which is needed here.
const SEARCH_NS_MAX: u64 = 3 * RECONNECT_NS_MAX;

impl Client {
    /// Searches for a shared datum that is needed here or by a server and has no known copy.
    pub(super) fn seek(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        if let Entry::Vacant(place) = self.names.sought.entry(datum) {
            place.insert(now);
            self.ask_place(datum, out);
        }
    }

    pub(super) fn on_located(
        &mut self,
        now: Time,
        datum: DatumId,
        holders: Vec<(NodeId, String)>,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let why = if holders.is_empty() { why } else { "the servers that have it cannot be reached from here" };
        let reachable: Vec<(NodeId, String)> =
            holders.into_iter().filter(|(node, _)| !self.contacts.is_lost(*node)).collect();
        let Some(run) = self.data.get_mut(&datum) else { return };
        run.holders.extend(reachable.iter().map(|(node, _)| *node));
        let is_found = !run.holders.is_empty();
        reachable.into_iter().for_each(|(node, address)| self.contacts.learn_address(node, address));
        let sought_ns = self.names.sought.get(&datum).map(|since| now.since(*since));
        if is_found {
            self.data.get_mut(&datum).expect("found above").error = None;
            if self.is_to_come_here(datum) {
                self.fetch_here(datum, out);
            }
            if !self.is_sought_here(datum) {
                self.names.not_sought(datum);
            } else if sought_ns.is_some_and(|ns| ns >= SEARCH_NS_MAX) {
                self.names.not_sought(datum);
                self.datum_lost(now, datum, why, out);
            }
            self.supply_waiting(now, datum, out);
        } else if sought_ns.is_some_and(|ns| ns >= RECONNECT_NS_MAX) {
            self.names.not_sought(datum);
            self.datum_lost(now, datum, why, out);
        }
        // Maps groups that needed its location.
        self.map_waiting(now, out);
    }

    /// True if a datum is needed here and no reachable server sends it.
    fn is_sought_here(&self, datum: DatumId) -> bool {
        let sender = self.data.get(&datum).and_then(|run| run.fetching);
        self.is_to_come_here(datum) && !sender.is_some_and(|sender| self.contacts.is_up(sender))
    }
}
