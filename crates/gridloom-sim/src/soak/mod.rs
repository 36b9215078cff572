//! Random work under random faults, with all invariants checked after every step.
//!
//! ```text
//! seed ──▶ stage (agent, servers, clients)   workload (what the programs do)   faults (or a scenario's)
//!             └────────────── run: step, check, let the programs act, step ... until everything is freed
//!                                    └── invariants, a file each: see every event, judge after every step and at the end
//! ```
//! **Invariants.** A run is a function of its seed and scenario: it has the same trace and the same verdict. Random
//! faults spare the last server, so that all work can be done. An error is accepted only for a known cause
//! (`invariants/causes.rs`).

mod agenda;
mod declared;
mod declaring;
mod insider;
mod invariants;
mod ledger;
mod naming;
mod places;
mod player;
mod run;
mod shared;
mod stage;
mod workload;

pub use invariants::{ALL, Invariant};
pub use places::check;
pub use run::{Failure, Options, Outcome, run};
