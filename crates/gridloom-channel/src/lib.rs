//! The message plane: a channel between two ends, independent of its contents.
//!
//! ```text
//!   offer / message ─▶ Outbound ═══ stream of frames ═══▶ Inbound ─▶ next
//!                     urgent lane                        64 KiB buffer, lent while it holds
//!                     bulk lane, with credit             part of a frame; long frames separately
//! ```
//! Control connections of nodes and connections of processes are channels; those of processing elements and ranks will
//! be. A channel has no I/O of its own: it reads from and writes to a stream ([`std::io::Read`], [`std::io::Write`])
//! and knows no socket, clock or thread. Its owner polls the stream, connects, accepts, protects it (TLS), runs the handshake (its frames
//! of kind [`Kind::Hello`] are the first ones) and closes the stream.
//!
//! **Contract**
//! 1. *Framing.* Frames arrive complete, once, and in the order of their lane. A frame that is malformed, replayed,
//!    lost or too long is an error, after which the owner closes the channel.
//! 2. *Two lanes.* A frame of the urgent lane overtakes every bulk frame that has not begun. Frames are not split, so
//!    it waits for one bulk frame at most.
//! 3. *Credit.* [`Outbound::offer`] never waits: it refuses a bulk frame while the queued bytes exceed the credit. A
//!    blocking send is an offer that the owner repeats after the stream has taken more. Urgent frames are never
//!    refused. If the queued urgent frames exceed the credit, the peer does not read, and [`Channel::flush`] fails.
//! 4. *End.* Data written before an end closed arrive, unless the stream itself breaks.
//! 5. *Wire version.* Messages are written without the fields that the peer's version does not know
//!    ([`Outbound::set_wire_version`], [`wire_version`]).
//! 6. *Cost.* Frames that are queued together leave in one system call if the stream takes them. A bulk frame's
//!    payload is written without a copy and, if it is longer than the buffer, read into its final memory.
//!
//! `gridloom-conformance` has the test suite of this contract, which each world runs on its own channels. It also has
//! the one place where faults are injected: a stream that splits reads, blocks and breaks.

#![forbid(unsafe_code)]

mod buffer_pool;
mod channel;
pub mod frame;
mod inbound;
mod outbound;
pub mod wire_version;

pub use buffer_pool::BufferPool;
pub use channel::Channel;
pub use frame::{FrameLimits, Kind};
pub use inbound::{Body, Buffers, ReadOutcome, ReceiveBuffer};
pub use outbound::{BulkFrame, Outbound};
pub use wire_version::WireVersion;
