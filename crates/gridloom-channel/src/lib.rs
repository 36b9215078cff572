//! The message plane: one channel between two ends, whatever it carries.
//!
//! ```text
//!   offer / message ─▶ Outbound ═══ stream of frames ═══▶ Inbound ─▶ next
//!                     urgent lane                        64 KiB buffer, lent while it holds
//!                     bulk lane, with credit             part of a frame; long frames apart
//! ```
//! Control connections of nodes and connections of processes are channels; processing elements and ranks will be. A
//! channel is pure: it has a stream to read from and to write to ([`std::io::Read`], [`std::io::Write`]), and knows no
//! socket, clock or thread. Its owner does: it polls the stream, dials, accepts, runs the handshake (its frames of kind
//! [`Kind::Hello`] come first), and closes.
//!
//! **Contract**
//! 1. *Framing.* Frames arrive whole, once, and in the order of their lane. A frame that is malformed, replayed, lost or too
//!    long is an error, after which the owner closes the channel.
//! 2. *Two lanes.* A frame of the urgent lane passes every bulk frame that has not begun. Frames are not cut, so it waits
//!    for one bulk frame at most.
//! 3. *Credit.* A bulk frame is refused by [`Outbound::offer`], which never waits, while more bytes wait than the credit. A
//!    send that waits is an offer that the owner repeats after the stream took more. Urgent frames are never refused; when
//!    more of them wait than the credit, the peer does not read, and [`Channel::flush`] fails.
//! 4. *End.* What was written before an end closed arrives, unless the stream itself breaks.
//! 5. *Tags.* With keys ([`Channel::authenticate`]), each frame carries a tag, and one that is not of the peer, or not as it was
//!    sent, is an error ([`tags`]).
//! 6. *Dialect.* Messages go out as the peer has them ([`Outbound::speak`]): without the fields that its version does not know ([`dialect`]).
//! 7. *Cost.* Frames that are queued together leave in one system call if the stream takes them. A bulk frame's payload is
//!    written from where it lies and, if it is longer than the buffer, read to where it stays.
//!
//! `gridloom-conformance` has the suite of this contract, which each world runs on its own channels, and the one place
//! where faults enter: a stream that cuts, blocks and breaks.

#![forbid(unsafe_code)]

mod channel;
pub mod dialect;
pub mod frame;
mod inbound;
mod outbound;
mod spares;
pub mod tags;

pub use channel::Channel;
pub use dialect::Dialect;
pub use frame::{Kind, Limits};
pub use inbound::{Body, Buffers, Filled, Inbound};
pub use outbound::{Bulk, Outbound};
pub use spares::Spares;
pub use tags::{Key, Keys};
