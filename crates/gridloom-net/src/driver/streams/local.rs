//! Peers on the same host, with which memory is shared.

use std::os::unix::net::UnixStream;
use std::thread;

use gridloom_base::NodeId;
use gridloom_channel::WireVersion;

use super::Streams;
use super::peer::{Incoming, Peer, accept_local_handshake};
use crate::log::warning;
use crate::threads::STACK_BYTES;
use crate::transport::bulk::Receiver;
use crate::transport::emulated_sites::share_memory;
use crate::transport::handshake::{Hello, Purpose};
use crate::transport::notice::{Link, Notice};
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
        let (receiver, credentials, own) = (self.receiver(nobody, 0), self.credentials.clone(), self.own.clone());
        let shake = move || {
            let admitted = accept_local_handshake(&mut stream, receiver.inbox.clone(), credentials, own);
            receiver.inbox.post(Notice::LocalHandshakeEnded);
            if let Ok((link, wire_version, number)) = admitted {
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

    /// Returns the link to a peer that may pass memory on this stream, and the wire version of its headers.
    pub(super) fn admit_local(&mut self, hello: &Hello, stream: UnixStream) -> Option<(Link, WireVersion)> {
        let shares = share_memory(&self.own.host, &hello.host) && hello.purpose == Purpose::Local;
        let peer = self.peers.get_mut(&hello.node).filter(|peer| shares && peer.may_open(hello.stream))?;
        peer.incoming.insert(hello.stream, Incoming { closer: Some(Closer::Unix(stream)), acknowledged: 0 });
        Some((peer.link, peer.wire_version))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gridloom_core::node::Role;
    use gridloom_core::node::version::VERSIONS;

    use super::*;
    use crate::identity::{Credentials, Secret};
    use crate::segment::Pool;
    use crate::store::Store;
    use crate::transport::handshake::Handshake;
    use crate::transport::notice::Inbox;
    use crate::transport::stripes::Stripe;

    fn hello(of: &Credentials) -> Hello {
        Hello {
            purpose: Purpose::Local,
            node: of.key.id(),
            key: of.key.public(),
            role: Role::Server,
            name: String::new(),
            address: String::new(),
            host: "here".into(),
            stream: 1,
            stripe: Stripe::ONE,
            nonce: [0; 32],
            pass: None,
            ticket: None,
        }
    }

    #[test]
    fn a_peer_may_grant_memory_once_its_control_connection_is_up() {
        let credentials = || Credentials::new(Secret::from_bytes(b"test")).unwrap();
        let (of_own, of_peer) = (credentials(), credentials());
        let (own, peer) = (hello(&of_own), hello(&of_peer));
        let (_, first) = Handshake::dial(of_peer, peer.clone()).unwrap();
        let mut acceptor = Handshake::accept(of_own.clone(), own.clone()).unwrap();
        acceptor.on_frame(&first, &mut Vec::new(), |_| unreachable!("no proof has come")).unwrap();
        let pass = acceptor.take_session().unwrap().pass;
        let poll = mio::Poll::new().unwrap();
        let inbox = Arc::new(Inbox::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap()));
        let store = Arc::new(Store::new(Pool::new(0)));
        let mut streams = Streams::new(own, of_own, inbox, store, (9, None), Arc::default());
        let link = Link { peer: peer.node, generation: 1 };
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(streams.admit_local(&peer, here.try_clone().unwrap()).is_none(), "it is no peer yet");
        streams.peer_up(link, peer.clone(), pass, VERSIONS.1);
        assert_eq!(streams.admit_local(&peer, here), Some((link, WireVersion::CURRENT)));
    }
}
