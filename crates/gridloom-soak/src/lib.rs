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
mod driver;
mod grid;
mod invariants;
mod layout;
mod ledger;
mod malicious_client;
mod run;
mod shared;
mod shared_calls;
mod shared_functions;
mod shared_names;
mod workload;

pub use invariants::{ALL, Invariant};
pub use layout::check;
pub use run::{Failure, Options, Outcome, run};
