//! Nodes that are registered with a relay.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use gridloom_base::NodeId;
use gridloom_base::address::RelayTarget;
use gridloom_keys::Certificate;
use mio::net::TcpStream;

use super::protocol::{self, Reply, Request};
use super::{MEMBERS_MAX, SILENCE_MAX};
use crate::transport::tls::TlsStream;

/// Maximum number of reads of a ready socket: pings come at intervals.
const READS_MAX: u32 = 16;
/// Maximum number of bytes that wait for a node to read them.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// A registered node.
pub(super) struct Member {
    stream: TlsStream<TcpStream>,
    pub(super) node: NodeId,
    pub(super) is_agent: bool,
    pub(super) certificate: Certificate,
    received: Vec<u8>,
    waiting: VecDeque<u8>,
    /// Revocations that the relay has not taken yet, as lines.
    revocations: String,
    last_sign: Instant,
}

impl Member {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        (node, is_agent): (NodeId, bool),
        certificate: Certificate,
        now: Instant,
    ) -> Member {
        let (received, waiting, revocations) = Default::default();
        Member { stream, node, is_agent, certificate, received, waiting, revocations, last_sign: now }
    }

    pub(super) fn socket_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut()
    }

    pub(super) fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_sign) > SILENCE_MAX
    }

    /// Sends a message as soon as the socket accepts it.
    ///
    /// # Errors
    /// If the connection fails, or the node does not read.
    pub(super) fn send(&mut self, reply: &Reply) -> io::Result<()> {
        self.waiting.extend(protocol::encoded(reply));
        if self.waiting.len() > WAITING_BYTES_MAX {
            return Err(io::Error::other("it does not read its messages"));
        }
        self.write_waiting()
    }

    /// Removes and returns the revocations that the node has sent.
    pub(super) fn take_revocations(&mut self) -> String {
        std::mem::take(&mut self.revocations)
    }

    /// Handles a ready socket.
    ///
    /// # Errors
    /// If the connection ends, or the node breaks the protocol: it has little to say, so one that floods the relay loses its
    /// registration.
    pub(super) fn on_ready(&mut self, now: Instant) -> io::Result<()> {
        self.write_waiting()?;
        let mut chunk = [0; 4096];
        for _ in 0..READS_MAX {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.last_sign = now;
                    self.received.extend_from_slice(&chunk[..length]);
                    self.handle_received()?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::InvalidData, "it sends without a pause"))
    }

    fn handle_received(&mut self) -> io::Result<()> {
        while let Some(request) = protocol::take::<Request>(&mut self.received)? {
            match request {
                Request::Ping => self.send(&Reply::Pong)?,
                // Their number is limited by that of the reads.
                Request::Revoked { line } => {
                    self.revocations.push_str(&line);
                    self.revocations.push('\n');
                }
                other => {
                    let why = format!("a registered node sent an unexpected {other:?}");
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
            }
        }
        Ok(())
    }

    fn write_waiting(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.stream.write(self.waiting.as_slices().0) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

/// All registered nodes, by the token of their connection.
#[derive(Default)]
pub(super) struct Members {
    all: BTreeMap<usize, Member>,
    by_node: BTreeMap<NodeId, usize>,
    /// Agents, the last registered one last.
    agents: Vec<usize>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= MEMBERS_MAX
    }

    pub(super) fn get_mut(&mut self, token: usize) -> Option<&mut Member> {
        self.all.get_mut(&token)
    }

    /// Returns the token of the node to which a path leads.
    pub(super) fn find(&self, target: &RelayTarget) -> Option<usize> {
        match target {
            RelayTarget::Agent => self.agents.last().copied(),
            RelayTarget::Node { node, .. } => self.by_node.get(node).copied(),
        }
    }

    /// Adds a node. Returns its earlier registration, which ends.
    pub(super) fn add(&mut self, token: usize, member: Member) -> Option<Member> {
        let before = self.by_node.get(&member.node).copied().and_then(|before| self.remove(before));
        self.by_node.insert(member.node, token);
        if member.is_agent {
            self.agents.push(token);
        }
        self.all.insert(token, member);
        before
    }

    pub(super) fn remove(&mut self, token: usize) -> Option<Member> {
        let member = self.all.remove(&token)?;
        if self.by_node.get(&member.node) == Some(&token) {
            self.by_node.remove(&member.node);
        }
        self.agents.retain(|agent| *agent != token);
        Some(member)
    }

    /// Returns the tokens of members that a check finds to be gone, with the reasons.
    pub(super) fn gone(&self, check: impl Fn(&Member) -> Result<(), String>) -> Vec<(usize, String)> {
        self.all.iter().filter_map(|(token, member)| Some((*token, check(member).err()?))).collect()
    }
}
