//! The simulated world: the machines of `gridloom-core` on hosts and links that nobody has to own.
//!
//! A [`Simulation`] keeps the promises of `gridloom_core::node::protocol` in virtual time. Messages, data and tasks take
//! the time that `gridloom_core::flow` gives them on a `Platform`; faults happen when told.
//!
//! **Invariants.** No clock, thread, entropy or hash order: the same calls on the same platform give the same inputs
//! and effects in the same order, which [`Simulation::trace_hash`] sums up. Events at the same nanosecond happen in the
//! order in which they came to be due, completions of flows before them.
//!
//! ```text
//! queue  what is due when, by (time, sequence)        links   routes, connections, the queues of each
//! node   a machine, its store, timers and tasks       population  nodes started and started again
//! profiles  what the platform's profiles change        disk    what tasks have in files
//! faults  what is broken, now or by a scenario
//! effects, connect, transfer  what each effect does    trace   what happened, hashed; bytes; timeline
//! replay  scenarios of given transfers and executions, without machines
//! ```

#![deny(unsafe_code)]

mod connect;
mod disk;
mod effects;
pub mod faults;
mod links;
mod node;
pub mod observe;
mod population;
pub mod process;
mod profiles;
mod queue;
pub mod replay;
mod sighting;
mod simulation;
pub mod soak;
mod store;
mod trace;
mod transfer;
mod world;

pub use disk::Files;
pub use node::BoxedMachine;
pub use simulation::{Bodies, Halt, SimConfig, Simulation};
pub use trace::{Interval, Record};
pub use world::SimWorld;
