//! The exchange of revocations between the agent and the other nodes of a grid.
//!
//! ```text
//!  server, client                                    agent
//!    RevocationsKnown (digest) ───────────────────────▶  when they connect
//!    ◀─────────────────────── RevocationsKnown (digest)
//!    Revocations (all of them) ───────────────────────▶  if the digests differ, in both directions
//!    ◀────────────────────── Revocations (all of them)
//!    ◀────────────────────────── Revocations (new ones)  when new ones are known, in both directions
//! ```
//! So a node need not see the file in which they are recorded. The authority has signed each of them, and a node without
//! its key can pass them on, but cannot make one. It can withhold them from nodes that do not read the file.

use std::collections::BTreeSet;
use std::sync::Arc;

use gridloom_base::NodeId;
use gridloom_core::node::Role;
use gridloom_keys::{Observer, Revocations};

use crate::identity::Credentials;
use crate::transport::WorldMessage;

/// Maximum size of the lines in one message. The receiver verifies a message of this size in less than 100 ms.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// A node's side of the exchange.
pub(super) struct RevocationExchange {
    own_role: Role,
    credentials: Credentials,
    /// The revocations of the last [`RevocationExchange::take_new`].
    known: Revocations,
    /// Peers whose greetings have not arrived yet. Each peer greets once, so that it cannot ask for the list without end.
    awaited: BTreeSet<NodeId>,
    /// Is called after changes as long as it is here.
    _observer: Arc<Observer>,
}

impl RevocationExchange {
    /// `observer` is called after each change of the revocations.
    pub(super) fn new(own_role: Role, credentials: Credentials, observer: Arc<Observer>) -> RevocationExchange {
        credentials.observe_revocations(&observer);
        let known = credentials.signed_revocations();
        RevocationExchange { own_role, credentials, known, awaited: BTreeSet::new(), _observer: observer }
    }

    /// Reports whether revocations are exchanged with a peer of that role.
    pub(super) fn is_with(&self, role: Role) -> bool {
        [self.own_role, role].contains(&Role::Agent)
    }

    /// Returns the message to a peer that has connected.
    pub(super) fn greeting(&mut self, peer: NodeId) -> WorldMessage {
        self.awaited.insert(peer);
        WorldMessage::RevocationsKnown { digest: digest(&self.credentials.signed_revocations()) }
    }

    pub(super) fn forget(&mut self, peer: NodeId) {
        self.awaited.remove(&peer);
    }

    /// Returns the answer to the greeting of a peer.
    ///
    /// # Errors
    /// If the peer may not greet, or not again: its connection is then closed.
    pub(super) fn answer(&mut self, peer: NodeId, known: [u8; 32]) -> Result<Vec<WorldMessage>, String> {
        if !self.awaited.remove(&peer) {
            return Err("it sent a greeting about revocations that was not expected".into());
        }
        let own = self.credentials.signed_revocations();
        Ok(if known == digest(&own) { Vec::new() } else { messages(&own) })
    }

    /// Adds revocations that a peer has sent.
    ///
    /// # Errors
    /// If they are not those of the grid's authority: the peer's connection is then closed.
    pub(super) fn add(&self, lines: &str) -> Result<(), String> {
        self.credentials.add_signed_revocations(lines)
    }

    /// Returns the messages with the revocations that have become known since the last call.
    pub(super) fn take_new(&mut self) -> Vec<WorldMessage> {
        let all = self.credentials.signed_revocations();
        let new = all.without(&self.known);
        self.known = all;
        messages(&new)
    }
}

fn digest(revocations: &Revocations) -> [u8; 32] {
    *blake3::hash(revocations.to_text().as_bytes()).as_bytes()
}

fn messages(revocations: &Revocations) -> Vec<WorldMessage> {
    let mut all = vec![String::new()];
    for line in revocations.to_text().lines() {
        if all.last().is_some_and(|last| last.len() + line.len() >= MESSAGE_BYTES_MAX) {
            all.push(String::new());
        }
        let last = all.last_mut().expect("it begins with one");
        last.push_str(line);
        last.push('\n');
    }
    all.retain(|lines| !lines.is_empty());
    all.into_iter().map(|lines| WorldMessage::Revocations { lines }).collect()
}

#[cfg(test)]
mod tests {
    use gridloom_keys::{Authority, Grant, Identity, Revocation, Revoked, Role as CertifiedRole, UnixTime};

    use super::*;
    use crate::identity::Keys;

    fn exchange(authority: &Authority, role: Role) -> RevocationExchange {
        let certified = if role == Role::Agent { CertifiedRole::Agent } else { CertifiedRole::Server };
        let grant = Grant::new(Identity::new(authority.grid(), certified, "a").unwrap());
        let bundle = authority.issue_bundle(&grant, UnixTime::now()).unwrap();
        let keys = Keys::from_pem(bundle.to_pem().as_bytes()).unwrap();
        RevocationExchange::new(role, Credentials::new(keys).unwrap(), Arc::new(|| ()))
    }

    fn revocation(authority: &Authority, name: &str) -> Revocation {
        let identity = Identity::new(authority.grid(), CertifiedRole::Client, name).unwrap();
        Revocation::new(Revoked::Identity(identity), UnixTime::now(), "left").unwrap()
    }

    /// Delivers messages, and returns the first error.
    fn deliver(messages: Vec<WorldMessage>, to: &RevocationExchange) -> Result<(), String> {
        messages.into_iter().try_for_each(|message| match message {
            WorldMessage::Revocations { lines } => to.add(&lines),
            other => panic!("{other:?}"),
        })
    }

    const PEER: NodeId = NodeId(7);

    /// Connects two nodes. Returns the answer to the greeting of one of them.
    fn greet(from: &mut RevocationExchange, to: &mut RevocationExchange) -> Vec<WorldMessage> {
        let _ = to.greeting(PEER);
        match from.greeting(PEER) {
            WorldMessage::RevocationsKnown { digest } => to.answer(PEER, digest).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_peer_greets_once() {
        let authority = Authority::new("lab", UnixTime::now()).unwrap();
        let mut agent = exchange(&authority, Role::Agent);
        assert!(agent.answer(PEER, [0; 32]).is_err());
        let _ = agent.greeting(PEER);
        assert!(agent.answer(PEER, [0; 32]).is_ok() && agent.answer(PEER, [0; 32]).is_err());
        let _ = agent.greeting(PEER);
        agent.forget(PEER);
        assert!(agent.answer(PEER, [0; 32]).is_err());
    }

    #[test]
    fn both_ends_know_all_revocations_after_their_greetings_and_learn_new_ones() {
        let authority = Authority::new("lab", UnixTime::now()).unwrap();
        let (mut agent, mut server) = (exchange(&authority, Role::Agent), exchange(&authority, Role::Server));
        assert!(agent.is_with(Role::Client) && server.is_with(Role::Agent) && !server.is_with(Role::Server));
        // More than one message takes.
        let mut many = Revocations::default();
        (0..600)
            .for_each(|number| many.add(authority.sign(revocation(&authority, &format!("client {number}"))).unwrap()));
        let of_agent = &agent.credentials;
        of_agent.add_signed_revocations(&many.to_text()).unwrap();
        let mut one = Revocations::default();
        one.add(authority.sign(revocation(&authority, "anna")).unwrap());
        server.credentials.add_signed_revocations(&one.to_text()).unwrap();
        let (to_server, to_agent) = (greet(&mut server, &mut agent), greet(&mut agent, &mut server));
        assert!(to_server.len() > 1 && to_agent.len() == 1);
        deliver(to_server, &server).unwrap();
        deliver(to_agent, &agent).unwrap();
        let known = |one: &RevocationExchange| one.credentials.signed_revocations();
        assert!(known(&agent) == known(&server) && known(&agent).iter().count() == 601);
        assert!(greet(&mut server, &mut agent).is_empty());
        assert!(!server.take_new().is_empty() && server.take_new().is_empty());
        assert!(!agent.take_new().is_empty() && agent.take_new().is_empty());
    }

    #[test]
    fn revocations_that_the_authority_has_not_signed_are_refused() {
        let (authority, other) =
            (Authority::new("lab", UnixTime::now()).unwrap(), Authority::new("lab", UnixTime::now()).unwrap());
        let server = exchange(&authority, Role::Server);
        let line = |revocation| {
            let mut all = Revocations::default();
            all.add(revocation);
            all.to_text()
        };
        let of_anna = || revocation(&authority, "anna");
        let signed = line(authority.sign(of_anna()).unwrap());
        let changed = ["left", "anna", "lab"].map(|text| signed.replacen(text, "other", 1));
        for forged in [vec![line(of_anna()), line(other.sign(of_anna()).unwrap())], changed.to_vec()].concat() {
            let error = server.add(&forged).unwrap_err();
            assert!(error.contains("is not signed by the authority of the grid 'lab'"), "{error}");
        }
        assert!(server.add("{").is_err());
        assert!(server.credentials.signed_revocations().is_empty());
        server.add(&signed).unwrap();
        assert!(!server.credentials.signed_revocations().is_empty());
    }
}
