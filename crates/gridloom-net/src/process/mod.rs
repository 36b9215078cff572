//! A process of the real world: sockets, the clock, and blocking waits.
//!
//! ```text
//! listener thread ── accepts, shakes hands ──▶ pipe ──▶ poll ◀── connections
//!                                                       │
//!                                       letters ──▶ inbox ──▶ receive
//! ```
//! One thread runs the process's code and, inside its calls, moves bytes. Strangers are dealt with on a thread per
//! listener, so that one who says nothing delays nobody but other strangers.
//!
//! **Promises:** those of `gridloom_core::process`; a frame that breaks its bounds closes its connection and nothing else.
//! **Limit:** what has arrived and was not received is kept without bound while the process waits to send; of buffers that
//! are done with a few are kept (`gridloom_core::process::Spares`).

mod frame;
mod listener;
mod world;

pub use world::{Addresses, NetProcess, ProcessConfig, end_with_parent};
