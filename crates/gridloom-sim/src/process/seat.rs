//! Which process runs on this thread, and what it may do beside its world: for who is not handed a world, such as a
//! session with a grid.
//!
//! A [`Seat`] can be kept and sent anywhere; it waits only where its process runs, which the thread knows.
//!
//! **Invariant:** a thread's current process is the one whose code runs on it: coroutines take their place along when they
//! give the turn away ([`away`]).

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_core::base::{NodeId, Time};
use gridloom_core::node::Event;
use gridloom_core::platform::HostId;
use gridloom_core::process::{ProcessError, ProcessSpec};

use super::kernel::{ProcessId, Wait};
use super::stack::Suspender;
use crate::simulation::Simulation;

/// A process that was told to end and calls on, so often, is unwound.
const CALLS_AFTER_END_MAX: u32 = 100;

/// What the processes of a runner share beside the simulation, which knows nothing of it.
pub type Common = Arc<dyn Any + Send + Sync>;

thread_local! {
    static CURRENT: RefCell<Option<(Seat, Suspender)>> = const { RefCell::new(None) };
}

/// A process's place in its simulation.
#[derive(Clone)]
pub struct Seat {
    id: ProcessId,
    simulation: Arc<Mutex<Simulation>>,
    common: Option<Common>,
}

impl Seat {
    pub(super) fn new(id: ProcessId, simulation: Arc<Mutex<Simulation>>, common: Option<Common>) -> Seat {
        Seat { id, simulation, common }
    }

    /// That of the process whose code runs on this thread.
    pub fn current() -> Option<Seat> {
        CURRENT.with_borrow(|current| current.as_ref().map(|(seat, _)| seat.clone()))
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

    /// Which process it is.
    pub fn process(&self) -> ProcessId {
        self.id
    }

    /// Who it is.
    pub fn spec(&self) -> ProcessSpec {
        self.simulation().process(self.id).spec.clone()
    }

    /// Where it is.
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
                if let Some(event) = simulation.node_mut(client).events.pop_front() {
                    return Ok(Some(event));
                }
                if simulation.is_dead(client) || waited && until.is_some_and(|until| simulation.now() >= until) {
                    return Ok(None);
                }
            }
            self.suspend(|simulation| {
                simulation.process_waits_until(self.id, Wait::Event { client }, until);
                Ok(())
            })?;
            waited = true;
        }
    }

    /// Waits so long.
    ///
    /// # Errors
    /// As [`Seat::next_event`].
    pub fn sleep_until(&self, at: Time) -> Result<(), ProcessError> {
        self.check()?;
        self.suspend(|simulation| {
            simulation.process_waits_until(self.id, Wait::Time, Some(at));
            Ok(())
        })
    }

    /// Gives the turn away once `names` has said what is waited for; back when that has come.
    pub(super) fn suspend(
        &self,
        names: impl FnOnce(&mut Simulation) -> Result<(), ProcessError>,
    ) -> Result<(), ProcessError> {
        let suspender = CURRENT.with_borrow(|current| {
            let here = current.as_ref().filter(|(seat, _)| seat.is(self));
            here.map(|(_, suspender)| suspender.clone())
        });
        let Some(suspender) = suspender else {
            let spec = self.spec();
            return Err(ProcessError::Failed(format!(
                "a simulated process waits only in its own thread: this is not that of {} on {}",
                spec.function, spec.host
            )));
        };
        names(&mut self.simulation())?;
        suspender.suspend();
        self.check()
    }

    pub(super) fn check(&self) -> Result<(), ProcessError> {
        let mut simulation = self.simulation();
        let process = simulation.process_mut(self.id);
        let Some(why) = process.end.clone() else { return Ok(()) };
        process.calls_after_end += 1;
        if process.calls_after_end > CALLS_AFTER_END_MAX {
            drop(simulation);
            std::panic::resume_unwind(Box::new("a process went on after its end"));
        }
        Err(ProcessError::Ended { why })
    }

    fn is(&self, other: &Seat) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.simulation, &other.simulation)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("id", &self.id).finish_non_exhaustive()
    }
}

/// From now on, that process's code runs on this thread, until what this gives is dropped.
pub(super) fn enter(seat: Seat, suspender: Suspender) -> Here {
    CURRENT.set(Some((seat, suspender)));
    Here
}

/// Runs what lets other code run on this thread, and is the current process's again after it.
pub(super) fn away(wait: impl FnOnce()) {
    let own = CURRENT.take();
    wait();
    CURRENT.set(own);
}

/// For as long as a process's code runs.
pub(super) struct Here;

impl Drop for Here {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}
