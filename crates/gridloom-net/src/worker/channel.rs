//! Frames and file descriptors on the socket between a server and one of its workers.
//!
//! ```text
//!  0        4        8
//!  +--------+--------+----------------+---------------- - -
//!  | length | header | header         | bytes of the inline values,
//!  | of all | length | (postcard)     | one after the other
//!  +--------+--------+----------------+---------------- - -
//!   u32 LE   u32 LE
//! ```
//! Descriptors are sent with or before the first byte of the frame that needs them, in order.
//!
//! **Guarantee:** a broken socket makes neither end panic; it gets an error and gives up the worker.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gridloom_base::limits::{EAGER_BYTES_MAX, FRAME_BYTES_MAX};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::Location;
use crate::segment::{Mapping, sealed_file};

/// Minimum buffer space offered to a read: a whole frame with one inline value of the largest size.
const READ_BYTES_MIN: usize = 64 << 10;
/// Maximum number of descriptors in one message; the kernel's own limit is 253.
const FDS_PER_MESSAGE: usize = 128;
/// Bytes of the two length fields before the header.
const LENGTHS_BYTES: usize = 8;

/// The outcome of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Bytes were received.
    Some,
    /// Nothing has arrived yet.
    Nothing,
    /// The other end has closed the socket.
    Closed,
}

/// The receiving direction.
#[derive(Default)]
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    /// Bytes before this index are consumed.
    start: usize,
    /// Bytes from this index on are not received yet.
    end: usize,
    fds: VecDeque<OwnedFd>,
}

impl Inbox {
    /// Reads once. If `wait` is set, first waits until there is something to read.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<Received> {
        self.make_room();
        if wait {
            // Not waiting in recvmsg: a thread that sleeps there is woken needlessly when the other side reads what
            // was written to it.
            await_readable(socket)?;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = loop {
            let room = &mut [IoSliceMut::new(&mut self.buffer[self.end..])];
            match rustix::net::recvmsg(socket, room, &mut control, flags) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::Closed),
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            // The descriptors that arrived cannot be matched to their frames any more.
            let why = "this process could not receive all descriptors; raise its limit (ulimit -n)";
            return Err(io::Error::other(why));
        }
        self.end += received.bytes;
        Ok(if received.bytes == 0 { Received::Closed } else { Received::Some })
    }

    /// Returns the next complete frame: its header and the bytes of its inline values.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, &[u8])>> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((total, header)) = lengths(bytes)? else { return Ok(None) };
        if bytes.len() < total {
            return Ok(None);
        }
        let frame = self.start + LENGTHS_BYTES..self.start + total;
        self.start += total;
        let (header, inline) = self.buffer[frame].split_at(header);
        let header = postcard::from_bytes(header).map_err(|error| invalid(&error.to_string()))?;
        Ok(Some((header, inline)))
    }

    /// Takes the descriptor that the current frame announces.
    pub(crate) fn take_fd(&mut self) -> io::Result<OwnedFd> {
        self.fds.pop_front().ok_or_else(|| invalid("an announced descriptor was not received"))
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let pending = match lengths(&self.buffer[self.start..self.end]) {
            Ok(Some((total, _))) => total,
            Ok(None) | Err(_) => 0,
        };
        let wanted = pending.max(self.end - self.start + READ_BYTES_MIN);
        if self.buffer.len() - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
    }
}

/// Waits until there is something to receive, or the other end has closed the socket.
fn await_readable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut watched = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut watched, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the length of the whole frame at the start of `bytes`, and that of its header.
fn lengths(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some((lengths, _)) = bytes.split_first_chunk::<LENGTHS_BYTES>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h] = *lengths;
    let (total, header) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize);
    if !(LENGTHS_BYTES..=FRAME_BYTES_MAX).contains(&total) || header > total - LENGTHS_BYTES {
        return Err(invalid("frame with invalid lengths"));
    }
    Ok(Some((total, header)))
}

/// The sending direction.
#[derive(Default)]
pub(crate) struct Outbox {
    buffer: Vec<u8>,
    sent: usize,
    fds: VecDeque<OwnedFd>,
}

impl Outbox {
    /// Reports whether everything was sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Appends a descriptor for the frame that is pushed next.
    pub(crate) fn push_fd(&mut self, fd: OwnedFd) {
        self.fds.push_back(fd);
    }

    /// Appends a frame.
    pub(crate) fn push<'a, T: Serialize>(
        &mut self,
        header: &T,
        inline: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let start = self.buffer.len();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(&[0; LENGTHS_BYTES]);
        self.buffer = postcard::to_extend(header, buffer).map_err(|error| invalid(&error.to_string()))?;
        let header = self.buffer.len() - start - LENGTHS_BYTES;
        inline.for_each(|bytes| self.buffer.extend_from_slice(bytes));
        let total = self.buffer.len() - start;
        if total > FRAME_BYTES_MAX {
            self.buffer.truncate(start);
            return Err(invalid(&format!("frame of {total} bytes exceeds the limit of {FRAME_BYTES_MAX}")));
        }
        self.buffer[start..start + 4].copy_from_slice(&(total as u32).to_le_bytes());
        self.buffer[start + 4..start + LENGTHS_BYTES].copy_from_slice(&(header as u32).to_le_bytes());
        Ok(())
    }

    /// Prepares bytes for the frame that is pushed next. Returns their location, and the bytes if they are sent inline.
    pub(crate) fn push_bytes<'a>(&mut self, bytes: &'a [u8]) -> io::Result<(Location, Option<&'a [u8]>)> {
        let size_bytes = bytes.len() as u64;
        if size_bytes <= EAGER_BYTES_MAX {
            return Ok((Location::Inline { size_bytes: size_bytes as u32 }, Some(bytes)));
        }
        self.push_fd(file_of(bytes)?);
        Ok((Location::File { size_bytes }, None))
    }

    /// Sends everything if `wait` is set, otherwise as much as the socket accepts. Returns true if everything was sent.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<bool> {
        let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
        while self.sent < self.buffer.len() {
            let bytes = &self.buffer[self.sent..];
            let result = if self.fds.is_empty() {
                rustix::net::send(socket, bytes, flags)
            } else {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let fds: Vec<BorrowedFd<'_>> = self.fds.iter().take(FDS_PER_MESSAGE).map(AsFd::as_fd).collect();
                let all = fds.len() == self.fds.len();
                control.push(SendAncillaryMessage::ScmRights(&fds));
                // If more descriptors follow, send only one byte with these, so that no frame overtakes its own descriptors.
                let bytes = if all { bytes } else { &bytes[..1] };
                rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
            };
            match result {
                Ok(count) => {
                    self.sent += count;
                    self.fds.drain(..self.fds.len().min(FDS_PER_MESSAGE));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        self.buffer.clear();
        self.sent = 0;
        Ok(true)
    }
}

/// Returns a memory file with these bytes.
pub(super) fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = sealed_file((bytes.len() as u64).next_multiple_of(4096))?;
    Mapping::read_write(fd.as_fd(), bytes.len() as u64)?.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    Ok(fd)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn frames_and_descriptors_arrive_in_order() {
        let (left, right) = pair();
        let mut outbox = Outbox::default();
        for number in 0..300u32 {
            outbox.push_fd(sealed_file(4096 * u64::from(number + 1)).unwrap());
            outbox.push(&number, [&[number as u8; 5][..], &[1, 2]].into_iter()).unwrap();
        }
        let mut inbox = Inbox::default();
        let mut next = 0;
        while next < 300 {
            outbox.send(left.as_fd(), false).unwrap();
            inbox.receive(right.as_fd(), true).unwrap();
            while let Some((number, inline)) = inbox.next::<u32>().unwrap() {
                assert_eq!(
                    (number, inline),
                    (next, &[next as u8, next as u8, next as u8, next as u8, next as u8, 1, 2][..])
                );
                let size = rustix::fs::fstat(inbox.take_fd().unwrap()).unwrap().st_size;
                assert_eq!(size, 4096 * i64::from(next + 1));
                next += 1;
            }
        }
        drop(left);
        assert_eq!(inbox.receive(right.as_fd(), true).unwrap(), Received::Closed);
    }

    #[test]
    fn a_frame_larger_than_the_socket_arrives_in_parts() {
        let (left, right) = pair();
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::default());
        let long = vec![7u8; 3 << 20];
        outbox.push(&1u32, std::iter::once(&long[..])).unwrap();
        assert!(!outbox.send(left.as_fd(), false).unwrap());
        loop {
            inbox.receive(right.as_fd(), false).unwrap();
            if let Some((_, inline)) = inbox.next::<u32>().unwrap() {
                assert_eq!(inline, &long[..]);
                break;
            }
            outbox.send(left.as_fd(), false).unwrap();
        }
        assert_eq!(inbox.receive(right.as_fd(), false).unwrap(), Received::Nothing);
    }

    #[test]
    fn nonsense_is_an_error() {
        let (left, right) = pair();
        rustix::net::send(&left, &[0xff; 64], SendFlags::empty()).unwrap();
        let mut inbox = Inbox::default();
        inbox.receive(right.as_fd(), true).unwrap();
        assert!(inbox.next::<u32>().is_err());
    }

    #[test]
    fn lost_descriptors_are_an_error_and_no_other_takes_their_place() {
        let (left, right) = pair();
        let file = sealed_file(4096).unwrap();
        let fds = vec![file.as_fd(); FDS_PER_MESSAGE + 50];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_PER_MESSAGE + 50))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(&left, &[IoSlice::new(&[0; 16])], &mut control, SendFlags::empty()).unwrap();
        let error = Inbox::default().receive(right.as_fd(), true).unwrap_err();
        assert!(error.to_string().contains("descriptors"), "{error}");
    }
}
