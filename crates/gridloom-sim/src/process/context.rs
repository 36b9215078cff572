//! The context of a simulated process: which process it is, and what it may do beside its world. For code that is not handed
//! a world, such as a session with a grid.
//!
//! A [`ProcessContext`] can be kept and sent anywhere; it waits only where its process runs, which the thread knows.
//!
//! **Invariant:** a thread's current process is the one that runs code on it: code that suspends itself takes its
//! context along.

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

/// A process that was told to end and calls on, so often, is unwound.
const CALLS_AFTER_END_MAX: u32 = 100;

/// What the processes of a runner share beside the simulation, which knows nothing of it.
pub type Common = Arc<dyn Any + Send + Sync>;

thread_local! {
    static CURRENT: RefCell<Option<(ProcessContext, Suspender)>> = const { RefCell::new(None) };
}

/// A process of a simulation, for code that acts on its behalf.
#[derive(Clone)]
pub struct ProcessContext {
    id: ProcessId,
    simulation: Arc<Mutex<Simulation>>,
    common: Option<Common>,
}

impl ProcessContext {
    pub(super) fn new(id: ProcessId, simulation: Arc<Mutex<Simulation>>, common: Option<Common>) -> ProcessContext {
        ProcessContext { id, simulation, common }
    }

    /// The context of the process that runs code on this thread.
    pub fn current() -> Option<ProcessContext> {
        CURRENT.with_borrow(|current| current.as_ref().map(|(context, _)| context.clone()))
    }

    /// The simulation, for as long as the process does not wait.
    pub fn simulation(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The simulation, to be kept.
    pub fn shared_simulation(&self) -> Arc<Mutex<Simulation>> {
        self.simulation.clone()
    }

    /// What the runner's processes share.
    pub fn common(&self) -> Option<&Common> {
        self.common.as_ref()
    }

    pub fn process(&self) -> ProcessId {
        self.id
    }

    /// Its function, host and arguments.
    pub fn spec(&self) -> ProcessSpec {
        self.simulation().process(self.id).spec.clone()
    }

    pub fn host(&self) -> HostId {
        self.simulation().process(self.id).host
    }

    /// Starts a client of the agent beside the process. It is gone when the process ends, however it does.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_client(&self, name: &str) -> NodeId {
        self.simulation().add_client_of(self.id, name)
    }

    /// The next event of a client of this process; `None` at `until`, before which what is due then has happened, or if the
    /// client is dead.
    ///
    /// # Errors
    /// [`ProcessError::Ended`], and [`ProcessError::Failed`] if this is not called where the process runs.
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
            self.suspend(|simulation| {
                simulation.process_waits(self.id, Wait::Event { client }, until);
                Ok(())
            })?;
            waited = true;
        }
    }

    /// Waits until then.
    ///
    /// # Errors
    /// As [`ProcessContext::next_event`].
    pub fn sleep_until(&self, at: Time) -> Result<(), ProcessError> {
        self.check()?;
        self.suspend(|simulation| {
            simulation.process_waits(self.id, Wait::Time, Some(at));
            Ok(())
        })
    }

    /// Gives the turn away once `names` has said what the process waits for; returns when that has come.
    pub(super) fn suspend(
        &self,
        names: impl FnOnce(&mut Simulation) -> Result<(), ProcessError>,
    ) -> Result<(), ProcessError> {
        let own = CURRENT.take();
        let Some((context, suspender)) = own.as_ref().filter(|(context, _)| context.is(self)) else {
            CURRENT.set(own);
            let spec = self.spec();
            return Err(ProcessError::Failed(format!(
                "a simulated process waits only in its own thread: this is not that of {} on {}",
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
        let Some((why, calls)) = simulation.processes.call(self.id) else { return Ok(()) };
        if calls > CALLS_AFTER_END_MAX {
            drop(simulation);
            std::panic::resume_unwind(Box::new("a process went on after its end"));
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

/// From now on, that process's code runs on this thread, until what this gives is dropped.
pub(super) fn enter(context: ProcessContext, suspender: Suspender) -> Entered {
    CURRENT.set(Some((context, suspender)));
    Entered
}

/// For as long as a process's code runs.
pub(super) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}
