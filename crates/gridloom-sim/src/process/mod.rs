//! User processes in virtual time: what they wait for, and which runs next.
//!
//! A process runs on a stack of its own (`gridloom_stacks`) and blocks by registering what it waits for. The event
//! that it waits for moves it to the ready queue. One process runs at a time, in the order in which they became ready.
//! Its sockets are in [`crate::network`].
//!
//! A process may use clients of the simulation's grid ([`ProcessContext`]). It waits for their events as it does for messages.

mod context;
mod id;
mod measures;
mod programs;
mod runner;
mod table;
mod turns;
mod world;

pub use context::{ProcessContext, SharedData};
pub use gridloom_stacks::{STACK_BYTES, StackKind};
pub use id::ProcessId;
pub use measures::{BlockCharges, MeasuredBlock};
pub(crate) use programs::Programs;
pub use runner::{Body, BodyFactory, Deadlock, Runner, Waiting};
pub use table::IdlePeriod;
pub use world::SimProcess;
