//! User processes in virtual time: their sockets, what they wait for, and who runs next.
//!
//! A process runs on a stack of its own ([`stack`]) and blocks by naming what it waits for ([`Wait`]); whoever makes that
//! come true puts it into the ready queue. One process runs at a time, in the order in which they became ready.
//!
//! A connection takes one round trip to make. A letter is a flow over the route with the model's latency; letters of one
//! connection share the links with one another, and are handed over in order.
//!
//! A process may use clients of the simulation's grid ([`Seat`]): it waits for their events as for letters.
//!
//! **Invariant:** a process is in the ready queue, or waits, or runs, or has ended; it is woken once for each time it
//! waits (`turn` counts them, so that what is late wakes nobody).

mod kernel;
mod lives;
mod measures;
mod relay;
mod runner;
mod seat;
mod sockets;
mod stack;
mod world;

pub(crate) use kernel::Processes;
pub use kernel::{Idle, ProcessId};
pub use measures::{Measured, Measures};
pub use runner::{Body, Deadlock, Make, Runner, Waiting};
pub use seat::{Common, Seat};
pub(crate) use sockets::LetterFlow;
pub use stack::{STACK_BYTES, StackKind};
pub use world::SimProcess;
