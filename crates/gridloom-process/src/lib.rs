//! Processes that exchange typed messages: the contract of their world, and the mailbox in which messages wait.
//!
//! A *process* is user code with a host, a name and arguments. It listens on ports, connects to others by host and
//! port, and sends and receives *messages* (a type's name and bytes). Its code may block: on sockets in the real
//! world, on virtual time in the simulated one, where it has its own stack.
//!
//! Source: the programming model of GRAS (Quinson, INRIA RR-5789): typed messages, handling and waiting, two worlds.

#![forbid(unsafe_code)]

mod error;
mod event_queue;
pub mod filter;
mod mailbox;
mod message;
mod world;

pub use error::ProcessError;
pub use event_queue::{EventQueue, ProcessEvent, TimerNumber};
pub use gridloom_base::Level;
pub use gridloom_channel::BufferPool;
pub use mailbox::Mailbox;
pub use message::{ProcessMessage, parse_message};
pub use world::{Incoming, PeerId, ProcessSpec, ProcessWorld};
