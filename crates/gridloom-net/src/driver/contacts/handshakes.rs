//! Handshakes: determine the purpose of a connection and what happens to it afterwards.

use gridloom_base::dial::{ConnectionError, ConnectionFault, NOT_A_NODE};
use gridloom_base::{Level, Time};
use gridloom_channel::Kind;
use gridloom_core::node::{Input, Role};

use super::{ConnectionUpdate, Connections, Peer, token_of};
use crate::driver::contact::Stage;
use crate::driver::dials::Dial;
use crate::log::warning;
use crate::transport::handshake::{
    HANDSHAKE_NS_MAX, HandshakeError, Hello, Purpose, Session, Verdict, origin_of, wire_version,
};
use crate::transport::notice::Link;

/// Error sent on a bulk connection that does not belong to a control connection.
const NO_PEER: &str = "a bulk connection without a control connection";

impl Connections {
    /// Handles a handshake frame; `admits_bulk` decides on bulk connections. Returns `Some` if the connection turned
    /// out to be for bulk data.
    pub(in crate::driver) fn on_handshake(
        &mut self,
        token: usize,
        kind: Kind,
        body: &[u8],
        now: Time,
        admits_bulk: impl Fn(&Hello) -> Result<(), String>,
    ) -> Result<Option<(Hello, Purpose)>, String> {
        if kind != Kind::Hello {
            return Err("the connection did not begin with a handshake".into());
        }
        let contact = self.connections.get_mut(&token).expect("the caller has just seen it");
        let mut handshake = contact.handshake.take().expect("it is in the handshake");
        handshake.identify(contact.channel.stream().peer_certificates());
        let mut out = Vec::new();
        let done = handshake.on_frame(body, &mut out, |peer| self.decide(peer, &admits_bulk));
        let contact = self.connections.get_mut(&token).expect("deciding closes no connection");
        out.iter().for_each(|body| contact.queue_handshake_frame(body));
        self.open.dirty.insert(token);
        match done {
            Ok(None) => {
                contact.handshake = Some(handshake);
                // A slow node that makes progress is not silent.
                if let Some(dial) = contact.dial.and_then(|number| self.dials.get_mut(number)) {
                    contact.deadline = now + HANDSHAKE_NS_MAX;
                    dial.deadline = contact.deadline;
                }
            }
            Ok(Some((hello, _))) if contact.dial.is_some_and(|dial| self.dials.leads_elsewhere(dial, hello.node)) => {
                let why = format!("'{}' answers there, but it is a different node", hello.name);
                if let Some(dial) = self.forget(token).and_then(|contact| contact.dial) {
                    self.attempt_failed(dial, ConnectionError::new(ConnectionFault::WrongNode, why));
                }
            }
            Ok(Some((hello, verdict))) if handshake.purpose() == Purpose::Control => {
                let session = handshake.take_session().expect("both hellos were there");
                self.established(token, hello, session, verdict, now);
            }
            Ok(Some((hello, _))) => {
                // The verdict must be written before the socket is handed over.
                contact.channel.flush(&mut self.buffers).map_err(|error| error.to_string())?;
                return Ok(Some((hello, handshake.purpose())));
            }
            Err(error) => {
                // Send the refusal before closing the connection; if that fails, the peer sees the connection close.
                let _ = contact.channel.flush(&mut self.buffers);
                self.refused(token, handshake.peer().map(|peer| peer.role), &error, now);
            }
        }
        Ok(None)
    }

    fn decide(
        &self,
        hello: &Hello,
        admits_bulk: impl Fn(&Hello) -> Result<(), String>,
    ) -> Result<Verdict, ConnectionError> {
        let refused = |why: &str| ConnectionError::new(ConnectionFault::Refused, why);
        match hello.purpose {
            Purpose::Control if self.is_up(hello.node) => Ok(Verdict::Duplicate),
            Purpose::Control => Ok(Verdict::Welcome),
            Purpose::BulkSend | Purpose::BulkReceive => {
                let peer = self.peers.get(&hello.node).filter(|peer| peer.pass.is_in(hello));
                peer.ok_or_else(|| ConnectionError::new(ConnectionFault::Disconnected, NO_PEER))?;
                admits_bulk(hello).map(|()| Verdict::Welcome).map_err(|why| refused(&why))
            }
            Purpose::Local => Err(refused("shared memory cannot be passed on this connection")),
            Purpose::Process => Err(refused("this is a grid node, not a process of a deployment")),
        }
    }

    pub(super) fn refused(&mut self, token: usize, role: Option<Role>, error: &HandshakeError, now: Time) {
        let Some(contact) = self.forget(token) else { return };
        let Some(number) = contact.dial else {
            let Some(more) = self.refusals.admit(now) else { return };
            let mut line = warning("a connection was turned away").why(format!("{error}{more}"));
            // Usually the peer has just disconnected, and keeps dialling until it notices.
            if matches!(error, HandshakeError::Unacceptable(error) if error.fault == ConnectionFault::Disconnected) {
                line.level = Level::Debug;
            }
            return self.turned_away(match contact.channel.stream().get().get().peer_address() {
                Some(address) => line.address(address),
                None => line,
            });
        };
        let node = match role {
            Some(Role::Agent) => "agent",
            Some(Role::Server) => "server",
            Some(Role::Client) => "client",
            None => "node",
        };
        let (fault, why) = match error {
            HandshakeError::Malformed(what) => (ConnectionFault::NotANode, format!("{NOT_A_NODE} ({what})")),
            HandshakeError::Certificate(refusal) => (refusal.fault, error.to_string()),
            HandshakeError::Refused(refusal) | HandshakeError::Unacceptable(refusal) => {
                (refusal.fault, format!("the {node} there {error}"))
            }
        };
        self.attempt_failed(number, ConnectionError { fault, why });
    }

    fn established(&mut self, token: usize, mut hello: Hello, session: Session, verdict: Verdict, now: Time) {
        // It may have been revoked since the peer has shown it.
        if let Err(error) = self.credentials.check_revoked(&session.certificate) {
            return self.refused(token, Some(hello.role), &HandshakeError::Unacceptable(error), now);
        }
        let number = self.connections.get(&token).and_then(|contact| contact.dial);
        let attempts = number.map_or(0, |number| self.attempts_of(number).len());
        let contact = self.connections.get_mut(&token).expect("its handshake has just ended");
        let (number, direct) = (contact.dial, contact.dialled);
        if verdict == Verdict::Duplicate
            && let Some(number) = number
            && attempts > 1
        {
            // Another attempt of this dial may be the one that the peer has accepted.
            let _ = contact.channel.flush(&mut self.buffers);
            self.forget(token);
            let error = ConnectionError::new(ConnectionFault::Other, "another attempt is under way");
            return self.attempt_failed(number, error);
        }
        let dialled = number.and_then(|number| self.dials.end(number));
        direct.into_iter().for_each(|address| self.unreachable.remove(&address));
        number.into_iter().for_each(|number| self.end_attempts(number, Some((token, direct.is_none()))));
        let contact = self.connections.get_mut(&token).expect("only other attempts were closed");
        if verdict == Verdict::Duplicate {
            // Send the decider's final verdict; this node may be the decider.
            let _ = contact.channel.flush(&mut self.buffers);
            self.forget(token);
            let Some(Dial { address, began, deadline, .. }) = dialled else { return };
            match self.peers.get(&hello.node) {
                // Another connection to the same address was established while this dial was running, and that ended
                // the dial.
                Some(peer) if peer.since >= began && peer.address == address => {}
                Some(_) => self.connected_already(address, hello.node, &hello.name),
                None => {
                    self.check_at = self.check_at.min(deadline);
                    self.dials.shadow(hello.node, address, deadline);
                }
            }
            return;
        }
        // On a unix socket, TLS ends with the handshake.
        let flushed = contact.channel.flush(&mut self.buffers);
        if let Err(error) = flushed.and_then(|()| contact.channel.stream_mut().end_encryption()) {
            return self.lose(token, &error.to_string());
        }
        if let Some(way) = self.sites.1.link_to(&hello.host) {
            // The last handshake frame has bypassed the filters: the peer may use other connections at once.
            contact.channel.stream_mut().get_mut().delay(way.delays(0));
        }
        contact.stage = Stage::Up(hello.node);
        let Session { pass, version, certificate } = session;
        let origin = origin_of(&certificate, &hello.machine);
        contact.channel.outbound.set_wire_version(wire_version(version));
        self.open.half_open.remove(&token);
        if let Some(old) = self.peers.get(&hello.node).map(|peer| token_of(peer.link)) {
            self.lose(old, "it connected again");
        }
        if let Some(dial) = dialled {
            hello.address = dial.address;
        }
        let (peer, link) = (hello.node, Link { peer: hello.node, generation: token as u64 });
        let (role, name, address) = (hello.role, hello.name.clone(), hello.address.clone());
        let (known_name, known_address) = (name.clone(), address.clone());
        let known = Peer {
            link,
            since: now,
            address: known_address,
            pass: pass.clone(),
            version,
            name: known_name,
            role,
            certificate,
        };
        self.peers.insert(peer, known);
        self.news.push_back(ConnectionUpdate::Up(link, Box::new(hello), pass, version));
        let up = Input::PeerUp { peer, role, name: name.clone(), origin, address: address.clone(), version };
        self.news.push_back(ConnectionUpdate::Input(up));
        for shadowed in self.dials.take_shadowed(peer) {
            if shadowed != address {
                self.connected_already(shadowed, peer, &name);
            }
        }
    }
}
