//! The invariants of every run, one file each. To add one, add a file and a line in [`ALL`].
//!
//! A check sees every event once and keeps what it needs. It judges after every step, and when everything has been
//! freed. Except at the end, it only inspects what has just changed.

mod all_freed;
mod causes;
mod client_traffic;
mod declared;
mod immutable;
mod objects;
mod repeated;
mod reported;
mod results;
mod shared_answers;
mod shared_deleted;
mod shared_found;
mod shared_versions;
mod silence;
mod stateless_servers;
mod store_bound;

use gridloom_base::Time;

use super::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

/// An invariant.
#[derive(Clone, Copy, Debug)]
pub struct Invariant {
    pub name: &'static str,
    /// Describes the states that the invariant allows.
    pub about: &'static str,
    pub(crate) new_check: fn() -> Box<dyn InvariantCheck>,
}

/// All invariants. "no stand-still" and "no panic" are checked by the run itself.
pub const ALL: &[Invariant] = &[
    results::INVARIANT,
    immutable::INVARIANT,
    reported::INVARIANT,
    causes::INVARIANT,
    client_traffic::INVARIANT,
    store_bound::INVARIANT,
    objects::INVARIANT,
    stateless_servers::INVARIANT,
    repeated::INVARIANT,
    shared_versions::INVARIANT,
    shared_found::INVARIANT,
    shared_answers::INVARIANT,
    shared_deleted::INVARIANT,
    declared::INVARIANT,
    silence::INVARIANT,
    all_freed::INVARIANT,
];

/// Checks an invariant. An `Err` describes what was observed instead.
pub(crate) trait InvariantCheck {
    /// Called for each event. `sim` is the state after the step that caused it.
    fn observe(&mut self, _sim: &Simulation, _ledger: &Ledger, _at: Time, _event: &SimEvent) -> Result<(), String> {
        Ok(())
    }

    /// Called after every step.
    fn step(&mut self, _sim: &Simulation, _ledger: &Ledger) -> Result<(), String> {
        Ok(())
    }

    /// Called at the end, when everything is quiet.
    fn end(&mut self, _sim: &Simulation, _ledger: &Ledger) -> Result<(), String> {
        Ok(())
    }

    /// Returns the interesting states that this run has reached, with their counts: a soak that never reaches them proves little.
    fn reached(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
