//! Relays: programs that forward connections to nodes which others cannot dial, because a firewall or address
//! translation (NAT) admits only connections that the nodes open themselves.
//!
//! ```text
//!  dialler                      relay                       node behind a firewall
//!     |                           |<═ TLS ═ Register ═════════════|   kept open ([`registration`])
//!     |═ TLS ═ Connect(node) ════>|══════════ Incoming(token) ═══>|
//!     |                           |<═ TLS ═ Accept(token) ════════|   another connection
//!     |<═ Connected ══════════════|                               |
//!     |<───────── bytes ─────────>|<─────────── bytes ───────────>|
//! ```
//! Dialler, node and relay show certificates of one grid. After the last message in the diagram, TLS with the relay ends
//! on both connections ([`TlsStream::into_plain`](crate::transport::tls::TlsStream::into_plain)), and the relay copies
//! bytes in both directions ([`forwarding`]). The two nodes then run their own handshake of TLS through it, as over a
//! direct connection. The relay sees only ciphertext, the number of bytes, and which nodes communicate.
//!
//! A relay need not run where the revocations of the grid are recorded: registered nodes, which learn them from the
//! agent, send them to it. It accepts only those that the authority has signed, and ends the registrations and
//! connections of revoked certificates.
//!
//! **Bounds:** [`MEMBERS_MAX`], [`CONNECTIONS_MAX`], [`HANDSHAKES_MAX`]; a connection holds no memory of the relay except
//! what a pipe of the kernel buffers.

pub mod dial;
mod forwarding;
mod members;
mod protocol;
pub mod registration;
pub mod server;

use std::time::Duration;

/// Maximum number of nodes that are registered with a relay.
pub const MEMBERS_MAX: usize = 4096;
/// Maximum number of connections that a relay forwards or sets up.
pub const CONNECTIONS_MAX: usize = 4096;
/// Maximum number of these that holders of certificates of one name open.
pub const CONNECTIONS_OF_ONE_MAX: usize = 512;
/// Maximum number of connections that one node is asked to take at a time.
pub const PENDING_AT_ONE_MAX: usize = 128;
/// Maximum number of connections of a relay in the handshake at a time, each with a thread. A new one replaces the oldest.
pub const HANDSHAKES_MAX: usize = 256;
/// Time within which a dialler and the node complete what is needed to connect them.
pub const SET_UP_TIME: Duration = Duration::from_secs(5);
/// Interval between the pings of a registered node.
const PING_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of revocations that a node sends at a time. A relay ends the registration of a node that sends too
/// many.
const REVOCATIONS_AT_ONCE: usize = 16;
/// Silence after which the other side of a registration counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);
