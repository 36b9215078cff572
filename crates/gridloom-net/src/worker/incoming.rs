//! Messages from the server that a worker has received.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::channel::{Inbox, Received};
use super::protocol::ToWorker;

/// A message with its inline values.
type Message = (ToWorker, Vec<u8>);

/// Received messages.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) inbox: Inbox,
    /// Messages that arrived while a call waited for a reply.
    early: VecDeque<Message>,
}

impl Incoming {
    /// Returns the next message.
    pub(super) fn next(&mut self) -> io::Result<Option<Message>> {
        match self.early.pop_front() {
            Some(message) => Ok(Some(message)),
            None => Ok(self.inbox.next::<ToWorker>()?.map(|(message, inline)| (message, inline.to_vec()))),
        }
    }

    /// Waits for a reply to the running call, and keeps other messages. `take` returns a message that is not the reply.
    pub(super) fn await_reply<R>(
        &mut self,
        socket: BorrowedFd<'_>,
        mut take: impl FnMut(ToWorker, &[u8]) -> Result<R, ToWorker>,
    ) -> io::Result<R> {
        loop {
            while let Some((message, inline)) = self.inbox.next::<ToWorker>()? {
                match take(message, inline) {
                    Ok(reply) => return Ok(reply),
                    Err(other) => self.early.push_back((other, inline.to_vec())),
                }
            }
            if self.inbox.receive(socket, true)? == Received::Closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
    }
}
