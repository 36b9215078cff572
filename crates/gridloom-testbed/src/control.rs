//! The control socket: a line of JSON in each direction, and for `enter` the namespaces themselves.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::folder;
use crate::report::Report;

/// A request to a running testbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Stop all traffic on the link.
    Cut(String),
    /// Resume traffic on the link.
    Restore(String),
    /// Run the host at this fraction of its speed from now on.
    Slow(String, f64),
    /// Report links, hosts and traffic.
    Show,
    /// Send the namespaces of a host, for a process that will join it.
    Enter(String),
    /// Pass this signal to the program or the processes, unless they received it together with the first process (an interrupt).
    Signal(i32),
    /// End the testbed.
    Down,
}

/// The reply to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplyBody {
    Done(String),
    Report(Box<Report>),
    /// Namespaces are attached: user, mount, process, network, in this order; contains the host's environment.
    Namespaces(Vec<(String, String)>),
    /// Whether only the tool had received the signal, so that it was passed on.
    Signalled {
        was_alone: bool,
    },
    /// The request was refused, for this reason.
    Refused(String),
}

/// Maximum number of descriptors sent with a reply.
const DESCRIPTORS_MAX: usize = 4;
/// Maximum size of a reply in bytes: a report of a large platform.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Sends a request to the testbed of this folder; returns the reply, and the namespaces sent with it.
///
/// # Errors
/// If it does not reply, or refuses.
pub fn request(folder: &Path, request: &Request) -> Result<(ReplyBody, Vec<OwnedFd>), Error> {
    let gone = || Error::system("the testbed's control socket");
    let mut stream = UnixStream::connect(folder.join(folder::CONTROL)).map_err(gone())?;
    let line = serde_json::to_string(request).expect("a request of words");
    writeln!(stream, "{line}").map_err(gone())?;
    let mut bytes = Vec::new();
    let mut descriptors = Vec::new();
    while bytes.last() != Some(&b'\n') && bytes.len() < ANSWER_BYTES_MAX {
        let mut part = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&stream, &mut [IoSliceMut::new(&mut part)], &mut ancillary, flags)
            .map_err(Error::system("the testbed"))?
            .bytes;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..received]);
    }
    let answer = serde_json::from_slice(&bytes).map_err(|error| Error::Usage(format!("no answer: {error}")))?;
    match answer {
        ReplyBody::Refused(why) => Err(Error::Usage(why)),
        answer => Ok((answer, descriptors)),
    }
}

/// A reply, with what is sent and done along with it.
pub struct Reply {
    pub answer: ReplyBody,
    pub namespaces: Vec<OwnedFd>,
    /// Runs after the reply was sent; may end the testbed.
    pub then: Option<Box<dyn FnOnce()>>,
}

impl From<ReplyBody> for Reply {
    fn from(answer: ReplyBody) -> Reply {
        Reply { answer, namespaces: Vec::new(), then: None }
    }
}

/// Handles requests, one connection after another, until the process ends.
pub fn serve(listener: &UnixListener, mut handle: impl FnMut(Request) -> Reply) {
    for stream in listener.incoming().flatten() {
        // A client that disconnects gets no reply; others are still served.
        let _ = serve_one(&stream, &mut handle);
    }
}

fn serve_one(stream: &UnixStream, handle: &mut impl FnMut(Request) -> Reply) -> Result<(), std::io::Error> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => handle(request),
        Err(error) => ReplyBody::Refused(format!("no such request: {error}")).into(),
    };
    // Even if the client has disconnected, its request is carried out.
    let sent = send(stream, &reply);
    if let Some(then) = reply.then {
        then();
    }
    sent
}

fn send(stream: &UnixStream, Reply { answer, namespaces, .. }: &Reply) -> Result<(), std::io::Error> {
    let mut text = serde_json::to_string(answer).expect("an answer of words and numbers");
    text.push('\n');
    let descriptors: Vec<BorrowedFd<'_>> = namespaces.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "room for all namespaces");
    }
    let first = &text.as_bytes()[..1];
    sendmsg(stream, &[IoSlice::new(first)], &mut ancillary, SendFlags::NOSIGNAL)?;
    (&mut &*stream).write_all(&text.as_bytes()[1..])
}

/// Time limit for reading a request, which is one line sent at once. Slower clients are disconnected.
const READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
