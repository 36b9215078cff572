//! Launches calls: records them, maps them together, and runs them.
//!
//! | file | content |
//! |---|---|
//! | [`recorder`] | calls that are recorded and not launched yet, of groups and of loops |
//! | [`groups`] | launched groups, which are forgotten with the last object that could query them |
//! | [`mapping`] | by what calls are mapped: a heuristic, a given plan, a heuristic of the program |
//! | [`planning`] | requests for plans |
//! | [`batch`] | launches recorded calls, with those whose results they read |
//! | [`sizing`] | how many bodies of a loop are mapped together |
//! | [`mod@run`] | runs mapped calls |

mod batch;
mod groups;
mod mapping;
mod planning;
mod recorder;
mod run;
mod sizing;

pub(crate) use batch::launch;
pub(crate) use groups::Parts;
pub use mapping::{MAP_TIMEOUT, Mapping, MappingScope, timed_out};
pub(crate) use planning::{plan, plan_again, plan_declared};
pub(crate) use recorder::{Delayed, Made, Recorder, Recording, ValueKey};
pub(crate) use run::{PlannedCall, run, run_planned};
pub use sizing::Regroup;
pub(crate) use sizing::Sizing;
