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
//! simulation  routes events between the parts           kernel     clock, queue, flows
//! nodes       machines, their stores and timers              network    routes, connections, sockets
//! tasks       files, time and bodies of tasks           hosts      speeds, disks, hosts that are off
//! process     user processes and their waits            instruments  trace, observer, log
//! sessions    shared data that functions declare
//! effects, connect, population, profiles, sharing, faults    how machines, platforms and faults act on these
//! inspect     read access for checks of invariants       replay     given transfers and executions, without machines
//! ```

#![forbid(unsafe_code)]

mod connect;
mod disk;
mod durable;
mod effects;
mod event;
pub mod faults;
mod hosts;
pub mod inspect;
mod instruments;
mod kernel;
mod mappings;
mod network;
mod nodes;
pub mod observe;
mod population;
pub mod process;
mod profiles;
mod queue;
pub mod replay;
mod scheduled_event;
mod sessions;
mod sharing;
mod simulation;
mod storage;
mod storage_transfers;
mod store;
mod tasks;
mod timeline;
mod trace;
mod world;

pub use disk::Files;
pub use nodes::BoxedMachine;
pub use simulation::{SimConfig, Simulation};
pub use tasks::{Bodies, Halt};
pub use trace::{Interval, Record};
pub use world::SimWorld;
