//! The channels of a process by peer, and why those that have ended did.
//!
//! **Limit:** [`FORMER_PEERS_MAX`] ended connections are remembered, the latest ones.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream;

use gridloom_base::limits::{FORMER_PEERS_MAX, SEND_BYTES_MAX};
use gridloom_channel::{Channel, Keys};
use gridloom_process::PeerId;

/// The peers.
#[derive(Default)]
pub(super) struct Peers {
    channels: BTreeMap<PeerId, Channel<TcpStream>>,
    /// Their names; also of some peers with connections that have ended.
    names: BTreeMap<PeerId, String>,
    /// Those, in the order of their ends.
    former: VecDeque<PeerId>,
    /// Why those that were not closed here have ended.
    ends: BTreeMap<PeerId, String>,
    next: u64,
}

impl Peers {
    /// Adds a connection after its handshake.
    pub(super) fn join(&mut self, stream: TcpStream, name: String, keys: Keys) -> io::Result<PeerId> {
        stream.set_nonblocking(true)?;
        let peer = PeerId(self.next);
        self.next += 1;
        self.names.insert(peer, name);
        let mut channel = Channel::new(stream, SEND_BYTES_MAX as usize);
        channel.authenticate(keys);
        self.channels.insert(peer, channel);
        Ok(peer)
    }

    /// Removes a connection: its socket. The name is remembered for a while.
    pub(super) fn part(&mut self, peer: PeerId) -> Option<TcpStream> {
        let stream = self.channels.remove(&peer)?.into_stream();
        self.former.push_back(peer);
        if self.former.len() > FORMER_PEERS_MAX
            && let Some(oldest) = self.former.pop_front()
        {
            self.names.remove(&oldest);
            self.ends.remove(&oldest);
        }
        Some(stream)
    }

    /// Notes why a connection has ended that was not closed here.
    pub(super) fn ended(&mut self, peer: PeerId, why: String) {
        self.ends.insert(peer, why);
    }

    pub(super) fn channel(&mut self, peer: PeerId) -> Option<&mut Channel<TcpStream>> {
        self.channels.get_mut(&peer)
    }

    /// Peers with connections that stand, with their channels.
    pub(super) fn channels(&self) -> impl Iterator<Item = (PeerId, &Channel<TcpStream>)> {
        self.channels.iter().map(|(peer, channel)| (*peer, channel))
    }

    pub(super) fn is_up(&self, peer: PeerId) -> bool {
        self.channels.contains_key(&peer)
    }

    /// Why a connection has ended, in words.
    pub(super) fn why_closed(&self, peer: PeerId) -> String {
        self.ends.get(&peer).cloned().unwrap_or_else(|| "it was closed here".into())
    }

    /// The peer, in words.
    pub(super) fn describe(&self, peer: PeerId) -> String {
        self.names.get(&peer).cloned().unwrap_or_else(|| "nobody".into())
    }
}
