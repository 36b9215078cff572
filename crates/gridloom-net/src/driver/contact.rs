//! One connection: its channel, and how far it is.

use std::io;
use std::time::Instant;

use gridloom_base::{NodeId, Time};
use gridloom_channel::{Buffers, Channel, Key, Kind};
use mio::{Interest, Registry, Token};

use crate::transport::handshake::Handshake;
use crate::transport::held::Held;
use crate::transport::stream::Stream;
use crate::transport::{Aside, REFUSAL_CHARS_MAX};

/// A connection and how far it is.
pub(super) struct Contact {
    pub(super) channel: Channel<Held<Stream>>,
    pub(super) stage: Stage,
    /// While it is in the handshake and no frame is being handled.
    pub(super) handshake: Option<Box<Handshake>>,
    /// The key of the frames that come, until the channel has it.
    pub(super) receives_with: Option<Key>,
    pub(super) dial: Option<u64>,
    pub(super) deadline: Time,
    /// Whether epoll tells when the socket takes more.
    pub(super) watches_writing: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The socket is not connected yet.
    Connecting,
    /// In the handshake.
    Shaking,
    /// A control connection to that peer.
    Up(NodeId),
}

impl Contact {
    /// Watches for room to write only while something waits for it: a peer that reads would wake this node each time.
    pub(super) fn watch(&mut self, registry: &Registry, token: usize) -> io::Result<()> {
        let blocked = self.channel.outbound.is_blocked() || self.channel.stream().is_blocked();
        if blocked == self.watches_writing {
            return Ok(());
        }
        self.watches_writing = blocked;
        let interests = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(self.channel.stream_mut(), Token(token), interests)
    }

    /// Writes what is due of that which a connection to another site has held back. Gives when to come again; `None` if nothing is held back,
    /// or the socket takes no more.
    pub(super) fn let_go(&mut self, now: Instant, buffers: &mut Buffers) -> io::Result<Option<Instant>> {
        loop {
            let due = self.channel.stream_mut().let_go(now)?;
            // What went has made room for what waits behind.
            let before = self.channel.outbound.waiting_bytes();
            self.channel.flush(buffers)?;
            if self.channel.outbound.waiting_bytes() == before {
                return Ok(due);
            }
        }
    }

    /// Says as its last word why the connection ends.
    pub(super) fn refuse(&mut self, why: &str, buffers: &mut Buffers) {
        let why = why.chars().take(REFUSAL_CHARS_MAX).collect();
        let queued = self.channel.outbound.message(Kind::Hello, &Aside::Refused { why });
        queued.expect("so few characters fit into a frame");
        self.say_all(buffers);
    }

    /// Writes what was said as far as the socket takes it: the connection ends either way.
    pub(super) fn say_all(&mut self, buffers: &mut Buffers) {
        let _ = self.channel.flush(buffers);
        self.channel.stream_mut().let_all_go();
    }

    /// Queues a frame of the handshake.
    pub(super) fn shake(&mut self, body: &[u8]) {
        self.channel.outbound.frame(Kind::Hello, body).expect("a handshake's frames are short");
    }

    pub(super) fn is_late(&self, now: Time) -> bool {
        !matches!(self.stage, Stage::Up(_)) && self.deadline <= now
    }
}
