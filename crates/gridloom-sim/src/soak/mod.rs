//! Random work under random faults, with what must always hold checked after every step.
//!
//! ```text
//! seed ──▶ stage (agent, servers, clients)   workload (what the programs do)   faults (or a scenario's)
//!             └────────────── run: step, look, let the programs act, step ... until all is given back
//!                                    └── invariants, a file each: see every fact, judge after every step and at the end
//! ```
//! **Invariants.** A run is a function of its seed and scenario: the same trace, the same verdict. Random faults spare
//! the last server, so that all work can be done. An error is accepted only for a stated cause (`invariants/causes.rs`).

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
