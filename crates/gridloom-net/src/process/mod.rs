//! A process of the real world: sockets, the clock, and blocking waits.
//!
//! ```text
//! acceptor thread ── accepts, shakes hands ──▶ pipe ──▶ poll ◀── channels of peers
//!                                                        │
//!                                        letters ──▶ inbox ──▶ receive
//! ```
//! One thread runs the process's code and, inside its calls, moves bytes. Each listener has a thread that accepts, and each
//! pending handshake a thread of its own, so that a dialler that says nothing delays no other. Processes of one host exchange bytes in
//! shared memory ([`stream`]).
//!
//! **Promises:** those of `gridloom_process`; a frame that breaks its bounds closes its connection and nothing else.
//! **Limit:** letters that have arrived and were not received are kept without bound while the process waits to send. A few
//! buffers are kept for reuse (`gridloom_channel::Spares`).

mod acceptor;
mod gang;
mod handing;
mod linger;
mod peers;
mod ring;
mod siblings;
mod stream;
mod system;
mod waiting;
mod world;

/// In the environment of a process: its [`ProcessConfig`], as JSON.
pub const DEPLOY_VARIABLE: &str = "GRIDLOOM_PROCESS";

/// Set beside it: the file that the program makes, or empties, when it asks which process it is. So a program that never asks
/// is told from one with a process that has ended.
pub const ASKED_VARIABLE: &str = "GRIDLOOM_PROCESS_ASKED";

/// Set beside it where each process is to use one processor alone: its number; those of threads have commas between.
pub const PROCESSOR_VARIABLE: &str = "GRIDLOOM_PROCESSOR";

/// Set for the process that is started first: the deployment file, which it looks at before any other is started.
pub const CHECK_VARIABLE: &str = "GRIDLOOM_DEPLOYMENT";

/// All that say what a process is. A program that the process starts is none. So the commands that start programs take these out of their
/// environment.
pub const PROCESS_VARIABLES: [&str; 5] =
    [DEPLOY_VARIABLE, ASKED_VARIABLE, CHECK_VARIABLE, PROCESSOR_VARIABLE, GANG_VARIABLE];

pub(crate) use acceptor::PENDING_MAX;
pub use gang::{GANG_VARIABLE, Gang};
pub use system::{end_with_parent, processors};
pub use world::{Addresses, NetProcess, ProcessConfig};
