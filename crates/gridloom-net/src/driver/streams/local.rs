//! Peers of this host, which pass memory.

use std::os::unix::net::UnixStream;
use std::thread;

use gridloom_base::NodeId;

use super::Streams;
use super::peer::{Incoming, Peer, shake_local};
use crate::log::warning;
use crate::transport::apart::share_memory;
use crate::transport::bulk::Receiver;
use crate::transport::handshake::{Hello, Purpose};
use crate::transport::notice::{Link, Notice};
use crate::transport::outgoing::STACK_BYTES;
use crate::transport::shared::Closer;
use crate::transport::{LOCAL_HANDSHAKES_MAX, local};

impl Streams {
    /// Whether a peer is on this host and takes its memory.
    pub(in crate::driver) fn shares_memory_with(&self, peer: NodeId) -> bool {
        let is_here = |peer: &Peer| share_memory(&self.own.host, &peer.hello.host);
        self.peers.get(&peer).is_some_and(is_here)
    }

    pub(in crate::driver) fn accept_local(&mut self) {
        loop {
            let Some((listener, _)) = &self.listener else { return };
            match local::accept(listener) {
                Ok(None) => return,
                // A node that is turned away sends over TCP.
                Ok(Some(_)) if self.shaking >= LOCAL_HANDSHAKES_MAX => {}
                Ok(Some(stream)) => self.shake_local(stream),
                // Out of descriptors, mostly: the dialler tries again, which wakes this again.
                Err(error) => return self.log(warning("a local connection could not be accepted").why(error)),
            }
        }
    }

    fn shake_local(&mut self, mut stream: UnixStream) {
        let nobody = Link { peer: self.own.node, generation: 0 };
        let (receiver, credentials, own) = (self.receiver(nobody, 0), self.credentials.clone(), self.own.clone());
        let shake = move || {
            let admitted = shake_local(&mut stream, receiver.inbox.clone(), credentials, own);
            receiver.inbox.post(Notice::LocalShaken);
            if let Ok((link, number)) = admitted {
                Receiver { link, stream: number, ..receiver }.run_local(stream);
            }
        };
        self.shaking += 1;
        let thread = thread::Builder::new().name("from local".into()).stack_size(STACK_BYTES);
        if let Err(error) = self.inbox.threads.spawn(thread, shake) {
            self.shaking -= 1;
            self.log(warning("no thread for a local connection").why(error));
        }
    }

    pub(super) fn admit_local(&mut self, hello: &Hello, stream: UnixStream) -> Option<Link> {
        let shares = share_memory(&self.own.host, &hello.host) && hello.purpose == Purpose::Local;
        let peer = self.peers.get_mut(&hello.node).filter(|peer| shares && peer.may_open(hello.stream))?;
        peer.incoming.insert(hello.stream, Incoming { closer: Some(Closer::Unix(stream)), told: 0 });
        Some(peer.link)
    }
}
