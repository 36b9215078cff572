//! Fetches: sources of the inputs that are not made here. Inputs are requested from their holders as soon as there is
//! memory, and from other sources if a holder fails.
//!
//! **Invariant:** if a holder will not send a datum, the client that owns the datum is notified and names another source.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Output, send};
use crate::data::Origin;
use crate::member::Members;
use crate::node::message::{DataMessage, SupplyFault, TaskToClient};
use crate::node::protocol::{Effect, Role};
use crate::node::server::ServerConfig;
use gridloom_base::{DatumId, NodeId};

/// The source of a datum for which tasks wait here.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    /// Its holder; this server itself if the owner must be asked for a source.
    pub(super) from: NodeId,
    pub(super) address: String,
    pub(super) size_bytes: u64,
    pub(super) origin: Origin,
    /// The request was sent, or waits for the connection.
    pub(super) is_asked: bool,
    /// The holder sends it without a request.
    pub(super) comes_unasked: bool,
    /// Planned number of sends from the datum's origin to this server.
    pub(super) hops: u16,
    /// It is transferred through a storage that both servers share.
    pub(super) by_storage: bool,
    /// Its first bytes have arrived from the holder, and the transfer has not broken off.
    pub(super) has_begun: bool,
}

impl Awaited {
    /// Returns the source of a datum that has not been requested yet.
    pub(super) fn new(size_bytes: u64, origin: Origin, (from, address, hops): (NodeId, String, u16)) -> Awaited {
        let (is_asked, comes_unasked, by_storage, has_begun) = Default::default();
        Awaited { from, address, size_bytes, origin, is_asked, comes_unasked, hops, by_storage, has_begun }
    }

    fn request(&self, datum: DatumId) -> DataMessage {
        DataMessage::Fetch { datum, hops: self.hops, by_storage: self.by_storage }
    }
}

#[derive(Debug)]
pub(in crate::node::server) struct Fetches {
    config: Arc<ServerConfig>,
    awaited: BTreeMap<DatumId, Awaited>,
    /// Requests that wait for a connection, by the address that is being dialled.
    dialling: BTreeMap<String, Vec<DatumId>>,
}

impl Fetches {
    pub(super) fn new(config: Arc<ServerConfig>) -> Fetches {
        Fetches { config, awaited: BTreeMap::new(), dialling: BTreeMap::new() }
    }

    pub(super) fn get(&self, datum: DatumId) -> Option<&Awaited> {
        self.awaited.get(&datum)
    }

    pub(super) fn is_awaited(&self, datum: DatumId) -> bool {
        self.awaited.contains_key(&datum)
    }

    /// True if data were requested from a node and have not arrived.
    pub(in crate::node::server) fn is_asked(&self, node: NodeId) -> bool {
        self.awaited.values().any(|awaited| awaited.from == node && awaited.is_asked)
    }

    /// True if a datum has not been requested from any node.
    pub(super) fn is_unasked(&self, datum: DatumId) -> bool {
        self.awaited.get(&datum).is_none_or(|awaited| !awaited.is_asked)
    }

    /// Returns the number of awaited data, and of addresses that are dialled for them.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.awaited.len(), self.dialling.len())
    }

    pub(super) fn expect(&mut self, datum: DatumId, awaited: Awaited) {
        self.awaited.insert(datum, awaited);
    }

    /// Expects a datum from a source that its owner has to name.
    pub(super) fn expect_of_owner(&mut self, datum: DatumId, size_bytes: u64, origin: Origin) {
        // The argument of a plain call is at its client.
        let from = if origin == Origin::Argument { datum.client } else { self.config.id };
        self.expect(datum, Awaited::new(size_bytes, origin, (from, String::new(), 1)));
    }

    pub(super) fn forget(&mut self, datum: DatumId) -> Option<Awaited> {
        self.awaited.remove(&datum)
    }

    pub(super) fn forget_client(&mut self, client: NodeId) {
        self.awaited.retain(|datum, _| datum.client != client);
    }

    /// Forgets the request for a datum whose tasks were requeued. It is requested again when one of them is admitted.
    pub(super) fn hold_back(&mut self, datum: DatumId) {
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            awaited.is_asked = false;
        }
    }

    /// Records that a datum has begun to arrive from a peer. Returns true if it is awaited from that peer.
    pub(super) fn begin(&mut self, datum: DatumId, from: NodeId) -> bool {
        let awaited = self.awaited.get_mut(&datum).filter(|awaited| awaited.from == from);
        awaited.map(|awaited| awaited.has_begun = true).is_some()
    }

    /// Records that a datum arrived but did not fit. It is requested when its task is admitted.
    pub(super) fn found_no_room(&mut self, datum: DatumId) {
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            (awaited.comes_unasked, awaited.has_begun) = (false, false);
        }
    }

    /// Requests an awaited datum from its holder, over an existing connection or a new one.
    pub(super) fn ask(&mut self, datum: DatumId, members: &Members<Role>, out: &mut Vec<Output>) {
        let Some(awaited) = self.awaited.get_mut(&datum) else { return };
        if awaited.from == self.config.id {
            return self.ask_for_source(datum, out);
        }
        awaited.is_asked = true;
        if awaited.comes_unasked {
            return;
        }
        if is_no_source(datum, members.get(awaited.from).map(|peer| peer.about)) {
            self.failed(datum, SupplyFault::Gone, NO_SOURCE, out);
        } else if members.is_up(awaited.from) {
            send(out, awaited.from, awaited.request(datum));
        } else if awaited.address.is_empty() {
            self.failed(datum, SupplyFault::Unreachable, "its holder is not connected", out);
        } else {
            let waiting = self.dialling.entry(awaited.address.clone()).or_default();
            if waiting.is_empty() {
                out.push(Effect::Dial { address: awaited.address.clone() }.into());
            }
            waiting.push(datum);
        }
    }

    /// Asks the owner of a datum for a source.
    pub(super) fn ask_for_source(&self, datum: DatumId, out: &mut Vec<Output>) {
        let why = format!("server '{}' has no source for it", self.config.name);
        let (from, fault) = (self.config.id, SupplyFault::Gone);
        send(out, datum.client, TaskToClient::SupplyFailed { datum, from, fault, why });
    }

    /// Notifies the owner that a datum cannot be obtained from its source. The owner names another source.
    fn failed(&mut self, datum: DatumId, fault: SupplyFault, why: &str, out: &mut Vec<Output>) {
        if let Some(awaited) = self.awaited.get_mut(&datum)
            && awaited.is_asked
        {
            let from = awaited.from;
            awaited.is_asked = false;
            send(out, datum.client, TaskToClient::SupplyFailed { datum, from, fault, why: why.into() });
        }
    }

    /// Handles the refusal of a holder that has dropped a datum. If the datum is needed before its owner has named
    /// another source, the owner is asked.
    pub(in crate::node::server) fn refused(&mut self, from: NodeId, datum: DatumId, why: &str, out: &mut Vec<Output>) {
        if self.awaited.get(&datum).is_none_or(|awaited| awaited.from != from) {
            return;
        }
        self.failed(datum, SupplyFault::Gone, why, out);
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            (awaited.from, awaited.address, awaited.has_begun) = (self.config.id, String::new(), false);
        }
    }

    /// Handles a transfer that broke off.
    pub(in crate::node::server) fn broken(
        &mut self,
        from: NodeId,
        datum: DatumId,
        fault: SupplyFault,
        why: &str,
        out: &mut Vec<Output>,
    ) {
        if let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.from == from) {
            (awaited.comes_unasked, awaited.has_begun) = (false, false);
            self.failed(datum, fault, why, out);
        }
    }

    pub(in crate::node::server) fn peer_up(&mut self, peer: NodeId, role: Role, address: &str, out: &mut Vec<Output>) {
        for datum in self.dialling.remove(address).unwrap_or_default() {
            if let Some(awaited) = self.awaited.get(&datum) {
                if awaited.from == peer && is_no_source(datum, Some(role)) {
                    self.failed(datum, SupplyFault::Gone, NO_SOURCE, out);
                } else if awaited.from == peer {
                    send(out, peer, awaited.request(datum));
                } else {
                    let why = format!("another node answers at {address}");
                    self.failed(datum, SupplyFault::Unreachable, &why, out);
                }
            }
        }
    }

    /// Handles a failed dial. Returns the holders that were not reached.
    pub(in crate::node::server) fn dial_failed(
        &mut self,
        address: &str,
        why: &str,
        members: &Members<Role>,
        out: &mut Vec<Output>,
    ) -> Vec<NodeId> {
        let mut unreachable = Vec::new();
        for datum in self.dialling.remove(address).unwrap_or_default() {
            let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.address == address) else {
                continue;
            };
            let role = members.get(awaited.from).map(|peer| peer.about);
            if role.is_some() && !is_no_source(datum, role) {
                send(out, awaited.from, awaited.request(datum));
                continue;
            }
            unreachable.push(awaited.from);
            // Also if its task was requeued meanwhile, since the task would ask the same holder again.
            awaited.is_asked = true;
            self.failed(datum, SupplyFault::Unreachable, why, out);
        }
        unreachable
    }

    pub(super) fn peer_lost(&mut self, peer: NodeId, why: &str, out: &mut Vec<Output>) {
        let from_there = self.awaited.values_mut().filter(|awaited| awaited.from == peer);
        from_there.for_each(|awaited| awaited.has_begun = false);
        let asked = self.awaited.iter().filter(|(_, awaited)| awaited.is_asked && awaited.from == peer);
        for datum in asked.map(|(datum, _)| *datum).collect::<Vec<_>>() {
            self.failed(datum, SupplyFault::Unreachable, why, out);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.dialling.values().any(Vec::is_empty) {
            return Err("an address is dialled for no datum".into());
        }
        let own = |awaited: &Awaited| awaited.from == self.config.id && awaited.is_asked;
        match self.awaited.iter().find(|(_, awaited)| own(awaited)) {
            Some((datum, _)) => Err(format!("{datum} is requested from this server itself")),
            None => Ok(()),
        }
    }
}

/// True if a node of this role cannot have a datum. Clients may name sources of shared data, and a malicious client
/// names any node.
fn is_no_source(datum: DatumId, role: Option<Role>) -> bool {
    datum.is_shared() && role.is_some_and(|role| role != Role::Server)
}

const NO_SOURCE: &str = "only servers have shared data";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server::tests::offering_nothing;
    use gridloom_base::Time;

    const HOLDER: NodeId = NodeId(3);

    fn awaited() -> (Fetches, DatumId) {
        let datum = DatumId { client: NodeId(7), serial: 1 };
        let mut fetches = Fetches::new(Arc::new(offering_nothing()));
        fetches.expect(datum, Awaited::new(8, Origin::Copied, (HOLDER, "there:1".to_string(), 2)));
        (fetches, datum)
    }

    #[test]
    fn a_datum_is_asked_for_once_its_holder_is_reached() {
        let (mut fetches, datum) = awaited();
        let mut out = Vec::new();
        fetches.ask(datum, &Members::default(), &mut out);
        assert!(matches!(out[..], [Output::Effect(Effect::Dial { .. })]) && fetches.is_asked(HOLDER));
        out.clear();
        fetches.peer_up(HOLDER, Role::Server, "there:1", &mut out);
        assert_eq!(
            out,
            [Effect::Send { to: HOLDER, message: DataMessage::Fetch { datum, hops: 2, by_storage: false }.into() }
                .into()]
        );
        assert_eq!(fetches.counts(), (1, 0));
        fetches.check().unwrap();
    }

    #[test]
    fn shared_data_are_asked_of_servers_alone() {
        let (mut fetches, _) = awaited();
        let datum = DatumId { client: NodeId::CATALOG, serial: 1 };
        for role in [Role::Client, Role::Agent, Role::Server] {
            let (mut members, mut out) = (Members::default(), Vec::new());
            members.up(Time(0), HOLDER, role);
            fetches.expect(datum, Awaited::new(8, Origin::Copied, (HOLDER, "there:1".to_string(), 1)));
            fetches.ask(datum, &members, &mut out);
            assert_eq!(fetches.is_asked(HOLDER), role == Role::Server, "{out:?}");
            assert_eq!(out.len(), 1, "to its source or its owner");
        }
    }

    #[test]
    fn a_source_that_fails_is_told_to_the_owner_once() {
        let (mut fetches, datum) = awaited();
        let (mut members, mut out) = (Members::default(), Vec::new());
        members.up(Time(0), HOLDER, Role::Server);
        fetches.ask(datum, &members, &mut out);
        out.clear();
        fetches.refused(HOLDER, datum, "it was dropped", &mut out);
        fetches.peer_lost(HOLDER, "silent", &mut out);
        let told = |output: &Output| matches!(output, Output::Effect(Effect::Send { to, .. }) if *to == datum.client);
        assert!(out.len() == 1 && told(&out[0]), "{out:?}");
        // The owner is asked before the holder is asked again.
        fetches.ask(datum, &members, &mut out);
        assert!(out.len() == 2 && told(&out[1]) && !fetches.is_asked(HOLDER), "{out:?}");
        fetches.check().unwrap();
    }
}
