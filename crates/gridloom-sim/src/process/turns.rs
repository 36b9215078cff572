//! The order of turns of a simulation's processes: the first that is ready, and time moves when none is.

use std::sync::{Arc, Mutex, PoisonError};

use gridloom_base::time::SECOND_NS;
use gridloom_stacks::{StackId, Turns};

use crate::simulation::Simulation;

/// If for so long no process was ready, only heartbeats of machines go on: nothing will come any more.
const STALL_NS: u64 = 30 * 24 * 3600 * SECOND_NS;

/// Lets time move until a process is ready; false if none will be any more.
pub(super) fn advance(simulation: &mut Simulation) -> bool {
    let stalled = simulation.now().0 + STALL_NS;
    let mut moved = true;
    simulation.fail_if_unseen();
    while moved && simulation.processes.first_ready().is_none() {
        moved = simulation.now().0 < stalled && simulation.may_wake() && simulation.step();
        simulation.fail_if_unseen();
    }
    moved
}

/// A simulation that says which of its processes is next.
pub(super) struct SimTurns(pub(super) Arc<Mutex<Simulation>>);

impl Turns for SimTurns {
    fn first_ready(&self) -> Option<StackId> {
        let mut simulation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !advance(&mut simulation) {
            return None;
        }
        let first = simulation.processes.first_ready().expect("time moved until a process was ready");
        Some(StackId(first.0))
    }

    fn take_first(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).processes.take_ready();
    }
}
