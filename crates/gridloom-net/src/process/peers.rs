//! The channels of a process by peer, and the reasons why connections have ended.
//!
//! **Limit:** only the last [`FORMER_PEERS_MAX`] ended connections are remembered.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream;

use gridloom_base::limits::{FORMER_PEERS_MAX, SEND_QUEUE_BYTES_MAX};
use gridloom_channel::Channel;
use gridloom_process::PeerId;

use super::siblings::SiblingConnection;
use super::stream::{Rings, Stream};
use crate::transport::tls::TlsStream;

/// A connection after its handshake.
pub(super) struct NewConnection {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) name: String,
    /// Present if the peer is a process on this host.
    pub(super) rings: Option<Rings>,
}

#[derive(Default)]
pub(super) struct Peers {
    channels: BTreeMap<PeerId, Channel<Stream>>,
    /// Peers with rings in shared memory.
    local: Vec<PeerId>,
    /// Threads of this process, which have no channel.
    siblings: BTreeMap<PeerId, SiblingConnection>,
    /// Names of all peers, including some whose connections have ended.
    names: BTreeMap<PeerId, String>,
    /// Peers whose connections have ended, in that order.
    former: VecDeque<PeerId>,
    /// Why connections that were not closed here have ended.
    ends: BTreeMap<PeerId, String>,
    next: u64,
}

impl Peers {
    /// Adds a connection after its handshake.
    pub(super) fn join(&mut self, shaken: NewConnection) -> io::Result<PeerId> {
        let NewConnection { mut stream, name, rings } = shaken;
        stream.get().set_nonblocking(true)?;
        stream.set_nonblocking();
        let peer = self.name(name);
        let is_near = rings.is_some();
        let channel = Channel::new(Stream::new(stream, rings), SEND_QUEUE_BYTES_MAX as usize);
        if is_near {
            self.local.push(peer);
        }
        self.channels.insert(peer, channel);
        Ok(peer)
    }

    fn name(&mut self, name: String) -> PeerId {
        let peer = PeerId(self.next);
        self.next += 1;
        self.names.insert(peer, name);
        peer
    }

    /// Adds a connection to a thread of this process.
    pub(super) fn join_sibling(&mut self, name: String, handed: SiblingConnection) -> PeerId {
        let peer = self.name(name);
        self.siblings.insert(peer, handed);
        peer
    }

    pub(super) fn sibling(&self, peer: PeerId) -> Option<&SiblingConnection> {
        self.siblings.get(&peer)
    }

    /// Removes a sibling. Its name is remembered for a while.
    pub(super) fn remove_sibling(&mut self, peer: PeerId) -> Option<SiblingConnection> {
        let handed = self.siblings.remove(&peer)?;
        self.forget_later(peer);
        Some(handed)
    }

    pub(super) fn siblings(&self) -> Vec<PeerId> {
        self.siblings.keys().copied().collect()
    }

    /// Removes a connection and returns its socket. The name is remembered for a while.
    pub(super) fn remove(&mut self, peer: PeerId) -> Option<TcpStream> {
        let stream = self.channels.remove(&peer)?.into_stream().into_socket();
        self.local.retain(|near| *near != peer);
        self.forget_later(peer);
        Some(stream)
    }

    fn forget_later(&mut self, peer: PeerId) {
        self.former.push_back(peer);
        if self.former.len() > FORMER_PEERS_MAX
            && let Some(oldest) = self.former.pop_front()
        {
            self.names.remove(&oldest);
            self.ends.remove(&oldest);
        }
    }

    /// Records why a connection that was not closed here has ended.
    pub(super) fn ended(&mut self, peer: PeerId, why: String) {
        self.ends.insert(peer, why);
    }

    pub(super) fn channel(&mut self, peer: PeerId) -> Option<&mut Channel<Stream>> {
        self.channels.get_mut(&peer)
    }

    /// Returns the peers with open connections, and their channels.
    pub(super) fn channels(&self) -> impl Iterator<Item = (PeerId, &Channel<Stream>)> {
        self.channels.iter().map(|(peer, channel)| (*peer, channel))
    }

    /// Returns the number of peers with rings.
    pub(super) fn local_count(&self) -> usize {
        self.local.len()
    }

    /// Reports whether all peers have rings.
    pub(super) fn are_all_local(&self) -> bool {
        self.local.len() == self.channels.len()
    }

    /// Returns one of the peers that have rings.
    pub(super) fn local(&mut self, number: usize) -> Option<(PeerId, &mut Channel<Stream>)> {
        let peer = *self.local.get(number)?;
        Some((peer, self.channels.get_mut(&peer)?))
    }

    pub(super) fn is_up(&self, peer: PeerId) -> bool {
        self.channels.contains_key(&peer) || self.siblings.contains_key(&peer)
    }

    /// Returns why a connection has ended.
    pub(super) fn why_closed(&self, peer: PeerId) -> String {
        self.ends.get(&peer).cloned().unwrap_or_else(|| "it was closed here".into())
    }

    /// Returns the peer's name.
    pub(super) fn describe(&self, peer: PeerId) -> String {
        self.names.get(&peer).cloned().unwrap_or_else(|| "nobody".into())
    }
}
