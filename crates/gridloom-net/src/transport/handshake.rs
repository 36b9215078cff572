//! The first exchange on every connection: identities, proof of the grid's secret, protocol versions.
//!
//! ```text
//! dialler                                   acceptor
//!   | Hello (nonce, kind, self) -------------->|
//!   |<--------------- Hello (nonce, self)      |
//!   |<--- Proof: keyed hash of both hellos     |
//!   | Proof: likewise, for the other side ---->|
//!   |<------------- Verdict -----------------> |   of the decider: welcome, or duplicate
//! ```
//! Either side may reply with a refusal text instead. Each frame is a frame of [`gridloom_channel::frame`] of kind
//! `Hello`. Its body is a tag byte, followed by: Hello: magic `GRLM`, lowest and highest version (u16 LE each),
//! postcard of [`Hello`]; Proof: 32 bytes, and a signature of them in 64; Verdict: one byte; Refusal: text. Tag,
//! magic, versions and refusal keep their positions in all future versions, so that nodes of different versions can at
//! least report the mismatch.
//!
//! **Versions.** Both sides use the highest version that both ranges contain, and refuse each other if there is none
//! ([`gridloom_core::node::version`]). A hello is sent before the version is known. Therefore new fields of [`Hello`]
//! are added only at its end, and fields of a newer peer after the known ones are ignored. Processes of one program
//! run the same release, so their messages need no compatibility with earlier versions.
//!
//! **Decider.** Two nodes may dial each other at the same moment. Of a pair's control connections, the node with the
//! larger identifier alone decides which one is kept. On all other kinds of connections the acceptor decides.
//!
//! **Encryption.** Over TCP, all of this is inside of TLS ([`super::tls`]), and the proofs contain a hash of the
//! acceptor's certificate. So a node between the two ends, which has a certificate of its own, cannot pass on the proofs.
//! Unix sockets need no TLS: the kernel reports which user is at the other end.
//!
//! **Guarantees:** no input causes a panic; nothing beyond [`HANDSHAKE_BYTES_MAX`] is read; proofs are compared in constant time.
//! **Limit:** a peer that completes half a handshake can guess a weak secret offline.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use gridloom_base::NodeId;
use gridloom_channel::frame::{self, Decoder, Encoder};
use gridloom_channel::{FrameLimits, Kind, WireVersion};
use gridloom_core::node::Role;
use gridloom_core::node::version::{VERSIONS, fields_unknown_to};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::stripes::Stripe;
use super::tls::TlsStream;
use crate::identity::{Credentials, SIGNATURE_BYTES, Ticket, has_signed, id_of, random};

const MAGIC: [u8; 4] = *b"GRLM";
/// Maximum length of a handshake frame. It bounds the cost of an unknown peer.
pub const HANDSHAKE_BYTES_MAX: usize = 4096;
/// Limits of a channel until its handshake is complete.
pub const HANDSHAKE_LIMITS: FrameLimits = FrameLimits { control: HANDSHAKE_BYTES_MAX, process_message: 0 };
/// Maximum duration of a handshake from its first byte to its last, in nanoseconds. Also the time for which an unknown
/// peer may occupy a handshake slot.
pub const HANDSHAKE_NS_MAX: u64 = 5_000_000_000;
/// Refusal sent when the secrets differ. The side that notices it adds the source of its own secret.
pub const WRONG_SECRET: &str = "grid secret does not match";

/// Refusal sent to a node that uses the identifier of another.
const OTHER_NODE: &str = "has a key that does not match its identifier; somebody is using the identifier of another \
node";
/// Refusal sent to a node that dials as an agent.
const AGENT_DIALS: &str = "agents never dial other nodes; somebody is impersonating an agent";
/// Refusal sent to a function that wants to be more than a client.
const ONLY_CLIENTS: &str = "a ticket for functions admits only clients";

/// The purpose of a connection, from the dialler's point of view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Messages and small data in both directions.
    Control,
    /// The dialler will send large data.
    BulkSend,
    /// The dialler will receive large data that it was asked to receive.
    BulkReceive,
    /// The dialler will pass shared memory.
    Local,
    /// Messages between two processes in both directions.
    Process,
}

/// The description that a node sends of itself, and the purpose of the connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Purpose of the connection; the acceptor repeats the dialler's.
    pub purpose: Purpose,
    /// Derived from its key.
    pub node: NodeId,
    /// Public key that verifies the signature of the handshake; set by the handshake.
    pub key: [u8; 32],
    pub role: Role,
    pub name: String,
    /// Address at which it can be dialled, empty if it cannot.
    pub address: String,
    /// Kernel and network namespace, empty if the node does not share memory.
    pub host: String,
    /// Number of the bulk stream, 0 on control connections.
    pub stream: u64,
    /// Index of the connection within the stream.
    pub stripe: Stripe,
    /// Random bytes that make every handshake unique.
    pub nonce: [u8; 32],
    /// On a bulk connection: proves at once that its dialler has a control connection ([`Pass`]).
    pub pass: Option<[u8; 32]>,
    /// Ticket number, if this side proves a ticket and not the grid's secret.
    pub ticket: Option<Ticket>,
}

/// A key that only the two ends of a control connection know. Bulk connections begin with a proof of it, so that a
/// node can distinguish them from a flood of strangers by their first frame.
#[derive(Clone)]
pub struct Pass([u8; 32]);

impl Pass {
    /// Returns the proof that the dialler of a bulk connection sends.
    pub fn of(&self, dialler: NodeId, purpose: Purpose, stream: u64) -> [u8; 32] {
        let says = [&dialler.0.to_le_bytes()[..], &stream.to_le_bytes(), &[purpose as u8]].concat();
        *blake3::keyed_hash(&self.0, &says).as_bytes()
    }

    /// Reports whether a hello contains the proof.
    pub fn is_in(&self, hello: &Hello) -> bool {
        let due = self.of(hello.node, hello.purpose, hello.stream);
        // Comparing two blake3 hashes takes constant time.
        hello.pass.is_some_and(|pass| blake3::Hash::from_bytes(pass) == blake3::Hash::from_bytes(due))
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pass(..)")
    }
}

/// The result of a handshake, for both ends.
#[derive(Clone, Debug)]
pub struct Session {
    /// Pass for further connections.
    pub pass: Pass,
    /// Negotiated version.
    pub version: u16,
}

/// Returns the wire version of messages to a peer, given the negotiated protocol version.
pub fn wire_version(version: u16) -> WireVersion {
    WireVersion::without(fields_unknown_to(version))
}

/// The decider's verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The connection is established.
    Welcome,
    /// Another connection between the two nodes is already established.
    Duplicate,
}

/// Why a handshake ended without a connection.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other side refused; contains its text.
    #[error("refused: {0}")]
    Refused(String),
    /// This side refused; the text was appended to the output for the other side.
    #[error("refused: {0}")]
    Unacceptable(String),
    /// The received bytes are not a handshake.
    #[error("not a Gridloom handshake: {0}")]
    Malformed(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Hello,
    Proof,
    Verdict,
}

/// One side of a handshake. It performs no I/O: it takes and returns frame bodies.
#[derive(Debug)]
pub struct Handshake {
    credentials: Credentials,
    own: Hello,
    own_body: Vec<u8>,
    dialler: bool,
    stage: Stage,
    peer: Option<(Hello, Vec<u8>)>,
    /// Hash of the acceptor's certificate ([`super::tls::TlsStream::binding`]).
    binding: Vec<u8>,
    /// Present once both hellos are known.
    session: Option<Session>,
}

impl Handshake {
    /// Starts the dialler's side and returns the first body to send.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn dial(credentials: Credentials, mut own: Hello) -> io::Result<(Handshake, Vec<u8>)> {
        own.nonce = random()?;
        own.key = credentials.key.public();
        own.ticket = credentials.secret.ticket_number();
        let own_body = hello_body(&own);
        let first = own_body.clone();
        Ok((
            Handshake {
                credentials,
                own,
                own_body,
                dialler: true,
                stage: Stage::Hello,
                peer: None,
                binding: Vec::new(),
                session: None,
            },
            first,
        ))
    }

    /// Starts the acceptor's side.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn accept(credentials: Credentials, mut own: Hello) -> io::Result<Handshake> {
        own.nonce = random()?;
        own.key = credentials.key.public();
        own.ticket = credentials.secret.ticket_number();
        Ok(Handshake {
            credentials,
            own,
            own_body: Vec::new(),
            dialler: false,
            stage: Stage::Hello,
            peer: None,
            binding: Vec::new(),
            session: None,
        })
    }

    /// Returns the purpose of the connection, as requested by the dialler.
    pub fn purpose(&self) -> Purpose {
        self.own.purpose
    }

    /// Binds the proofs to the connection that carries them. Call it before the first frame is handled.
    pub fn bind(&mut self, binding: Vec<u8>) {
        self.binding = binding;
    }

    /// Takes the result. Use it only after the handshake has succeeded.
    pub fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }

    /// Returns the peer's hello, if it was received.
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref().map(|(hello, _)| hello)
    }

    /// Handles the body of a frame, appends the bodies to send, and returns the peer and the verdict once there is
    /// one. `decide` is called if this side is the decider; `Err` refuses.
    ///
    /// # Errors
    /// On any error the connection must be closed after the content of `out` was sent.
    pub fn on_frame(
        &mut self,
        body: &[u8],
        out: &mut Vec<Vec<u8>>,
        decide: impl FnOnce(&Hello) -> Result<Verdict, String>,
    ) -> Result<Option<(Hello, Verdict)>, HandshakeError> {
        let (&tag, rest) = body.split_first().ok_or_else(|| HandshakeError::Malformed("empty frame".into()))?;
        match (tag, self.stage) {
            (TAG_REFUSAL, _) => Err(HandshakeError::Refused(
                String::from_utf8_lossy(rest).chars().filter(|c| !c.is_control()).collect(),
            )),
            (TAG_HELLO, Stage::Hello) => self.on_hello(rest, body, out).map(|()| None),
            (TAG_PROOF, Stage::Proof) => self.on_proof(rest, out, decide),
            (TAG_VERDICT, Stage::Verdict) => {
                let verdict = match rest {
                    [0] => Verdict::Welcome,
                    [1] => Verdict::Duplicate,
                    _ => return Err(HandshakeError::Malformed("unknown verdict".into())),
                };
                Ok(self.peer.take().map(|(peer, _)| (peer, verdict)))
            }
            (tag, stage) => Err(HandshakeError::Malformed(format!("frame {tag} in stage {stage:?}"))),
        }
    }

    fn on_hello(&mut self, rest: &[u8], body: &[u8], out: &mut Vec<Vec<u8>>) -> Result<(), HandshakeError> {
        let Some((prefix, rest)) = rest.split_first_chunk::<8>().filter(|(prefix, _)| prefix[..4] == MAGIC) else {
            return Err(HandshakeError::Malformed("no magic number".into()));
        };
        let (low, high) = (u16::from_le_bytes([prefix[4], prefix[5]]), u16::from_le_bytes([prefix[6], prefix[7]]));
        let Some(version) = negotiated_version((low, high)) else {
            let (lowest, highest) = VERSIONS;
            let older = if high < lowest { "the node that offered them" } else { "this node" };
            let why = format!(
                "the peer offers protocol versions {low} to {high}, but this node supports {lowest} to {highest}; \
                 update {older}: a release of Gridloom works with the one before it"
            );
            return Err(refuse(why, out));
        };
        let (peer, rest) = wire_version(version).take::<Hello>(rest).map_err(HandshakeError::Malformed)?;
        if !rest.is_empty() && high <= VERSIONS.1 {
            return Err(HandshakeError::Malformed(format!("{} bytes left over", rest.len())));
        }
        if peer.purpose == Purpose::Process && high != VERSIONS.1 {
            let why = format!(
                "all processes of a program must run the same release of Gridloom: the peer has protocol version \
                 {high}, this process {}; install the same release on both sides",
                VERSIONS.1
            );
            return Err(refuse(why, out));
        }
        // A process may connect to itself.
        if peer.node == self.own.node && peer.purpose != Purpose::Process {
            return Err(refuse(format!("node {} dialled itself", peer.node), out));
        }
        if peer.ticket.is_some() && peer.role != Role::Client && !self.credentials.secret.is_ticket() {
            return Err(refuse(ONLY_CLIENTS.into(), out));
        }
        if id_of(&peer.key) != peer.node {
            return Err(refuse(format!("node {} {OTHER_NODE}", peer.node), out));
        }
        // Servers obey only the agent that they have dialled, not a node that claims to be one.
        if !self.dialler && peer.purpose == Purpose::Control && peer.role == Role::Agent {
            return Err(refuse(AGENT_DIALS.into(), out));
        }
        self.credentials = self.credentials.for_peer(peer.ticket);
        if !self.dialler {
            self.own.purpose = peer.purpose;
            self.own.stream = peer.stream;
            self.own_body = hello_body(&self.own);
            out.push(self.own_body.clone());
            out.push(self.proof(ACCEPTOR, [body, &self.own_body]));
        }
        let (dialler, acceptor) = if self.dialler { (&self.own_body[..], body) } else { (body, &self.own_body[..]) };
        let pass = Pass(*self.credentials.secret.prove(FURTHER, &[dialler, acceptor, &self.binding]).as_bytes());
        self.session = Some(Session { pass, version });
        self.peer = Some((peer, body.to_vec()));
        self.stage = Stage::Proof;
        Ok(())
    }

    fn on_proof(
        &mut self,
        rest: &[u8],
        out: &mut Vec<Vec<u8>>,
        decide: impl FnOnce(&Hello) -> Result<Verdict, String>,
    ) -> Result<Option<(Hello, Verdict)>, HandshakeError> {
        let (peer, peer_body) = self.peer.as_ref().expect("a proof is due only after a hello");
        let (theirs, transcript): (&[u8], [&[u8]; 2]) = match self.dialler {
            true => (ACCEPTOR, [&self.own_body, peer_body]),
            false => (DIALLER, [peer_body, &self.own_body]),
        };
        let parts = rest.split_first_chunk::<32>();
        let parts = parts.and_then(|(proof, rest)| Some((*proof, <[u8; SIGNATURE_BYTES]>::try_from(rest).ok()?)));
        let (proof, signature) = parts.ok_or_else(|| HandshakeError::Malformed("a proof has 96 bytes".into()))?;
        // Comparing two blake3 hashes takes constant time.
        let due = self.credentials.secret.prove(theirs, &[transcript[0], transcript[1], &self.binding]);
        if due != blake3::Hash::from_bytes(proof) {
            out.push(refusal(WRONG_SECRET));
            return Err(HandshakeError::Unacceptable(format!("{WRONG_SECRET}: {}", self.credentials.secret.remedy())));
        }
        if !has_signed(&peer.key, due.as_bytes(), &signature) {
            return Err(refuse(format!("node {} {OTHER_NODE}", peer.node), out));
        }
        if self.dialler {
            out.push(self.proof(DIALLER, transcript));
        }
        self.stage = Stage::Verdict;
        let decider = match self.own.purpose {
            Purpose::Control => self.own.node > peer.node,
            Purpose::BulkSend | Purpose::BulkReceive | Purpose::Local | Purpose::Process => !self.dialler,
        };
        if !decider {
            return Ok(None);
        }
        let verdict = decide(peer).map_err(|why| refuse(why, out))?;
        out.push(vec![TAG_VERDICT, (verdict == Verdict::Duplicate) as u8]);
        Ok(self.peer.take().map(|(peer, _)| (peer, verdict)))
    }
}

impl Handshake {
    /// Returns the proof of one side: that it knows the secret, and a signature with the key of its node.
    fn proof(&self, side: &[u8], transcript: [&[u8]; 2]) -> Vec<u8> {
        let proof = self.credentials.secret.prove(side, &[transcript[0], transcript[1], &self.binding]);
        tagged(TAG_PROOF, &[&proof.as_bytes()[..], &self.credentials.key.sign(proof.as_bytes())].concat())
    }
}

/// Runs a handshake on a blocking socket within [`HANDSHAKE_NS_MAX`]. `first` is the body that [`Handshake::dial`] returned.
///
/// # Errors
/// If the stream breaks, the time limit is exceeded, or the handshake fails.
pub fn run_blocking<S: Read + Write + AsFd>(
    stream: &mut TlsStream<S>,
    handshake: Handshake,
    first: Option<Vec<u8>>,
    decide: impl Fn(&Hello) -> Result<Verdict, String>,
) -> io::Result<(Hello, Verdict, Session)> {
    run_within(Duration::from_nanos(HANDSHAKE_NS_MAX), stream, handshake, first, decide)
}

/// Like [`run_blocking`], within `limit`.
///
/// # Errors
/// As [`run_blocking`].
pub fn run_within<S: Read + Write + AsFd>(
    limit: Duration,
    stream: &mut TlsStream<S>,
    mut handshake: Handshake,
    first: Option<Vec<u8>>,
    decide: impl Fn(&Hello) -> Result<Verdict, String>,
) -> io::Result<(Hello, Verdict, Session)> {
    stream.within(limit, |stream| {
        stream.complete_handshake()?;
        handshake.bind(stream.binding());
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        if let Some(first) = first {
            stream.write_all(&framed(&mut encoder, &first))?;
        }
        loop {
            let mut frame = vec![0; frame::HEADER_BYTES];
            stream.read_exact(&mut frame)?;
            let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
            if length > HANDSHAKE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "handshake frame too long"));
            }
            frame.resize(frame::HEADER_BYTES + length, 0);
            stream.read_exact(&mut frame[frame::HEADER_BYTES..])?;
            let body = match decoder.next(&frame, HANDSHAKE_LIMITS) {
                Ok(Some((frame, _))) if frame.kind == Kind::Hello => frame.body,
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "not a handshake frame")),
            };
            let mut out = Vec::new();
            let done = handshake.on_frame(body, &mut out, &decide);
            let bytes: Vec<u8> = out.iter().flat_map(|body| framed(&mut encoder, body)).collect();
            stream.write_all(&bytes)?;
            stream.flush()?;
            match done {
                Ok(None) => {}
                Ok(Some((peer, verdict))) => {
                    return Ok((peer, verdict, handshake.take_session().expect("both hellos were there")));
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    })
}

/// Wraps a body into a handshake frame.
pub fn framed(encoder: &mut Encoder, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame::HEADER_BYTES + body.len());
    encoder.frame(Kind::Hello, body, &mut bytes).expect("a handshake's frames are short");
    bytes
}

/// Returns the body of a refusal.
pub fn refusal(why: &str) -> Vec<u8> {
    tagged(TAG_REFUSAL, &why.as_bytes()[..why.len().min(HANDSHAKE_BYTES_MAX / 2)])
}

/// Returns the highest version that both sides support, given the other side's range.
fn negotiated_version((low, high): (u16, u16)) -> Option<u16> {
    let version = high.min(VERSIONS.1);
    (version >= low.max(VERSIONS.0)).then_some(version)
}

fn refuse(why: String, out: &mut Vec<Vec<u8>>) -> HandshakeError {
    out.push(refusal(&why));
    HandshakeError::Unacceptable(why)
}

fn hello_body(hello: &Hello) -> Vec<u8> {
    let mut body = tagged(TAG_HELLO, &MAGIC);
    body.extend_from_slice(&VERSIONS.0.to_le_bytes());
    body.extend_from_slice(&VERSIONS.1.to_le_bytes());
    postcard::to_extend(hello, body).expect("postcard into a vector fails for no type of ours")
}

fn tagged(tag: u8, rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(rest.len() + 1);
    body.push(tag);
    body.extend_from_slice(rest);
    body
}

const TAG_HELLO: u8 = 1;
const TAG_PROOF: u8 = 2;
const TAG_VERDICT: u8 = 3;
const TAG_REFUSAL: u8 = 4;
const DIALLER: &[u8] = b"gridloom dialler";
const ACCEPTOR: &[u8] = b"gridloom acceptor";
/// Label for deriving passes, in the same way as proofs.
const FURTHER: &[u8] = b"gridloom pass of further connections";

#[cfg(test)]
mod tests;
