//! Passes messages between a process and its siblings, which are threads of the same operating-system process.

use std::io;

use gridloom_base::time::MILLISECOND_NS;
use gridloom_process::{Incoming, PeerId, ProcessError, ProcessMessage, ProcessWorld};

use super::siblings::{SiblingConnection, SiblingMessage, Siblings};
use super::world::{NetProcess, ProcessConfig};
use crate::identity::Keys;

impl NetProcess {
    /// Creates processes that run as threads of this one.
    ///
    /// # Errors
    /// As [`NetProcess::new`].
    pub fn new_siblings(configs: Vec<ProcessConfig>, keys: &Keys) -> io::Result<Vec<NetProcess>> {
        let made = configs.into_iter().map(|config| NetProcess::new(config, keys.clone()));
        let mut all = made.collect::<io::Result<Vec<NetProcess>>>()?;
        let own = |one: &NetProcess| (one.spec().clone(), one.acceptor.wake_pipe.clone());
        let siblings = Siblings::of(all.iter().map(own).collect());
        all.iter_mut().zip(siblings).for_each(|(one, siblings)| one.siblings = siblings);
        Ok(all)
    }

    /// Opens a connection to the sibling that listens there.
    pub(super) fn connect_sibling(&mut self, host: &str, port: u16) -> Option<PeerId> {
        let to = self.siblings.find(host, port)?;
        let name = format!("{}@{}", self.spec().function, self.spec().host);
        let handed = self.siblings.open(to, name)?;
        let peer = format!("{}@{host}:{port}", self.siblings.spec(to).function);
        Some(self.join_sibling(peer, handed))
    }

    fn join_sibling(&mut self, name: String, handed: SiblingConnection) -> PeerId {
        let connection = handed.connection;
        let peer = self.peers.join_sibling(name, handed);
        self.siblings.peers.insert(connection, peer);
        peer
    }

    /// Takes messages from siblings. Returns true if there were any.
    pub(super) fn take_sibling_messages(&mut self) -> bool {
        let came = self.siblings.take();
        let any = !came.is_empty();
        for (connection, what) in came {
            match (what, self.siblings.peers.get(&connection).copied()) {
                (SiblingMessage::Opens { by, name, under_way }, _) => {
                    _ = self.join_sibling(name, SiblingConnection::opened(connection, by, under_way));
                }
                (SiblingMessage::Message(letter), Some(from)) => {
                    if let Some(handed) = self.peers.sibling(from) {
                        handed.count_received(letter.payload.len() as u64);
                    }
                    self.inbox.push_back(Incoming::Message { from, letter });
                }
                (SiblingMessage::Closes, Some(peer)) => {
                    self.siblings.peers.remove(&connection);
                    self.peers.remove_sibling(peer);
                    let why = format!("{} has closed it", self.describe(peer));
                    self.ended(peer, why);
                }
                // The connection was closed here.
                (SiblingMessage::Message(_) | SiblingMessage::Closes, None) => {}
            }
        }
        any
    }

    /// Reports whether a message to this sibling must be offered again later.
    pub(super) fn is_full_sibling(&self, peer: PeerId) -> bool {
        self.peers.sibling(peer).is_some_and(SiblingConnection::is_full)
    }

    /// Passes a message to this sibling.
    pub(super) fn send_to_sibling(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        let Some(handed) = self.peers.sibling(peer) else { return Err(self.closed(peer)) };
        let bytes = letter.payload.len() as u64;
        handed.count_sent(bytes);
        self.siblings.put(handed, SiblingMessage::Message(letter));
        self.spin.note_sent(bytes);
        Ok(())
    }

    /// Like [`NetProcess::send_to_sibling`], once there is room.
    pub(super) fn send_to_sibling_blocking(
        &mut self,
        peer: PeerId,
        letter: ProcessMessage,
    ) -> Result<(), ProcessError> {
        while self.is_full_sibling(peer) {
            self.wait(Some(self.now() + MILLISECOND_NS));
        }
        self.send_to_sibling(peer, letter)
    }

    /// Closes the connection to a sibling; messages already put there still arrive.
    pub(super) fn close_sibling(&mut self, peer: PeerId) {
        if let Some(handed) = self.peers.remove_sibling(peer) {
            self.siblings.peers.remove(&handed.connection);
            self.siblings.put(&handed, SiblingMessage::Closes);
        }
    }
}
