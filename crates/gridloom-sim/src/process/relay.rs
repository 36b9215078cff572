//! Turns of processes on threads: who stops looks who is next, and wakes that one.
//!
//! The scheduler has a thread of its own, which begins, ends and buries. In between, a thread that suspends its process
//! lets time move itself and gives the turn to the thread of the next process: one change of threads for each, or
//! none if it is next itself. What is not a thread's (a coroutine, a process that has not begun, nobody left, a panic)
//! it leaves to the scheduler.
//!
//! **Invariant:** at any time one thread has the turn, and only it looks at the simulation. The order is the scheduler's:
//! both take the first that is ready, and let time move by [`advance`] when nobody is.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use gridloom_core::base::time::SECOND_NS;

use super::kernel::ProcessId;
use crate::simulation::Simulation;

/// If for so long no process was ready, only heartbeats of machines go on: nothing will come any more.
const STALL_NS: u64 = 30 * 24 * 3600 * SECOND_NS;

/// Lets time move until a process is ready; false if none will be any more.
pub(super) fn advance(simulation: &mut Simulation) -> bool {
    let stalled = simulation.now().0 + STALL_NS;
    let mut moved = true;
    simulation.fail_if_unseen();
    while moved && simulation.processes.ready.is_empty() {
        moved = simulation.now().0 < stalled && simulation.may_wake() && simulation.step();
        simulation.fail_if_unseen();
    }
    moved
}

/// The turns of one simulation's threads.
pub(super) struct Relay {
    simulation: Arc<Mutex<Simulation>>,
    scheduler: Baton,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the processes whose threads wait for their turn or have it.
    batons: BTreeMap<ProcessId, Arc<Baton>>,
    /// What the scheduler has to know when it gets the turn.
    over: Option<ProcessId>,
    is_stuck: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl Relay {
    pub(super) fn new(simulation: Arc<Mutex<Simulation>>) -> Relay {
        Relay { simulation, scheduler: Baton::default(), state: Mutex::default() }
    }

    /// A thread for this process exists; it has the turn as soon as it asks for it.
    pub(super) fn begin(&self, process: ProcessId) -> Arc<Baton> {
        self.scheduler.belongs_to(std::thread::current());
        let baton = Arc::new(Baton::default());
        self.state().batons.insert(process, baton.clone());
        baton
    }

    /// Forgets a process whose thread could not be made.
    pub(super) fn forget(&self, process: ProcessId) {
        self.state().batons.remove(&process);
    }

    /// The scheduler gives the turn to a thread, and gets it back: with the process that has ended, if one has.
    pub(super) fn run(&self, baton: &Baton) -> Option<ProcessId> {
        self.scheduler.belongs_to(std::thread::current());
        baton.give();
        self.scheduler.wait();
        let panic = self.state().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        self.state().over.take()
    }

    /// Whether a thread found that nobody will be ready any more.
    pub(super) fn take_stuck(&self) -> bool {
        std::mem::take(&mut self.state().is_stuck)
    }

    /// Called by a process's thread: returns when it is its turn again.
    pub(super) fn suspend(&self, own: &Arc<Baton>) {
        // A panic here is the simulation's, not the process's.
        match catch_unwind(AssertUnwindSafe(|| self.next())) {
            Ok(Some(next)) if Arc::ptr_eq(&next, own) => return,
            Ok(Some(next)) => next.give(),
            Ok(None) => self.scheduler.give(),
            Err(panic) => {
                self.state().panic = Some(panic);
                self.scheduler.give();
            }
        }
        own.wait();
    }

    /// Called by a process's thread at its end.
    pub(super) fn end(&self, process: ProcessId) {
        let mut state = self.state();
        state.batons.remove(&process);
        state.over = Some(process);
        drop(state);
        self.scheduler.give();
    }

    /// Takes the next that is ready, if it has a thread.
    fn next(&self) -> Option<Arc<Baton>> {
        let mut simulation = self.simulation.lock().unwrap_or_else(PoisonError::into_inner);
        if !advance(&mut simulation) {
            self.state().is_stuck = true;
            return None;
        }
        let next = simulation.processes.ready.front()?;
        let baton = self.state().batons.get(next)?.clone();
        simulation.processes.ready.pop_front();
        Some(baton)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is a thread's turn.
#[derive(Default)]
pub(super) struct Baton {
    given: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Baton {
    /// From now on, that thread waits for it.
    pub(super) fn belongs_to(&self, thread: Thread) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    fn give(&self) {
        self.given.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    /// Waits until it is given.
    pub(super) fn wait(&self) {
        while !self.given.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}
