//! Fetches: sources of the inputs that are not made here. Inputs are requested from their holders as soon as there is
//! memory, and from other sources if a holder fails.
//!
//! **Invariant:** if a holder will not send a datum, the client that owns the datum is notified and names another source.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AdmissionOutput, send};
use crate::data::Origin;
use crate::member::Members;
use crate::node::message::{DataMessage, SupplyFault, TaskToClient};
use crate::node::protocol::{Effect, Role};
use crate::node::server::ServerConfig;
use gridloom_base::{DatumId, NodeId};

/// The source of a datum for which tasks wait here.
#[derive(Clone, Debug)]
pub(super) struct AwaitedDatum {
    /// Its holder; this server itself if the owner must be asked for a source.
    pub(super) from: NodeId,
    pub(super) address: String,
    pub(super) size_bytes: u64,
    pub(super) origin: Origin,
    /// The request was sent, or waits for the connection.
    pub(super) is_requested: bool,
    /// The holder sends it without a request.
    pub(super) is_pushed: bool,
    /// Planned number of sends from the datum's origin to this server.
    pub(super) hops: u16,
    /// It is transferred through a storage that both servers share.
    pub(super) by_storage: bool,
    /// Its first bytes have arrived from the holder, and the transfer has not broken off.
    pub(super) has_begun: bool,
}

impl AwaitedDatum {
    /// Returns the source of a datum that has not been requested yet.
    pub(super) fn new(size_bytes: u64, origin: Origin, (from, address, hops): (NodeId, String, u16)) -> AwaitedDatum {
        let (is_requested, is_pushed, by_storage, has_begun) = Default::default();
        AwaitedDatum { from, address, size_bytes, origin, is_requested, is_pushed, hops, by_storage, has_begun }
    }

    fn request(&self, datum: DatumId) -> DataMessage {
        DataMessage::Fetch { datum, hops: self.hops, by_storage: self.by_storage }
    }
}

#[derive(Debug)]
pub(in crate::node::server) struct Fetches {
    config: Arc<ServerConfig>,
    awaited: BTreeMap<DatumId, AwaitedDatum>,
    /// Requests that wait for a connection, by the address that is being dialled.
    waiting_by_address: BTreeMap<String, Vec<DatumId>>,
}

impl Fetches {
    pub(super) fn new(config: Arc<ServerConfig>) -> Fetches {
        Fetches { config, awaited: BTreeMap::new(), waiting_by_address: BTreeMap::new() }
    }

    pub(super) fn get(&self, datum: DatumId) -> Option<&AwaitedDatum> {
        self.awaited.get(&datum)
    }

    pub(super) fn is_awaited(&self, datum: DatumId) -> bool {
        self.awaited.contains_key(&datum)
    }

    /// True if data were requested from a node and have not arrived.
    pub(in crate::node::server) fn is_requested_from(&self, node: NodeId) -> bool {
        self.awaited.values().any(|awaited| awaited.from == node && awaited.is_requested)
    }

    /// Returns the nodes from which shared data, and no other data, were requested and have not arrived, with these data.
    pub(in crate::node::server) fn sources_of_shared_data(&self) -> BTreeMap<NodeId, Vec<DatumId>> {
        let mut sources: BTreeMap<NodeId, Vec<DatumId>> = BTreeMap::new();
        let requested = || self.awaited.iter().filter(|(_, awaited)| awaited.is_requested);
        for (datum, awaited) in requested().filter(|(datum, _)| datum.is_shared()) {
            sources.entry(awaited.from).or_default().push(*datum);
        }
        for (_, awaited) in requested().filter(|(datum, _)| !datum.is_shared()) {
            sources.remove(&awaited.from);
        }
        sources
    }

    /// True if a datum has not been requested from any node.
    pub(super) fn is_unrequested(&self, datum: DatumId) -> bool {
        self.awaited.get(&datum).is_none_or(|awaited| !awaited.is_requested)
    }

    /// Returns the number of awaited data, and of addresses that are dialled for them.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.awaited.len(), self.waiting_by_address.len())
    }

    pub(super) fn expect(&mut self, datum: DatumId, awaited: AwaitedDatum) {
        self.awaited.insert(datum, awaited);
    }

    /// Expects a datum from a source that its owner has to name.
    pub(super) fn expect_of_owner(&mut self, datum: DatumId, size_bytes: u64, origin: Origin) {
        // The argument of a plain call is at its client.
        let from = if origin == Origin::Argument { datum.client } else { self.config.id };
        self.expect(datum, AwaitedDatum::new(size_bytes, origin, (from, String::new(), 1)));
    }

    pub(super) fn forget(&mut self, datum: DatumId) -> Option<AwaitedDatum> {
        self.awaited.remove(&datum)
    }

    pub(super) fn forget_client(&mut self, client: NodeId) {
        self.awaited.retain(|datum, _| datum.client != client);
    }

    /// Forgets the request for a datum whose tasks were requeued. It is requested again when one of them is admitted.
    pub(super) fn clear_request(&mut self, datum: DatumId) {
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            awaited.is_requested = false;
        }
    }

    /// Records that a datum has begun to arrive from a peer. Returns true if it is awaited from that peer.
    pub(super) fn begin(&mut self, datum: DatumId, from: NodeId) -> bool {
        let awaited = self.awaited.get_mut(&datum).filter(|awaited| awaited.from == from);
        awaited.map(|awaited| awaited.has_begun = true).is_some()
    }

    /// Records that a datum arrived but did not fit. It is requested when its task is admitted.
    pub(super) fn did_not_fit(&mut self, datum: DatumId) {
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            (awaited.is_pushed, awaited.has_begun) = (false, false);
        }
    }

    /// Requests an awaited datum from its holder, over an existing connection or a new one.
    pub(super) fn request(&mut self, datum: DatumId, members: &Members<Role>, out: &mut Vec<AdmissionOutput>) {
        let Some(awaited) = self.awaited.get_mut(&datum) else { return };
        if awaited.from == self.config.id {
            return self.request_source(datum, out);
        }
        awaited.is_requested = true;
        if awaited.is_pushed {
            return;
        }
        if is_no_source(datum, members.get(awaited.from).map(|peer| peer.data)) {
            self.failed(datum, SupplyFault::Gone, NO_SOURCE, out);
        } else if members.is_up(awaited.from) {
            send(out, awaited.from, awaited.request(datum));
        } else if awaited.address.is_empty() {
            self.failed(datum, SupplyFault::Unreachable, "its holder is not connected", out);
        } else {
            let waiting = self.waiting_by_address.entry(awaited.address.clone()).or_default();
            if waiting.is_empty() {
                out.push(Effect::Dial { address: awaited.address.clone() }.into());
            }
            waiting.push(datum);
        }
    }

    /// Asks the owner of a datum for a source.
    pub(super) fn request_source(&self, datum: DatumId, out: &mut Vec<AdmissionOutput>) {
        let why = format!("server '{}' has no source for it", self.config.name);
        let (from, fault) = (self.config.id, SupplyFault::Gone);
        send(out, datum.client, TaskToClient::SupplyFailed { datum, from, fault, why });
    }

    /// Notifies the owner that a datum cannot be obtained from its source. The owner names another source.
    fn failed(&mut self, datum: DatumId, fault: SupplyFault, why: &str, out: &mut Vec<AdmissionOutput>) {
        if let Some(awaited) = self.awaited.get_mut(&datum)
            && awaited.is_requested
        {
            let from = awaited.from;
            awaited.is_requested = false;
            send(out, datum.client, TaskToClient::SupplyFailed { datum, from, fault, why: why.into() });
        }
    }

    /// Handles the refusal of a holder that has dropped a datum. If the datum is needed before its owner has named
    /// another source, the owner is asked.
    pub(in crate::node::server) fn refused(
        &mut self,
        from: NodeId,
        datum: DatumId,
        why: &str,
        out: &mut Vec<AdmissionOutput>,
    ) {
        if self.awaited.get(&datum).is_none_or(|awaited| awaited.from != from) {
            return;
        }
        self.failed(datum, SupplyFault::Gone, why, out);
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            (awaited.from, awaited.address, awaited.has_begun) = (self.config.id, String::new(), false);
        }
    }

    /// Handles a transfer that broke off.
    pub(in crate::node::server) fn transfer_broke(
        &mut self,
        from: NodeId,
        datum: DatumId,
        fault: SupplyFault,
        why: &str,
        out: &mut Vec<AdmissionOutput>,
    ) {
        if let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.from == from) {
            (awaited.is_pushed, awaited.has_begun) = (false, false);
            self.failed(datum, fault, why, out);
        }
    }

    pub(in crate::node::server) fn peer_up(
        &mut self,
        peer: NodeId,
        role: Role,
        address: &str,
        out: &mut Vec<AdmissionOutput>,
    ) {
        for datum in self.waiting_by_address.remove(address).unwrap_or_default() {
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
        out: &mut Vec<AdmissionOutput>,
    ) -> Vec<NodeId> {
        let mut unreachable = Vec::new();
        for datum in self.waiting_by_address.remove(address).unwrap_or_default() {
            let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.address == address) else {
                continue;
            };
            let role = members.get(awaited.from).map(|peer| peer.data);
            if role.is_some() && !is_no_source(datum, role) {
                send(out, awaited.from, awaited.request(datum));
                continue;
            }
            unreachable.push(awaited.from);
            // Also if its task was requeued meanwhile, since the task would ask the same holder again.
            awaited.is_requested = true;
            self.failed(datum, SupplyFault::Unreachable, why, out);
        }
        unreachable
    }

    pub(super) fn peer_lost(&mut self, peer: NodeId, why: &str, out: &mut Vec<AdmissionOutput>) {
        let from_there = self.awaited.values_mut().filter(|awaited| awaited.from == peer);
        from_there.for_each(|awaited| awaited.has_begun = false);
        let asked = self.awaited.iter().filter(|(_, awaited)| awaited.is_requested && awaited.from == peer);
        for datum in asked.map(|(datum, _)| *datum).collect::<Vec<_>>() {
            self.failed(datum, SupplyFault::Unreachable, why, out);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.waiting_by_address.values().any(Vec::is_empty) {
            return Err("an address is dialled for no datum".into());
        }
        let own = |awaited: &AwaitedDatum| awaited.from == self.config.id && awaited.is_requested;
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
        fetches.expect(datum, AwaitedDatum::new(8, Origin::Copied, (HOLDER, "there:1".to_string(), 2)));
        (fetches, datum)
    }

    #[test]
    fn a_datum_is_requested_once_its_holder_is_connected() {
        let (mut fetches, datum) = awaited();
        let mut out = Vec::new();
        fetches.request(datum, &Members::default(), &mut out);
        assert!(matches!(out[..], [AdmissionOutput::Effect(Effect::Dial { .. })]) && fetches.is_requested_from(HOLDER));
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
    fn shared_data_are_requested_from_servers_only() {
        let (mut fetches, _) = awaited();
        let datum = DatumId { client: NodeId::CATALOG, serial: 1 };
        for role in [Role::Client, Role::Agent, Role::Server] {
            let (mut members, mut out) = (Members::default(), Vec::new());
            members.add(Time(0), HOLDER, role);
            fetches.expect(datum, AwaitedDatum::new(8, Origin::Copied, (HOLDER, "there:1".to_string(), 1)));
            fetches.request(datum, &members, &mut out);
            assert_eq!(fetches.is_requested_from(HOLDER), role == Role::Server, "{out:?}");
            assert_eq!(out.len(), 1, "to its source or its owner");
        }
    }

    #[test]
    fn a_failed_source_is_reported_to_the_owner_once() {
        let (mut fetches, datum) = awaited();
        let (mut members, mut out) = (Members::default(), Vec::new());
        members.add(Time(0), HOLDER, Role::Server);
        fetches.request(datum, &members, &mut out);
        out.clear();
        fetches.refused(HOLDER, datum, "it was dropped", &mut out);
        fetches.peer_lost(HOLDER, "silent", &mut out);
        let told = |output: &AdmissionOutput| matches!(output, AdmissionOutput::Effect(Effect::Send { to, .. }) if *to == datum.client);
        assert!(out.len() == 1 && told(&out[0]), "{out:?}");
        // The owner is asked before the holder is asked again.
        fetches.request(datum, &members, &mut out);
        assert!(out.len() == 2 && told(&out[1]) && !fetches.is_requested_from(HOLDER), "{out:?}");
        fetches.check().unwrap();
    }
}
