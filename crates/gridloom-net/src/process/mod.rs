//! A process of the real world: sockets, the clock, and blocking waits.
//!
//! ```text
//! acceptor thread ── accepts, shakes hands ──▶ pipe ──▶ poll ◀── channels of peers
//!                                                        │
//!                                       messages ──▶ inbox ──▶ receive
//! ```
//! One thread runs the process's code and moves bytes inside its calls. Each listener has a thread that accepts, and
//! each pending handshake has its own thread, so that a silent dialler delays no other. Processes on one host exchange
//! bytes in shared memory ([`stream`]).
//!
//! **Guarantees:** those of `gridloom_process`; a frame that violates its limits closes its connection and nothing else.
//! **Limit:** messages that have arrived and were not received yet are stored without a bound while the process waits
//! to send. A few buffers are kept for reuse (`gridloom_channel::BufferPool`).

mod acceptor;
mod gang;
mod linger;
mod peers;
mod ring;
mod sibling_messages;
mod siblings;
mod stream;
mod system;
mod waiting;
mod world;

/// Environment variable with the [`ProcessConfig`] of a process, as JSON.
pub const DEPLOY_VARIABLE: &str = "GRIDLOOM_PROCESS";

/// Environment variable with the path of a file that the program creates or empties when it reads its [`ProcessConfig`].
/// It distinguishes a program that never reads it from one whose process has ended.
pub const READY_FILE_VARIABLE: &str = "GRIDLOOM_PROCESS_READY";

/// Environment variable with the number of the only processor that the process may use; comma-separated for processes
/// that are threads.
pub const PROCESSOR_VARIABLE: &str = "GRIDLOOM_PROCESSOR";

/// Environment variable of the process that is started first: the deployment file, which the process checks before any
/// other is started.
pub const CHECK_VARIABLE: &str = "GRIDLOOM_DEPLOYMENT";

/// All variables that describe a process. Programs that a process starts are not processes of the deployment, so
/// commands that start programs remove these variables from the environment.
pub const PROCESS_VARIABLES: [&str; 5] =
    [DEPLOY_VARIABLE, READY_FILE_VARIABLE, CHECK_VARIABLE, PROCESSOR_VARIABLE, GANG_VARIABLE];

pub use acceptor::room_for;
pub use gang::{GANG_VARIABLE, Gang};
pub use system::{end_with_parent, processors};
pub use world::{Addresses, NetProcess, ProcessConfig};
