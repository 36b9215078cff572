//! Large data between two nodes of one host: the memory itself is handed over, and nothing is copied.
//!
//! ```text
//! owner                                         reader
//!   | LocalHello, proof -------------------------->|   proofs of the pass of their control connection
//!   |<------------------------------------- proof  |
//!   | header + descriptor of the memory ==========>|   unix socket, one per ordered pair
//!   |                                              |   maps it, puts it into its store
//!   |<----------------------- Released (serials)   |   control connection, when its last reference is dropped
//! ```
//! The socket is in the user's folder ([`super::host`]). Both sides check that the other belongs to the same user, and is
//! the peer with whom they have a control connection. The owner keeps a *grant*, which holds the memory, until the
//! reader has released it or is lost (`outgoing`).
//!
//! **Guarantee:** the reader maps only files that cannot shrink (`Segment::import` checks the seal).

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use gridloom_base::NodeId;
use gridloom_channel::WireVersion;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::CargoHeader;
use super::bulk::{Receiver, check_header, decode_header};
use super::credentials::check_user;
use super::handshake::{HANDSHAKE_NS_MAX, LOCAL_HELLO_BYTES, LocalHello, Pass, Purpose};
use super::notice::Notice;
use super::sink::encode_header;
use super::tls::TlsStream;
use crate::descriptors::descriptor_limit;
use crate::payload::Payload;
use crate::segment::{Segment, SegmentId};

/// Header of a grant. No bytes follow it, since they stay where they are. The descriptor of the memory is sent with
/// its first byte.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GrantHeader {
    /// The same header as over TCP.
    pub cargo: CargoHeader,
    /// Id of the memory in its owner's process.
    pub segment: SegmentId,
    /// Size of the memory.
    pub segment_bytes: u64,
    /// Offset of the datum in the memory.
    pub offset: u64,
}

const PROOF_BYTES: usize = 32;

/// Runs the dialler's side of the handshake.
///
/// # Errors
/// If the peer turns the connection away, does not answer in time, or is another node.
pub fn dial(stream: &mut UnixStream, own: NodeId, peer: NodeId, pass: &Pass, number: u64) -> io::Result<()> {
    let hello = LocalHello { node: own, stream: number, proof: pass.of(own, Purpose::Local, number) };
    let proof = in_time(stream, |stream| {
        stream.write_all(&hello.to_bytes())?;
        let mut proof = [0; PROOF_BYTES];
        stream.read_exact(&mut proof)?;
        Ok(proof)
    })?;
    match pass.is_proof(proof, peer, Purpose::Local, number) {
        true => Ok(()),
        false => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}

/// Runs the acceptor's side. `admit` returns the proof for a dialler that is admitted.
///
/// # Errors
/// If the dialler does not send its hello in time, or is turned away.
pub fn answer(stream: &mut UnixStream, admit: impl FnOnce(LocalHello) -> Option<[u8; 32]>) -> io::Result<()> {
    in_time(stream, |stream| {
        let mut hello = [0; LOCAL_HELLO_BYTES];
        stream.read_exact(&mut hello)?;
        let proof = admit(LocalHello::from_bytes(&hello)).ok_or(io::ErrorKind::ConnectionRefused)?;
        stream.write_all(&proof)
    })
}

fn in_time<T>(stream: &mut UnixStream, exchange: impl FnOnce(&mut dyn ReadWrite) -> io::Result<T>) -> io::Result<T> {
    let limit = Duration::from_nanos(HANDSHAKE_NS_MAX);
    TlsStream::plain(stream).within(limit, |stream| exchange(stream))
}

trait ReadWrite: Read + Write {}

impl<S: Read + Write> ReadWrite for S {}

/// Accepts the next connection, if one is waiting. A connection of another user is closed and skipped.
///
/// # Errors
/// If the system call fails.
pub fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    loop {
        match listener.accept() {
            Ok((stream, _)) if check_user(stream.as_fd()).is_ok() => return Ok(Some(stream)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Sends a grant.
///
/// # Errors
/// If the stream breaks.
pub fn send_grant(
    stream: &mut UnixStream,
    header: &GrantHeader,
    wire_version: WireVersion,
    memory: BorrowedFd<'_>,
) -> io::Result<()> {
    let bytes = encode_header(header, wire_version);
    let memory = [memory];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&memory)), "the space was made for one descriptor");
    let sent = loop {
        match sendmsg(stream.as_fd(), &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => break sent?,
        }
    };
    stream.write_all(&bytes[sent..])
}

impl Receiver {
    /// Receives until the stream ends, and posts notices to the loop.
    pub fn run_local(self, mut stream: UnixStream) {
        self.run(|serial| Ok(self.receive_grant(&mut stream, serial)?));
    }

    fn receive_grant(&self, stream: &mut UnixStream, last_serial: u64) -> io::Result<u64> {
        let (length, memory) = receive_length(stream)?;
        let header: GrantHeader = decode_header(length, stream, self.wire_version)?;
        check_header(&header.cargo, last_serial)?;
        let serial = header.cargo.serial;
        let size_bytes = header.cargo.size_bytes;
        if header.cargo.resume.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a grant of part of a datum"));
        }
        let fits = header.offset.checked_add(size_bytes).is_some_and(|end| end <= header.segment_bytes);
        if !fits {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a grant that exceeds the end of its memory"));
        }
        let (inbox, link) = (self.inbox.clone(), self.link);
        let release = Box::new(move |retired| inbox.post(Notice::Released { link, serial, retired }));
        // The system drops a descriptor if this process has reached its limit.
        let import = match memory {
            Some(memory) => Segment::import(memory, header.segment_bytes, header.segment, release),
            None => Err(io::Error::other(format!(
                "this process has no free descriptor; its limit is {}: raise it (ulimit -n), or keep fewer results",
                descriptor_limit()
            ))),
        };
        match import {
            Ok(segment) => {
                self.arrived(header.cargo, Payload::Segment { segment, offset: header.offset, size_bytes }, 0);
            }
            Err(error) => {
                self.inbox.post(Notice::Released { link, serial, retired: false });
                self.not_taken(header.cargo, true, format!("its shared memory cannot be mapped: {error}"));
            }
        }
        Ok(serial)
    }
}

/// Reads the length of the next header, and the descriptor sent with it: `None` if this process had no free
/// descriptor. Sending no descriptor, or more than one, violates the protocol; extra descriptors are closed.
fn receive_length(stream: &mut UnixStream) -> io::Result<([u8; 4], Option<OwnedFd>)> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut length)];
        match recvmsg(stream.as_fd(), &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let (received, lost) = (received.bytes, received.flags.contains(ReturnFlags::CTRUNC));
    if received == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let memory = descriptors.pop();
    if !descriptors.is_empty() || memory.is_some() == lost {
        let why = "a grant must have exactly one descriptor";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    stream.read_exact(&mut length[received..])?;
    Ok((length, memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Pool;
    use crate::transport::Cargo;

    #[test]
    fn both_ends_prove_the_pass_of_their_control_connection() {
        let (own, peer) = (NodeId(1), NodeId(2));
        let shake = |admits: bool, of_dialler: &Pass, of_acceptor: &Pass| {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            std::thread::scope(|scope| {
                let admit = |hello: LocalHello| {
                    assert_eq!((hello.node, hello.stream), (own, 7));
                    let is_proof = of_acceptor.is_proof(hello.proof, own, Purpose::Local, 7);
                    (admits && is_proof).then(|| of_acceptor.of(peer, Purpose::Local, 7))
                };
                let answered = scope.spawn(move || answer(&mut there, admit).is_ok());
                let dialled = dial(&mut here, own, peer, of_dialler, 7).is_ok();
                (dialled, answered.join().unwrap())
            })
        };
        let (pass, other) = (Pass::of_bytes([1; 32]), Pass::of_bytes([2; 32]));
        assert_eq!(shake(true, &pass, &pass), (true, true));
        assert_eq!(shake(false, &pass, &pass), (false, false));
        assert_eq!(shake(true, &other, &pass), (false, false));
        // An impostor in the place of the peer does not know the pass.
        let (mut here, mut there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || answer(&mut there, |_| Some([0; 32])));
            let error = dial(&mut here, own, peer, &pass, 7).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn a_dialler_that_ends_without_a_hello_is_turned_away() {
        let (mut here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert!(answer(&mut here, |_| unreachable!("no hello has come")).is_err());
    }

    #[test]
    fn memory_passes_without_a_copy() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let mut memory = Pool::new(0).allocate(5000).unwrap();
        memory.bytes_mut().fill(4);
        let memory = memory.freeze();
        let cargo = CargoHeader { serial: 1, cargo: Cargo::Probe, size_bytes: 5000, resume: None };
        let header = GrantHeader { cargo, segment: memory.id(), segment_bytes: 5000, offset: 0 };
        send_grant(&mut here, &header, WireVersion::CURRENT, memory.fd()).unwrap();
        let (length, descriptor) = receive_length(&mut there).unwrap();
        assert_eq!(decode_header::<GrantHeader>(length, &mut there, WireVersion::CURRENT).unwrap(), header);
        let import = Segment::import(descriptor.unwrap(), 5000, header.segment, Box::new(|_| ())).unwrap();
        assert_eq!(import.bytes(), memory.bytes());
    }

    #[test]
    fn a_grant_with_none_or_several_descriptors_is_a_breach() {
        for count in [0, 2, 3] {
            let (here, mut there) = UnixStream::pair().unwrap();
            let memory = Pool::new(0).allocate(5000).unwrap().freeze();
            let descriptors = vec![memory.fd(); count];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if count > 0 {
                assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            }
            sendmsg(&here, &[IoSlice::new(&[0; 4])], &mut control, SendFlags::NOSIGNAL).unwrap();
            assert_eq!(receive_length(&mut there).unwrap_err().kind(), io::ErrorKind::InvalidData, "{count}");
        }
    }
}
