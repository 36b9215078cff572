//! The first exchange on every connection, inside of TLS: who the two nodes are, what the connection is for, protocol
//! versions.
//!
//! ```text
//! dialler                                   acceptor
//!   | <======= TLS, with certificates =======> |
//!   | Hello (nonce, kind, self) -------------->|
//!   |<--------------- Hello (nonce, self)      |
//!   |<------------- Verdict -----------------> |   of the decider: welcome, or duplicate
//! ```
//! Either side may reply with a refusal text instead. Each frame is a frame of [`gridloom_channel::frame`] of kind
//! `Hello`. Its body is a tag byte, followed by: Hello: magic `GRLM`, lowest and highest version (u16 LE each),
//! postcard of [`Hello`]; Verdict: one byte; Refusal: the code of the [`ConnectionFault`] (one byte), and text. Tag, magic, versions and refusal keep their positions in all
//! future versions, so that nodes of different versions can at least report the mismatch.
//!
//! **Versions.** Both sides use the highest version that both ranges contain, and refuse each other if there is none
//! ([`gridloom_core::node::version`]). A hello is sent before the version is known. Therefore new fields of [`Hello`]
//! are added only at its end, and fields of a newer peer after the known ones are ignored. Processes of one program
//! run the same release, so their messages need no compatibility with earlier versions.
//!
//! **Identity.** The certificate of TLS ([`gridloom_keys`]) has the identity of the peer. Its role must allow the role in
//! the hello, and the identifier of the node must be the hash of the identity and the node's number.
//!
//! **Decider.** Two nodes may dial each other at the same moment. Of a pair's control connections, the node with the
//! larger identifier alone decides which one is kept. On all other kinds of connections the acceptor decides.
//!
//! **Guarantees:** no input causes a panic; nothing beyond [`HANDSHAKE_BYTES_MAX`] is read.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use gridloom_base::dial::{ConnectionError, ConnectionFault};
use gridloom_base::{NodeId, Origin};
use gridloom_channel::frame::{self, Decoder, Encoder};
use gridloom_channel::{Kind, WireVersion};
use gridloom_core::node::Role;
use gridloom_core::node::version::{VERSIONS, fields_unknown_to};
use gridloom_keys::{Certificate, CertificateDer, Role as CertifiedRole};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use super::refusal::{HANDSHAKE_BYTES_MAX, HANDSHAKE_LIMITS, refusal};
use super::refusal::{TAG_REFUSAL, refusal_of_body};
use super::stripes::Stripe;
use super::tls::TlsStream;
use crate::identity::{Credentials, acts_for_callers, id_of, random};

const MAGIC: [u8; 4] = *b"GRLM";
/// Maximum duration of a handshake from its first byte to its last, in nanoseconds. Also the time for which an unknown
/// peer may occupy a handshake slot.
pub const HANDSHAKE_NS_MAX: u64 = 5_000_000_000;
/// Refusal sent to a node that uses the identifier of another.
const OTHER_NODE: &str = "does not have the identity from which its identifier is made; somebody is using the identifier \
of another node";
/// Refusal sent to a node that dials as an agent.
const AGENT_DIALS: &str = "agents never dial other nodes; somebody is impersonating an agent";
/// The purpose of a connection, from the dialler's point of view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Messages and small data in both directions.
    Control,
    /// The dialler will send large data.
    BulkSend,
    /// The dialler will receive large data that it was asked to receive.
    BulkReceive,
    /// The dialler will pass shared memory. Such connections have a handshake of their own ([`super::local`]).
    Local,
    /// Messages between two processes in both directions.
    Process,
}

/// The description that a node sends of itself, and the purpose of the connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Purpose of the connection; the acceptor repeats the dialler's.
    pub purpose: Purpose,
    /// Derived from the identity in its certificate and the number below.
    pub node: NodeId,
    /// Random number of the node; set by the handshake.
    pub number: [u8; 16],
    pub role: Role,
    pub name: String,
    /// Address at which it can be dialled, empty if it cannot.
    pub address: String,
    /// Kernel and network namespace, empty if the node does not share memory.
    pub host: String,
    /// Name of its machine, for display.
    pub machine: String,
    /// Number of the bulk stream, 0 on control connections.
    pub stream: u64,
    /// Index of the connection within the stream.
    pub stripe: Stripe,
    /// Random bytes that make every handshake unique.
    pub nonce: [u8; 32],
    /// On a bulk connection: proves at once that its dialler has a control connection ([`Pass`]).
    pub pass: Option<[u8; 32]>,
}

/// A key that only the two ends of a control connection know. Bulk connections begin with a proof of it, so that a
/// node can distinguish them from a flood of strangers by their first frame.
#[derive(Clone)]
pub struct Pass([u8; 32]);

impl Pass {
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: [u8; 32]) -> Pass {
        Pass(bytes)
    }

    /// Returns the proof that an end of a further connection sends.
    pub fn of(&self, dialler: NodeId, purpose: Purpose, stream: u64) -> [u8; 32] {
        let says = [&dialler.0.to_le_bytes()[..], &stream.to_le_bytes(), &[purpose as u8]].concat();
        *blake3::keyed_hash(&self.0, &says).as_bytes()
    }

    /// Reports whether a hello contains the proof.
    pub fn is_in(&self, hello: &Hello) -> bool {
        hello.pass.is_some_and(|pass| self.is_proof(pass, hello.node, hello.purpose, hello.stream))
    }

    /// Reports whether a proof is that of this end of a connection.
    pub fn is_proof(&self, proof: [u8; 32], of: NodeId, purpose: Purpose, stream: u64) -> bool {
        // Comparing two blake3 hashes takes constant time.
        blake3::Hash::from_bytes(proof) == blake3::Hash::from_bytes(self.of(of, purpose, stream))
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pass(..)")
    }
}

/// The first message on a connection that passes shared memory ([`super::local`]).
#[derive(Clone, Copy, Debug)]
pub struct LocalHello {
    pub node: NodeId,
    /// Number of the stream.
    pub stream: u64,
    /// Proves that the dialler has a control connection ([`Pass`]).
    pub proof: [u8; 32],
}

/// Length of a [`LocalHello`].
pub(super) const LOCAL_HELLO_BYTES: usize = 16 + 32;

impl LocalHello {
    pub(super) fn to_bytes(self) -> [u8; LOCAL_HELLO_BYTES] {
        let mut bytes = [0; LOCAL_HELLO_BYTES];
        bytes[..8].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stream.to_le_bytes());
        bytes[16..].copy_from_slice(&self.proof);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; LOCAL_HELLO_BYTES]) -> LocalHello {
        let number = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes"));
        let proof = *bytes[16..].first_chunk().expect("32 bytes");
        LocalHello { node: NodeId(number(0)), stream: number(8), proof }
    }
}

/// The result of a handshake, for both ends.
#[derive(Clone, Debug)]
pub struct Session {
    /// Pass for further connections.
    pub pass: Pass,
    /// Negotiated version.
    pub version: u16,
    /// The certificate of the peer.
    pub certificate: Certificate,
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
    /// The other side refused; contains its reason.
    #[error("refused: {0}")]
    Refused(ConnectionError),
    /// This side refused; the reason was appended to the output for the other side.
    #[error("refused: {0}")]
    Unacceptable(ConnectionError),
    /// One side does not accept the certificate of the other, which TLS found.
    #[error("refused: {0}")]
    Certificate(ConnectionError),
    /// The received bytes are not a handshake.
    #[error("not a Gridloom handshake: {0}")]
    Malformed(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Hello,
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
    peer: Option<Hello>,
    /// The certificate of the peer, or why it is refused.
    certificate: Result<Option<Certificate>, ConnectionError>,
    /// Present once both hellos are known.
    session: Option<Session>,
}

impl Handshake {
    /// Starts the dialler's side and returns the first body to send.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn dial(credentials: Credentials, own: Hello) -> io::Result<(Handshake, Vec<u8>)> {
        let mut handshake = Handshake::new(credentials, own, true)?;
        handshake.own_body = hello_body(&handshake.own);
        let first = handshake.own_body.clone();
        Ok((handshake, first))
    }

    /// Starts the acceptor's side.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn accept(credentials: Credentials, own: Hello) -> io::Result<Handshake> {
        Handshake::new(credentials, own, false)
    }

    fn new(credentials: Credentials, mut own: Hello, dialler: bool) -> io::Result<Handshake> {
        own.nonce = random()?;
        own.number = credentials.nonce;
        Ok(Handshake {
            credentials,
            own,
            own_body: Vec::new(),
            dialler,
            stage: Stage::Hello,
            peer: None,
            certificate: Ok(None),
            session: None,
        })
    }

    /// Returns the purpose of the connection, as requested by the dialler.
    pub fn purpose(&self) -> Purpose {
        self.own.purpose
    }

    /// Checks the certificates that the peer has shown in the handshake of TLS. Call it before the first frame is handled.
    pub fn identify(&mut self, certificates: Option<&[CertificateDer<'_>]>) {
        if self.stage == Stage::Hello {
            self.certificate = self.credentials.peer(certificates).map(Some);
        }
    }

    /// Takes the result. Use it only after the handshake has succeeded.
    pub fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }

    /// Returns the peer's hello, if it was received.
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
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
        decide: impl FnOnce(&Hello) -> Result<Verdict, ConnectionError>,
    ) -> Result<Option<(Hello, Verdict)>, HandshakeError> {
        let (&tag, rest) = body.split_first().ok_or_else(|| HandshakeError::Malformed("empty frame".into()))?;
        match (tag, self.stage) {
            (TAG_REFUSAL, _) => match refusal_of_body(body) {
                Some(refusal) => Err(HandshakeError::Refused(refusal)),
                None => Err(HandshakeError::Malformed("a refusal without a reason".into())),
            },
            (TAG_HELLO, Stage::Hello) => self.on_hello(rest, body, out, decide),
            (TAG_VERDICT, Stage::Verdict) => {
                let verdict = match rest {
                    [0] => Verdict::Welcome,
                    [1] => Verdict::Duplicate,
                    _ => return Err(HandshakeError::Malformed("unknown verdict".into())),
                };
                Ok(self.peer.take().map(|peer| (peer, verdict)))
            }
            (tag, stage) => Err(HandshakeError::Malformed(format!("frame {tag} in stage {stage:?}"))),
        }
    }

    fn on_hello(
        &mut self,
        rest: &[u8],
        body: &[u8],
        out: &mut Vec<Vec<u8>>,
        decide: impl FnOnce(&Hello) -> Result<Verdict, ConnectionError>,
    ) -> Result<Option<(Hello, Verdict)>, HandshakeError> {
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
            return Err(refuse(ConnectionFault::WrongVersion, why, out));
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
            return Err(refuse(ConnectionFault::WrongVersion, why, out));
        }
        // A process may connect to itself.
        if peer.node == self.own.node && peer.purpose != Purpose::Process {
            return Err(refuse(ConnectionFault::Refused, format!("node {} dialled itself", peer.node), out));
        }
        let certificate = match &self.certificate {
            Ok(Some(certificate)) => certificate,
            Ok(None) => return Err(refuse(ConnectionFault::NoCertificate, "it has shown no certificate".into(), out)),
            Err(error) => return Err(refuse_with(error.clone(), out)),
        };
        let identity = &certificate.identity;
        if !is_allowed(identity.role(), peer.role) {
            let role = match peer.role {
                Role::Agent => "the agent",
                Role::Server => "a server",
                Role::Client => "a client",
            };
            let why = format!("the certificate of the {identity} does not allow it to be {role}");
            return Err(refuse(ConnectionFault::WrongRole, why, out));
        }
        if id_of(Some(identity), &peer.number) != peer.node {
            return Err(refuse(ConnectionFault::WrongIdentity, format!("node {} {OTHER_NODE}", peer.node), out));
        }
        // Servers obey only the agent that they have dialled, not a node that claims to be one.
        if !self.dialler && peer.purpose == Purpose::Control && peer.role == Role::Agent {
            return Err(refuse(ConnectionFault::WrongRole, AGENT_DIALS.into(), out));
        }
        if !self.dialler {
            self.own.purpose = peer.purpose;
            self.own.stream = peer.stream;
            self.own_body = hello_body(&self.own);
            out.push(self.own_body.clone());
        }
        let (dialler, acceptor) = if self.dialler { (&self.own_body[..], body) } else { (body, &self.own_body[..]) };
        // Nobody else knows the nonces in the hellos.
        let pass = Pass(blake3::derive_key(PASS, &[dialler, acceptor].concat()));
        self.session = Some(Session { pass, version, certificate: certificate.clone() });
        self.stage = Stage::Verdict;
        let decider = match self.own.purpose {
            Purpose::Control => self.own.node > peer.node,
            Purpose::BulkSend | Purpose::BulkReceive | Purpose::Local | Purpose::Process => !self.dialler,
        };
        if !decider {
            self.peer = Some(peer);
            return Ok(None);
        }
        let verdict = decide(&peer);
        self.peer = Some(peer.clone());
        let verdict = verdict.map_err(|error| refuse_with(error, out))?;
        out.push(vec![TAG_VERDICT, (verdict == Verdict::Duplicate) as u8]);
        Ok(Some((peer, verdict)))
    }
}

/// Returns the user with this certificate, with their rights. `host` is the name that the node gives its machine.
pub fn origin_of(certificate: &Certificate, host: &str) -> Origin {
    let (role, name) = (certificate.identity.role(), certificate.identity.name());
    let user = match role {
        CertifiedRole::Client | CertifiedRole::Administrator => name.to_string(),
        // Not the same user as somebody with this name.
        CertifiedRole::Agent | CertifiedRole::Server | CertifiedRole::Relay => format!("{role} {name}"),
        CertifiedRole::Functions => certificate.user.clone().unwrap_or_else(|| format!("functions of {name}")),
    };
    Origin {
        user,
        is_administrator: role == CertifiedRole::Administrator,
        is_functions: acts_for_callers(role),
        is_for_user: certificate.user.is_some(),
        functions: certificate.functions.iter().cloned().collect(),
        host: host.into(),
    }
}

/// Reports whether a node with a certificate for one role may have another.
fn is_allowed(certified: CertifiedRole, role: Role) -> bool {
    match role {
        Role::Agent => certified == CertifiedRole::Agent,
        Role::Server => certified == CertifiedRole::Server,
        // Users of the machine of an agent or server use the grid, too.
        Role::Client => certified != CertifiedRole::Relay,
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
    decide: impl Fn(&Hello) -> Result<Verdict, ConnectionError>,
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
    decide: impl Fn(&Hello) -> Result<Verdict, ConnectionError>,
) -> io::Result<(Hello, Verdict, Session)> {
    stream.within(limit, |stream| {
        stream.complete_handshake()?;
        handshake.identify(stream.peer_certificates());
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

/// Returns the highest version that both sides support, given the other side's range.
fn negotiated_version((low, high): (u16, u16)) -> Option<u16> {
    let version = high.min(VERSIONS.1);
    (version >= low.max(VERSIONS.0)).then_some(version)
}

fn refuse(fault: ConnectionFault, why: String, out: &mut Vec<Vec<u8>>) -> HandshakeError {
    refuse_with(ConnectionError { fault, why }, out)
}

fn refuse_with(error: ConnectionError, out: &mut Vec<Vec<u8>>) -> HandshakeError {
    out.push(refusal(error.fault, &error.why));
    HandshakeError::Unacceptable(error)
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
const TAG_VERDICT: u8 = 3;
/// Context of the derivation of passes.
const PASS: &str = "gridloom 2026 pass of further connections v2";

#[cfg(test)]
mod tests;
