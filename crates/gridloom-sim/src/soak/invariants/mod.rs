//! What must hold of every run, a file each. Adding one is a file and a line in [`ALL`].
//!
//! A check sees every fact once, and keeps what it needs of it; after every step, and when everything has been given back,
//! it judges. None looks at more than what has just changed, but at the end.

mod causes;
mod client_traffic;
mod declared;
mod given_back;
mod immutable;
mod objects;
mod plain_servers;
mod repeated;
mod reported;
mod results;
mod shared_answers;
mod shared_deleted;
mod shared_found;
mod shared_versions;
mod silence;
mod store_bound;

use gridloom_base::Time;

use super::ledger::Ledger;
use crate::event::SimEvent;
use crate::simulation::Simulation;

/// Something that must hold.
#[derive(Clone, Copy, Debug)]
pub struct Invariant {
    pub name: &'static str,
    /// What it says.
    pub about: &'static str,
    pub(super) make: fn() -> Box<dyn Check>,
}

/// All of them; "no stand-still" and "no panic" are watched by the run itself.
pub const ALL: &[Invariant] = &[
    results::INVARIANT,
    immutable::INVARIANT,
    reported::INVARIANT,
    causes::INVARIANT,
    client_traffic::INVARIANT,
    store_bound::INVARIANT,
    objects::INVARIANT,
    plain_servers::INVARIANT,
    repeated::INVARIANT,
    shared_versions::INVARIANT,
    shared_found::INVARIANT,
    shared_answers::INVARIANT,
    shared_deleted::INVARIANT,
    declared::INVARIANT,
    silence::INVARIANT,
    given_back::INVARIANT,
];

/// How an invariant is checked. An `Err` says what was seen instead.
pub(super) trait Check {
    /// A fact; `sim` is as it is after the step that brought it.
    fn see(&mut self, _sim: &Simulation, _ledger: &Ledger, _at: Time, _event: &SimEvent) -> Result<(), String> {
        Ok(())
    }

    /// After every step.
    fn step(&mut self, _sim: &Simulation, _ledger: &Ledger) -> Result<(), String> {
        Ok(())
    }

    /// When all is over and quiet.
    fn end(&mut self, _sim: &Simulation, _ledger: &Ledger) -> Result<(), String> {
        Ok(())
    }

    /// States of interest that this run has reached, with how often: a soak that never reaches them proves little.
    fn reached(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
