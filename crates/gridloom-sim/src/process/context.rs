//! The context of a simulated process: its identity and its operations. It serves code that has no access to the
//! process's world, such as a session with a grid.
//!
//! A [`ProcessContext`] can be stored and sent anywhere. It can wait only on the thread that runs its process.
//!
//! **Invariant:** a thread's current process is the one whose code it runs. Code that suspends itself removes its
//! context from the thread, and sets it again when it continues.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::{NodeId, Time};
use gridloom_core::node::Event;
use gridloom_platform::HostId;
use gridloom_process::{ProcessError, ProcessSpec};
use gridloom_stacks::Suspender;

use super::id::ProcessId;
use super::table::Wait;
use crate::simulation::Simulation;

/// A process that was requested to end is unwound after this many further calls.
const CALLS_AFTER_END_MAX: u32 = 100;

/// Data shared by the processes of a runner, which the simulation does not interpret.
pub type SharedData = Arc<dyn Any + Send + Sync>;

thread_local! {
    static CURRENT: RefCell<Option<(ProcessContext, Suspender)>> = const { RefCell::new(None) };
}

/// A process of a simulation, for code that acts on its behalf.
#[derive(Clone)]
pub struct ProcessContext {
    id: ProcessId,
    simulation: Arc<Mutex<Simulation>>,
    common: Option<SharedData>,
}

impl ProcessContext {
    pub(super) fn new(id: ProcessId, simulation: Arc<Mutex<Simulation>>, common: Option<SharedData>) -> ProcessContext {
        ProcessContext { id, simulation, common }
    }

    /// Returns the context of the process whose code this thread runs.
    pub fn current() -> Option<ProcessContext> {
        CURRENT.with_borrow(|current| current.as_ref().map(|(context, _)| context.clone()))
    }

    /// Locks the simulation. The process must not wait while it holds the lock.
    pub fn simulation(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a shared reference to the simulation.
    pub fn shared_simulation(&self) -> Arc<Mutex<Simulation>> {
        self.simulation.clone()
    }

    /// Returns the data shared by the runner's processes.
    pub fn common(&self) -> Option<&SharedData> {
        self.common.as_ref()
    }

    pub fn process(&self) -> ProcessId {
        self.id
    }

    /// Returns the process's function, host and arguments.
    pub fn spec(&self) -> ProcessSpec {
        self.simulation().programs.process(self.id).spec.clone()
    }

    pub fn host(&self) -> HostId {
        self.simulation().programs.process(self.id).host
    }

    /// Starts a client of the agent for the process. It is removed when the process ends, in whatever way.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_client(&self, name: &str) -> NodeId {
        self.simulation().add_client_of(self.id, name)
    }

    /// Returns the next event of a client of this process; `None` at `until`, after everything due then has happened,
    /// or if the client is dead.
    ///
    /// # Errors
    /// [`ProcessError::Ended`]; [`ProcessError::Failed`] if it is not called on the thread that runs the process.
    pub fn next_event(&self, client: NodeId, until: Option<Time>) -> Result<Option<Event>, ProcessError> {
        self.check()?;
        let mut waited = false;
        loop {
            {
                let mut simulation = self.simulation();
                if let Some(event) = simulation.take_event(client) {
                    return Ok(Some(event));
                }
                if simulation.is_dead(client) || waited && until.is_some_and(|until| simulation.now() >= until) {
                    return Ok(None);
                }
            }
            self.suspend(|Simulation { environment, programs, .. }| {
                programs.wait(environment, self.id, Wait::Event { client }, until);
                Ok(())
            })?;
            waited = true;
        }
    }

    /// Waits until the given time.
    ///
    /// # Errors
    /// See [`ProcessContext::next_event`].
    pub fn sleep_until(&self, at: Time) -> Result<(), ProcessError> {
        self.check()?;
        self.suspend(|Simulation { environment, programs, .. }| {
            programs.wait(environment, self.id, Wait::Time, Some(at));
            Ok(())
        })
    }

    /// Suspends the process once `names` has registered what it waits for. Returns when that has happened.
    pub(super) fn suspend(
        &self,
        names: impl FnOnce(&mut Simulation) -> Result<(), ProcessError>,
    ) -> Result<(), ProcessError> {
        let own = CURRENT.take();
        let Some((context, suspender)) = own.as_ref().filter(|(context, _)| context.is(self)) else {
            CURRENT.set(own);
            let spec = self.spec();
            return Err(ProcessError::Failed(format!(
                "a simulated process can wait only on its own thread: this is not the thread of {} on {}",
                spec.function, spec.host
            )));
        };
        let named = names(&mut context.simulation());
        if named.is_ok() {
            suspender.suspend();
        }
        CURRENT.set(own);
        named?;
        self.check()
    }

    pub(super) fn check(&self) -> Result<(), ProcessError> {
        let mut simulation = self.simulation();
        let Some((why, calls)) = simulation.programs.count_call(self.id) else { return Ok(()) };
        if calls > CALLS_AFTER_END_MAX {
            drop(simulation);
            std::panic::resume_unwind(Box::new("a process continued after its end"));
        }
        Err(ProcessError::Ended { why })
    }

    fn is(&self, other: &ProcessContext) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.simulation, &other.simulation)
    }
}

impl fmt::Debug for ProcessContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessContext").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Makes this thread run the code of a process, until the returned guard is dropped.
pub(super) fn run_as_process(context: ProcessContext, suspender: Suspender) -> CurrentProcessGuard {
    CURRENT.set(Some((context, suspender)));
    CurrentProcessGuard
}

/// Guard that is alive while a process's code runs.
pub(super) struct CurrentProcessGuard;

impl Drop for CurrentProcessGuard {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}
