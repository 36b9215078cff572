//! The nodes that the client communicates with: its agent, connected servers, lost servers, and messages that wait for
//! a connection.
//!
//! **Invariants.** Nothing waits for a connection to a connected node; no lost server is connected; the agent is.

use std::collections::{BTreeMap, BTreeSet};

use super::mapping::NOT_IN_GRID;
use crate::member::{Beat, Members};
use crate::node::message::{DirectoryToAgent, Message};
use crate::node::protocol::{Effect, Role};
use gridloom_base::dial::{ConnectionError, ConnectionFault, DISCONNECTED};
use gridloom_base::limits::RECONNECT_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// An item that waits for a connection.
#[derive(Debug)]
pub(super) enum QueuedItem {
    Message(Box<Message>),
    Datum(DatumId),
}

/// The state of a lost server.
#[derive(Clone, Copy, Debug, Default)]
struct LostState {
    /// True if a directory since then did not list it: if a later one does, it has returned.
    was_absent: bool,
    /// True while it is being dialled. The agent still knows it, so perhaps only the connection was lost.
    is_dialled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Contacts {
    agent: Option<NodeId>,
    agent_was_lost: bool,
    /// Why it was last lost.
    agent_error: Option<ConnectionError>,
    /// True if the agent refuses this client, so that no node can be expected to return.
    agent_refuses: bool,
    members: Members<Role>,
    names: BTreeMap<NodeId, String>,
    addresses: BTreeMap<NodeId, String>,
    outbox: BTreeMap<NodeId, Vec<QueuedItem>>,
    /// Servers that were lost and have not returned.
    lost: BTreeMap<NodeId, LostState>,
    /// Lost nodes are expected to return until this time.
    expected_until: Time,
    /// Servers that a reconnected agent has not listed yet.
    unlisted: BTreeSet<NodeId>,
    /// Number of dials in progress, by address.
    dials: BTreeMap<String, u32>,
    /// Servers that were first listed while their address was being dialled for a predecessor. They are not lost if that
    /// dial fails.
    successors: BTreeSet<NodeId>,
}

impl Contacts {
    /// Returns the agent if it is connected.
    pub(super) fn agent(&self) -> Option<NodeId> {
        self.agent
    }

    /// True if the agent was lost or never answered, and has not connected since.
    pub(super) fn agent_was_lost(&self) -> bool {
        self.agent_was_lost
    }

    /// True if a node was lost recently, so that it may return.
    pub(super) fn expects_nodes(&self, now: Time) -> bool {
        now < self.expected_until && !self.agent_refuses
    }

    /// True if a reconnected agent has yet to list servers that are expected.
    pub(super) fn awaits_list(&self, now: Time) -> bool {
        self.expects_nodes(now) && !self.unlisted.is_empty()
    }

    /// True if a server may return soon, as far as is known.
    pub(super) fn may_return(&self, now: Time, server: NodeId) -> bool {
        let is_gone = self.lost.get(&server).is_some_and(|lost| lost.was_absent);
        self.expects_nodes(now)
            && (self.agent.is_none() || self.unlisted.contains(&server) || !is_gone && self.is_lost(server))
    }

    /// Returns true once, when lost nodes are no longer expected to return.
    pub(super) fn take_wait_end(&mut self, now: Time) -> bool {
        let stops = self.expected_until > Time(0) && !self.expects_nodes(now);
        if stops {
            self.expected_until = Time(0);
            self.unlisted.clear();
        }
        stops
    }

    fn expect_nodes(&mut self, now: Time) {
        self.expected_until = self.expected_until.max(now + RECONNECT_NS_MAX);
    }

    /// True if the certificate of this client or of the agent has been revoked: no node is dialled again.
    pub(super) fn is_revoked(&self) -> bool {
        self.agent.is_none() && self.agent_fault() == ConnectionFault::Revoked
    }

    /// Returns why the agent was lost or could not be reached, in words.
    pub(super) fn why_agent_lost(&self) -> &str {
        self.agent_error.as_ref().map_or("it has not answered yet", |error| &error.why)
    }

    /// Returns the kind of [`Contacts::why_agent_lost`].
    pub(super) fn agent_fault(&self) -> ConnectionFault {
        self.agent_error.as_ref().map_or(ConnectionFault::Other, |error| error.fault)
    }

    pub(super) fn members(&self) -> &Members<Role> {
        &self.members
    }

    pub(super) fn members_mut(&mut self) -> &mut Members<Role> {
        &mut self.members
    }

    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.members.is_up(node)
    }

    pub(super) fn is_lost(&self, server: NodeId) -> bool {
        self.lost.contains_key(&server)
    }

    pub(super) fn lost(&self) -> impl Iterator<Item = NodeId> {
        self.lost.keys().copied()
    }

    /// Returns the name of a server that the directory has listed, and why it cannot be used.
    pub(super) fn why_missing(&self, server: NodeId) -> Option<(String, String)> {
        let why = if self.is_lost(server) { DISCONNECTED } else { NOT_IN_GRID };
        self.names.get(&server).map(|name| (name.clone(), why.to_string()))
    }

    pub(super) fn name_of(&self, node: NodeId) -> String {
        self.names.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }

    /// Returns a server's address; empty if unknown.
    pub(super) fn address_of(&self, node: NodeId) -> String {
        self.addresses.get(&node).cloned().unwrap_or_default()
    }

    pub(super) fn learn_address(&mut self, node: NodeId, address: String) {
        if !self.addresses.contains_key(&node) && self.dials.contains_key(&address) {
            self.successors.insert(node);
        }
        self.addresses.insert(node, address);
    }

    pub(super) fn learn_name(&mut self, node: NodeId, name: String) {
        self.names.insert(node, name);
    }

    /// Records that something was received from a peer. Returns false if it is not connected.
    #[must_use]
    pub(super) fn record_received(&mut self, now: Time, peer: NodeId) -> bool {
        self.members.record_received(now, peer)
    }

    pub(super) fn beat(&mut self, now: Time) -> Beat {
        self.members.beat(now)
    }

    // ---- sending

    pub(super) fn send_to_agent(&self, message: impl Into<Message>, out: &mut Vec<Effect>) {
        if let Some(to) = self.agent {
            out.push(Effect::Send { to, message: message.into() });
        }
    }

    /// Sends a message to a server. Connects first if necessary.
    pub(super) fn post(&mut self, to: NodeId, message: impl Into<Message>, out: &mut Vec<Effect>) {
        let message = message.into();
        match self.is_up(to) {
            true => out.push(Effect::Send { to, message }),
            false => self.keep(to, QueuedItem::Message(Box::new(message)), out),
        }
    }

    /// Sends a datum to a server. Connects first if necessary.
    pub(super) fn post_datum(&mut self, to: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        match self.is_up(to) {
            true => out.push(Effect::SendDatum { to, datum }),
            false => self.keep(to, QueuedItem::Datum(datum), out),
        }
    }

    fn keep(&mut self, to: NodeId, parcel: QueuedItem, out: &mut Vec<Effect>) {
        let waiting = self.outbox.entry(to).or_default();
        if waiting.is_empty() {
            out.push(Effect::Dial { address: self.addresses.get(&to).cloned().unwrap_or_default() });
        }
        waiting.push(parcel);
    }

    /// Returns the number of nodes to which something waits to be sent.
    pub(super) fn awaited(&self) -> usize {
        self.outbox.len()
    }

    // ---- connecting and disconnecting

    /// Records the dials among these effects.
    pub(super) fn record_dials(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Dial { address } = effect {
                *self.dials.entry(address.clone()).or_default() += 1;
            }
        }
    }

    pub(super) fn dial_ended(&mut self, address: &str) {
        if let Some(dials) = self.dials.get_mut(address) {
            *dials -= 1;
            if *dials == 0 {
                self.dials.remove(address);
            }
        }
    }

    /// Records that the node at this address is connected, which ends all dials there.
    pub(super) fn dials_succeeded(&mut self, address: &str) {
        self.dials.remove(address);
    }

    /// Returns the nodes that are lost because a dial of that address failed. A server that was started there in the
    /// meantime is not lost: it is dialled again if items are queued for it.
    pub(super) fn lost_at(&mut self, address: &str, out: &mut Vec<Effect>) -> Vec<NodeId> {
        let unreached = self.unreached_at(address).into_iter();
        let (successors, lost): (Vec<NodeId>, Vec<NodeId>) = unreached.partition(|node| self.successors.remove(node));
        if successors.iter().any(|node| self.outbox.contains_key(node)) {
            out.push(Effect::Dial { address: address.into() });
        }
        lost
    }

    /// Handles a connected agent. If it was lost before, it is expected to list these servers.
    pub(super) fn agent_up(&mut self, now: Time, agent: NodeId, known: Vec<NodeId>, out: &mut Vec<Effect>) {
        self.members.add(now, agent, Role::Agent);
        // Records that took it for a server were wrong.
        self.lost.remove(&agent);
        self.outbox.remove(&agent);
        self.agent = Some(agent);
        self.agent_refuses = false;
        if std::mem::take(&mut self.agent_was_lost) {
            self.expect_nodes(now);
            self.unlisted.extend(known);
        }
        self.send_to_agent(DirectoryToAgent::Subscribe, out);
    }

    /// Handles a connected server or client. Returns the items that waited for it.
    pub(super) fn peer_up(
        &mut self,
        now: Time,
        peer: NodeId,
        role: Role,
        name: String,
        out: &mut Vec<Effect>,
    ) -> Vec<QueuedItem> {
        self.members.add(now, peer, role);
        self.successors.remove(&peer);
        if self.lost.remove(&peer).is_some() {
            // It is no longer in the client's view of the grid: the client subscribes to the directory again.
            self.send_to_agent(DirectoryToAgent::Subscribe, out);
        }
        self.names.insert(peer, name);
        self.outbox.remove(&peer).unwrap_or_default()
    }

    /// Returns the nodes other than `peer` that were expected at that address and for which something waits.
    pub(super) fn expected_at(&self, address: &str, peer: NodeId) -> Vec<NodeId> {
        let is_other = |node: &NodeId| *node != peer && self.addresses.get(node).is_some_and(|known| known == address);
        self.outbox.keys().copied().filter(is_other).collect()
    }

    /// Returns the nodes at that address that are not connected.
    fn unreached_at(&self, address: &str) -> Vec<NodeId> {
        let at = self.addresses.iter().filter(|(_, known)| *known == address).map(|(node, _)| *node);
        // The address of some nodes with waiting items is unknown.
        let without =
            self.outbox.keys().copied().filter(|node| address.is_empty() && !self.addresses.contains_key(node));
        at.chain(without).filter(|node| !self.members.is_up(*node)).collect()
    }

    /// Handles a lost connection. Returns `None` if there was none, else whether it was the agent's.
    pub(super) fn peer_lost(&mut self, now: Time, peer: NodeId) -> Option<bool> {
        self.members.remove(peer)?;
        let was_agent = self.agent == Some(peer);
        if was_agent {
            self.agent = None;
            self.expect_nodes(now);
        }
        Some(was_agent)
    }

    /// Records that the agent is lost or cannot be reached. Returns false if that was known.
    pub(super) fn agent_lost(&mut self, error: ConnectionError) -> bool {
        self.agent_refuses = error.fault.is_permanent();
        self.agent_error = Some(error);
        !std::mem::replace(&mut self.agent_was_lost, true)
    }

    /// Handles a lost server and discards the items that wait for it. Returns false if the loss was known and nothing
    /// waited.
    pub(super) fn server_lost(&mut self, now: Time, server: NodeId) -> bool {
        // Items posted since to a server that was known to be lost are lost with it again.
        let was_posted_to = self.outbox.remove(&server).is_some();
        if self.lost.contains_key(&server) && !was_posted_to {
            return false;
        }
        self.expect_nodes(now);
        self.unlisted.remove(&server);
        self.lost.entry(server).or_default();
        true
    }

    /// Records that a lost server did not answer, so that it is dialled again.
    pub(super) fn dial_failed(&mut self, server: NodeId) {
        if let Some(lost) = self.lost.get_mut(&server) {
            lost.is_dialled = false;
        }
    }

    /// Handles a new directory. It may still list a server that was lost here. A server that was absent from a
    /// directory has returned when it is listed again.
    pub(super) fn directory_has(&mut self, is_listed: impl Fn(NodeId) -> bool) {
        self.unlisted.retain(|node| !is_listed(*node));
        self.lost.retain(|node, lost| {
            let is_absent = !is_listed(*node);
            let is_back = !is_absent && lost.was_absent;
            lost.was_absent |= is_absent;
            !is_back
        });
    }

    /// Dials the servers whose connection was lost but that the agent still knows.
    pub(super) fn dial_lost(&mut self, out: &mut Vec<Effect>) {
        if self.is_revoked() {
            return;
        }
        for (node, lost) in self.lost.iter_mut().filter(|(_, lost)| !lost.was_absent && !lost.is_dialled) {
            if let Some(address) = self.addresses.get(node).filter(|address| !address.is_empty()) {
                lost.is_dialled = true;
                out.push(Effect::Dial { address: address.clone() });
            }
        }
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert!(self.outbox.keys().all(|node| !self.is_up(*node)), "items wait for a node that is connected");
        assert!(self.lost.keys().all(|node| !self.is_up(*node)), "a lost server is connected");
        assert!(self.agent.is_none_or(|agent| self.is_up(agent)), "the agent is not connected");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::message::DirectoryToServer;

    const AGENT: NodeId = NodeId(1);
    const SERVER: NodeId = NodeId(2);

    #[test]
    fn what_is_posted_waits_for_the_connection() {
        let (mut contacts, mut out) = (Contacts::default(), Vec::new());
        let datum = DatumId { client: NodeId(9), serial: 1 };
        contacts.learn_address(SERVER, "there:1".into());
        contacts.post_datum(SERVER, datum, &mut out);
        contacts.post_datum(SERVER, datum, &mut out);
        assert_eq!(out, [Effect::Dial { address: "there:1".into() }], "it is dialled once");
        let waited = contacts.peer_up(Time(0), SERVER, Role::Server, "s".into(), &mut out);
        assert_eq!((waited.len(), contacts.awaited(), contacts.name_of(SERVER).as_str()), (2, 0, "s"));
        contacts.check();
    }

    #[test]
    fn nothing_is_kept_for_a_node_without_an_address() {
        let (mut contacts, mut out) = (Contacts::default(), Vec::new());
        contacts.post(SERVER, DirectoryToServer::ReportModels, &mut out);
        assert_eq!(out, [Effect::Dial { address: String::new() }]);
        assert_eq!(contacts.lost_at("", &mut out), [SERVER]);
        contacts.server_lost(Time(0), SERVER);
        assert_eq!(contacts.awaited(), 0);
    }

    #[test]
    fn nothing_returns_while_the_agent_refuses_the_client() {
        let (mut contacts, mut out) = (Contacts::default(), Vec::new());
        contacts.agent_up(Time(0), AGENT, Vec::new(), &mut out);
        contacts.peer_lost(Time(0), AGENT);
        contacts.agent_lost(ConnectionError::new(ConnectionFault::Disconnected, "it was closed"));
        assert!(contacts.expects_nodes(Time(1)) && !contacts.is_revoked());
        contacts.agent_lost(ConnectionError::new(ConnectionFault::WrongVersion, "refused: other versions"));
        assert!(!contacts.expects_nodes(Time(1)) && !contacts.is_revoked());
        contacts.agent_lost(ConnectionError::new(ConnectionFault::Revoked, "certificate revoked: client 'anna'"));
        // The servers close their connections, too.
        contacts.learn_address(SERVER, "there:1".into());
        contacts.server_lost(Time(1), SERVER);
        assert!(!contacts.expects_nodes(Time(1)) && contacts.is_revoked());
        out.clear();
        contacts.dial_lost(&mut out);
        assert_eq!(out, []);
        contacts.agent_up(Time(2), AGENT, Vec::new(), &mut out);
        assert!(!contacts.is_revoked());
        contacts.check();
    }

    #[test]
    fn a_lost_server_is_back_once_the_directory_was_without_it() {
        let (mut contacts, mut out) = (Contacts::default(), Vec::new());
        contacts.learn_address(SERVER, "there:1".into());
        assert!(contacts.server_lost(Time(0), SERVER) && !contacts.server_lost(Time(0), SERVER));
        assert!(
            contacts.may_return(Time(RECONNECT_NS_MAX - 1), SERVER) && !contacts.expects_nodes(Time(RECONNECT_NS_MAX))
        );
        for (is_listed, is_lost) in [(true, true), (false, true), (true, false)] {
            contacts.directory_has(|_| is_listed);
            assert_eq!(contacts.is_lost(SERVER), is_lost);
        }
        contacts.server_lost(Time(0), SERVER);
        contacts.dial_lost(&mut out);
        contacts.dial_lost(&mut out);
        assert_eq!(out.len(), 1, "one dial at a time");
        contacts.check();
    }

    /// Earlier, a placement on a server that had just been restarted failed: the dial of its predecessor failed after the new
    /// server was listed, and both counted as lost.
    #[test]
    fn a_server_is_not_lost_with_its_predecessor_at_its_address() {
        let (mut contacts, mut out) = (Contacts::default(), Vec::new());
        let new = NodeId(3);
        contacts.learn_address(SERVER, "there:1".into());
        contacts.server_lost(Time(0), SERVER);
        contacts.dial_lost(&mut out);
        contacts.record_dials(&out);
        contacts.learn_address(new, "there:1".into());
        let dial = [Effect::Dial { address: "there:1".into() }];
        let mut out = Vec::new();
        contacts.post(new, DirectoryToServer::ReportModels, &mut out);
        contacts.record_dials(&out);
        assert_eq!(out, dial);
        let mut fail = || {
            let mut out = Vec::new();
            contacts.dial_ended("there:1");
            let lost = contacts.lost_at("there:1", &mut out);
            contacts.record_dials(&out);
            (lost, out)
        };
        assert_eq!(fail(), (vec![SERVER], dial.to_vec()), "only the predecessor was dialled");
        assert_eq!(fail().0, [SERVER, new]);
        assert_eq!(contacts.awaited(), 1);
    }

    #[test]
    fn a_connection_ends_all_dials_of_its_address() {
        let mut contacts = Contacts::default();
        let dial = Effect::Dial { address: "there:1".into() };
        contacts.record_dials(&[dial.clone(), dial]);
        contacts.dials_succeeded("there:1");
        contacts.learn_address(SERVER, "there:1".into());
        assert_eq!(contacts.lost_at("there:1", &mut Vec::new()), [SERVER], "it is no successor");
    }

    #[test]
    fn an_agent_that_was_lost_is_asked_again_when_it_is_back() {
        let (mut contacts, mut out) = (Contacts::default(), Vec::new());
        contacts.agent_up(Time(0), AGENT, vec![SERVER], &mut out);
        assert!(!contacts.awaits_list(Time(0)), "it was not lost");
        assert_eq!(out, [Effect::Send { to: AGENT, message: DirectoryToAgent::Subscribe.into() }]);
        assert_eq!((contacts.peer_lost(Time(0), AGENT), contacts.agent()), (Some(true), None));
        let silent = || ConnectionError::new(ConnectionFault::Silent, "silent");
        assert!(contacts.agent_lost(silent()) && !contacts.agent_lost(silent()) && contacts.agent_was_lost());
        contacts.agent_up(Time(1), AGENT, vec![SERVER], &mut out);
        assert!(contacts.awaits_list(Time(1)) && contacts.may_return(Time(1), SERVER));
        contacts.directory_has(|node| node == SERVER);
        assert!(!contacts.awaits_list(Time(1)));
        contacts.check();
    }
}
