//! The turns of a simulation's processes: the first ready one runs, and time advances when none is ready.

use std::sync::{Arc, Mutex, PoisonError};

use gridloom_base::time::SECOND_NS;
use gridloom_stacks::{StackId, Turns};

use crate::simulation::Simulation;

/// Simulated time without a ready process after which the processes are considered stalled: only heartbeats of state
/// machines remain.
const STALL_NS: u64 = 30 * 24 * 3600 * SECOND_NS;

/// Advances time until a process is ready. Returns false if none will ever be.
pub(super) fn advance(simulation: &mut Simulation) -> bool {
    let stalled = simulation.now().0 + STALL_NS;
    let mut moved = true;
    fail_with_observer(simulation);
    while moved && simulation.programs.first_ready().is_none() {
        let may_wake = simulation.programs.may_wake(&simulation.environment);
        moved = simulation.now().0 < stalled && may_wake && simulation.step();
        fail_with_observer(simulation);
    }
    moved
}

fn fail_with_observer(simulation: &mut Simulation) {
    simulation.programs.fail_with_observer(&mut simulation.environment.kernel);
}

/// A simulation that decides which of its processes runs next.
pub(super) struct SimTurns(pub(super) Arc<Mutex<Simulation>>);

impl Turns for SimTurns {
    fn first_ready(&self) -> Option<StackId> {
        let mut simulation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !advance(&mut simulation) {
            return None;
        }
        let first = simulation.programs.first_ready().expect("time moved until a process was ready");
        Some(StackId(first.0))
    }

    fn take_first(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).programs.take_ready();
    }
}
