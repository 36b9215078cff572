//! A simulated world: the machines of `gridloom-core` on hosts and links that exist only as a description.
//!
//! A [`Simulation`] keeps the promises of `gridloom_core::node::protocol` in virtual time. Messages, data and tasks
//! take the time that `gridloom_flow` computes for them on a `Platform`. Faults happen as scheduled.
//!
//! **Invariants.** No clock, thread, entropy or hash order is used. The same calls on the same platform produce the
//! same inputs and effects in the same order; [`Simulation::trace_hash`] summarizes them. Events at the same
//! nanosecond happen in the order in which they became due, completions of flows before the others.
//!
//! ```text
//! simulation   routes events between grid and processes     faults    what can break, and how it is applied
//! grid         nodes, their connections, calls and disks    process   user processes and their waits
//! environment  clock, hosts and routes, for both            network   routes, connections, sockets
//! kernel       clock, queue, flows                          hosts     speeds, disks, hosts that are off
//! memory       hosts whose data do not fit into memory
//! instruments  trace, observer, log                         inspect   read access for checks of invariants
//! replay       given transfers and executions, without machines
//! standstill   detection of endless events at one time
//! ```

#![forbid(unsafe_code)]

mod config;
mod environment;
mod event;
pub mod faults;
mod grid;
mod hosts;
pub mod inspect;
mod instruments;
mod kernel;
mod memory;
mod network;
pub mod observe;
pub mod process;
mod queue;
pub mod replay;
mod scheduled_event;
mod simulation;
mod standstill;
mod store;
mod timeline;
mod trace;
mod world;

pub use config::SimConfig;
pub use grid::{Bodies, BoxedMachine, Files, Halt};
pub use memory::HostMemory;
pub use simulation::Simulation;
pub use trace::{Interval, Record};
pub use world::SimWorld;
