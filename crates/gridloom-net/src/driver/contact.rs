//! One connection: its channel and its stage.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use gridloom_base::dial::ConnectionFault;
use gridloom_base::{NodeId, Time};
use gridloom_channel::{Buffers, Channel, Kind};
use mio::{Interest, Registry, Token};

use crate::transport::delayed::DelayedStream;
use crate::transport::handshake::Handshake;
use crate::transport::stream::Stream;
use crate::transport::tls::TlsStream;
use crate::transport::{REFUSAL_CHARS_MAX, WorldMessage};

/// A connection and its stage.
pub(super) struct Connection {
    pub(super) channel: Channel<TlsStream<DelayedStream<Stream>>>,
    pub(super) stage: Stage,
    /// Present during the handshake, except while a frame is being handled.
    pub(super) handshake: Option<Box<Handshake>>,
    pub(super) dial: Option<u64>,
    /// The direct address that was dialled.
    pub(super) dialled: Option<SocketAddr>,
    /// The relay through which the peer has opened it.
    pub(super) relay: Option<String>,
    pub(super) deadline: Time,
    /// Why the socket accepts no more bytes. Bytes that were received before are read first.
    pub(super) broken: Option<String>,
    /// True if epoll reports when the socket can be written.
    pub(super) watches_writing: bool,
}

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The socket is not connected yet.
    Connecting,
    /// The handshake is running.
    Handshaking,
    /// Control connection to this peer.
    Up(NodeId),
}

impl Connection {
    /// Watches for writability only while data wait for it: otherwise each read by the peer would wake this node.
    pub(super) fn watch(&mut self, registry: &Registry, token: usize) -> io::Result<()> {
        let blocked = self.channel.outbound.is_blocked() || self.channel.stream().get().is_blocked();
        if blocked == self.watches_writing {
            return Ok(());
        }
        self.watches_writing = blocked;
        let interests = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(self.channel.stream_mut().get_mut(), Token(token), interests)
    }

    /// Writes the due part of the data that a connection to another site delays. Returns the time of the next call, or
    /// `None` if nothing is delayed or the socket accepts no more.
    pub(super) fn write_due(&mut self, now: Instant, buffers: &mut Buffers) -> io::Result<Option<Instant>> {
        loop {
            let due = self.channel.stream_mut().get_mut().write_due(now)?;
            // The bytes written have made room for those that wait after them.
            let before = self.channel.outbound.waiting_bytes();
            self.channel.flush(buffers)?;
            if self.channel.outbound.waiting_bytes() == before {
                return Ok(due);
            }
        }
    }

    /// Sends the reason why the connection ends, as the last frame.
    pub(super) fn refuse(&mut self, fault: ConnectionFault, why: &str, buffers: &mut Buffers) {
        let why = why.chars().take(REFUSAL_CHARS_MAX).collect();
        let queued = self.channel.outbound.message(Kind::Hello, &WorldMessage::Refused { fault, why });
        queued.expect("so few characters fit into a frame");
        self.flush_all(buffers);
    }

    /// Writes all queued frames as far as the socket accepts them: the connection ends either way.
    pub(super) fn flush_all(&mut self, buffers: &mut Buffers) {
        let _ = self.channel.flush(buffers);
        self.channel.stream_mut().get_mut().write_all_now();
    }

    /// Queues a frame of the handshake.
    pub(super) fn queue_handshake_frame(&mut self, body: &[u8]) {
        self.channel.outbound.frame(Kind::Hello, body).expect("a handshake's frames are short");
    }

    pub(super) fn is_late(&self, now: Time) -> bool {
        !matches!(self.stage, Stage::Up(_)) && self.deadline <= now
    }
}
