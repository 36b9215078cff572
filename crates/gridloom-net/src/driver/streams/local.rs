//! Peers on the same host, with which memory is shared.

use std::os::unix::net::UnixStream;
use std::thread;

use gridloom_base::NodeId;

use super::Streams;
use super::peer::{Incoming, Peer, accept_local_handshake};
use crate::log::warning;
use crate::threads::STACK_BYTES;
use crate::transport::bulk::Receiver;
use crate::transport::emulated_sites::share_memory;
use crate::transport::handshake::{LocalHello, Purpose};
use crate::transport::notice::{Link, LocalAdmission, Notice};
use crate::transport::shared::Closer;
use crate::transport::{LOCAL_HANDSHAKES_MAX, local};

impl Streams {
    /// Reports whether a peer is on this host and accepts shared memory.
    pub(in crate::driver) fn shares_memory_with(&self, peer: NodeId) -> bool {
        let is_here = |peer: &Peer| share_memory(&self.own.host, &peer.hello.host);
        self.peers.get(&peer).is_some_and(is_here)
    }

    pub(in crate::driver) fn accept_local(&mut self) {
        loop {
            let Some((listener, _)) = &self.listener else { return };
            match local::accept(listener) {
                Ok(None) => return,
                // A node that is turned away sends over TCP instead.
                Ok(Some(_)) if self.handshakes >= LOCAL_HANDSHAKES_MAX => {}
                Ok(Some(stream)) => self.start_local_handshake(stream),
                // Usually the process is out of descriptors. The dialling node tries again, which wakes this listener again.
                Err(error) => return self.log(warning("a local connection could not be accepted").why(error)),
            }
        }
    }

    fn start_local_handshake(&mut self, mut stream: UnixStream) {
        let nobody = Link { peer: self.own.node, generation: 0 };
        let receiver = self.receiver(nobody, 0);
        let shake = move || {
            let admitted = accept_local_handshake(&mut stream, &receiver.inbox);
            receiver.inbox.post(Notice::LocalHandshakeEnded);
            if let Ok((LocalAdmission { link, wire_version, .. }, number)) = admitted {
                Receiver { link, wire_version, stream: number, ..receiver }.run_local(stream);
            }
        };
        self.handshakes += 1;
        let thread = thread::Builder::new().name("from local".into()).stack_size(STACK_BYTES);
        if let Err(error) = self.inbox.threads.spawn(thread, shake) {
            self.handshakes -= 1;
            self.log(warning("cannot start a thread for a local connection").why(error));
        }
    }

    /// Admits a peer that may pass memory on this stream.
    pub(super) fn admit_local(&mut self, hello: LocalHello, stream: UnixStream) -> Option<LocalAdmission> {
        let LocalHello { node, stream: number, proof } = hello;
        let own_host = &self.own.host;
        let may = |peer: &&mut Peer| {
            let is_peer = peer.pass.is_proof(proof, node, Purpose::Local, number);
            is_peer && share_memory(own_host, &peer.hello.host) && peer.may_open(number)
        };
        let peer = self.peers.get_mut(&node).filter(may)?;
        peer.incoming.insert(number, Incoming { closer: Some(Closer::Unix(stream)), acknowledged: 0 });
        let proof = peer.pass.of(self.own.node, Purpose::Local, number);
        Some(LocalAdmission { link: peer.link, wire_version: peer.wire_version, proof })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gridloom_channel::WireVersion;
    use gridloom_core::node::Role;
    use gridloom_core::node::version::VERSIONS;

    use super::*;
    use crate::identity::Credentials;
    use crate::identity::keys::tests::keys;
    use crate::segment::Pool;
    use crate::store::Store;
    use crate::transport::handshake::{Hello, Pass};
    use crate::transport::notice::Inbox;
    use crate::transport::stripes::Stripe;

    #[test]
    fn a_peer_may_grant_memory_once_its_control_connection_is_up() {
        let credentials = Credentials::new(keys(gridloom_keys::Role::Server)).unwrap();
        let hello = |node: NodeId| Hello {
            purpose: Purpose::Control,
            node,
            number: [0; 16],
            role: Role::Server,
            name: String::new(),
            address: String::new(),
            host: "here".into(),
            stream: 0,
            stripe: Stripe::ONE,
            nonce: [0; 32],
            pass: None,
            machine: String::new(),
        };
        let (own, peer) = (hello(credentials.id()), hello(NodeId(7)));
        let pass = Pass::of_bytes([1; 32]);
        let poll = mio::Poll::new().unwrap();
        let inbox = Arc::new(Inbox::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap()));
        let store = Arc::new(Store::new(Pool::new(0)));
        let mut streams = Streams::new(own.clone(), credentials, inbox, store, (9, None), Default::default());
        let link = Link { peer: peer.node, generation: 1 };
        let (here, _there) = UnixStream::pair().unwrap();
        let admit = |streams: &mut Streams, proof| {
            let first = LocalHello { node: peer.node, stream: 1, proof };
            streams.admit_local(first, here.try_clone().unwrap())
        };
        let proof = pass.of(peer.node, Purpose::Local, 1);
        assert!(admit(&mut streams, proof).is_none(), "it is no peer yet");
        streams.peer_up(link, peer.clone(), pass.clone(), VERSIONS.1);
        assert!(admit(&mut streams, [0; 32]).is_none(), "it does not know the pass");
        let proof_of_own = pass.of(own.node, Purpose::Local, 1);
        let admission = LocalAdmission { link, wire_version: WireVersion::CURRENT, proof: proof_of_own };
        assert_eq!(admit(&mut streams, proof), Some(admission));
    }
}
