//! The scheduler: runs the ready processes in order, and advances time when none is ready.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::Time;
use gridloom_platform::HostId;
use gridloom_process::{ProcessError, ProcessSpec};
use gridloom_stacks::{StackId, StackKind, Stacks, Suspender};

use super::context::{self, ProcessContext, SharedData};
use super::id::ProcessId;

use super::turns::{SimTurns, advance};
use super::world::{Log, SimProcess};
use crate::simulation::Simulation;

/// A process's code.
pub type Body = Box<dyn FnOnce(SimProcess) + Send>;
/// Creates a process's code each time it starts.
pub type BodyFactory = Box<dyn Fn() -> Body + Send>;

/// A waiting process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub spec: ProcessSpec,
    /// Text of the condition for which it waits.
    pub what: String,
}

/// The error that no process can continue.
#[derive(Clone, PartialEq, Debug)]
pub struct Deadlock {
    /// Virtual time, seconds.
    pub seconds: f64,
    pub waiting: Vec<Waiting>,
}

/// Runs the processes of a simulation.
pub struct Runner {
    simulation: Arc<Mutex<Simulation>>,
    stacks: Stacks,
    log: Log,
    common: Option<SharedData>,
    /// Processes that restart with their hosts.
    restarting: BTreeMap<ProcessId, (StackKind, BodyFactory)>,
}

impl Runner {
    /// Creates a runner without processes.
    pub fn new(simulation: Arc<Mutex<Simulation>>, log: Log) -> Runner {
        let stacks = Stacks::new(Arc::new(SimTurns(simulation.clone())));
        Runner { simulation, stacks, log, common: None, restarting: BTreeMap::new() }
    }

    /// Sets the data that processes added from now on share. Their contexts provide it.
    pub fn set_shared_data(&mut self, common: SharedData) {
        self.common = Some(common);
    }

    /// Adds a process.
    ///
    /// # Errors
    /// If there is not enough memory for its stack.
    pub fn add(
        &mut self,
        host: HostId,
        spec: ProcessSpec,
        start: Time,
        kind: StackKind,
        body: Body,
    ) -> io::Result<ProcessId> {
        let id = {
            let Simulation { environment, programs, .. } = &mut *self.lock();
            programs.add(&mut environment.kernel, host, spec.clone(), start)
        };
        self.stack(id, spec, kind, body)?;
        Ok(id)
    }

    /// Adds a process that can restart, as a new process, when a fault restarts it. If `with_host`, also when its host
    /// was off and is on again.
    ///
    /// # Errors
    /// See [`Runner::add`].
    pub fn add_restarting(
        &mut self,
        host: HostId,
        spec: ProcessSpec,
        start: Time,
        kind: StackKind,
        make: BodyFactory,
        with_host: bool,
    ) -> io::Result<ProcessId> {
        let id = self.add(host, spec, start, kind, make())?;
        self.restarting.insert(id, (kind, make));
        self.lock().programs.set_restarts(id, with_host);
        Ok(id)
    }

    fn stack(&mut self, id: ProcessId, spec: ProcessSpec, kind: StackKind, body: Body) -> io::Result<()> {
        let (simulation, common, log) = (self.simulation.clone(), self.common.clone(), self.log.clone());
        let start = move |suspender: Suspender| {
            let context = ProcessContext::new(id, simulation, common);
            let entered = context::run_as_process(context.clone(), suspender);
            // A process that must end before it has begun does nothing.
            if context.check().is_ok() {
                body(SimProcess { context, spec, log });
            }
            drop(entered);
        };
        self.stacks.add(StackId(id.0), kind, Box::new(start))
    }

    /// Gives stacks to processes that the simulation has restarted.
    fn stack_restarted(&mut self) {
        let restarted = self.lock().programs.take_restarted();
        for (id, before) in restarted {
            let Some((kind, make)) = self.restarting.remove(&before) else { continue };
            let spec = self.lock().programs.process(id).spec.clone();
            self.stack(id, spec, kind, make()).expect("memory for the stack of a restarted process");
            self.restarting.insert(id, (kind, make));
        }
    }

    /// Kills a process at the given time.
    pub fn kill_at(&mut self, id: ProcessId, at: Time) {
        self.lock().kill_process_at(id, at);
    }

    /// Runs until all processes have ended.
    ///
    /// # Errors
    /// If no process can continue. The waiting processes are then requested to end.
    ///
    /// # Panics
    /// If a process panics on a coroutine, or the system has no thread for a process.
    pub fn run(&mut self) -> Result<(), Deadlock> {
        let mut deadlock = None;
        loop {
            self.run_ready();
            if self.stacks.is_empty() && !self.may_restart() {
                return deadlock.map_or(Ok(()), Err);
            }
            let moved = !self.stacks.take_stuck() && advance(&mut self.lock());
            if !moved && self.stacks.is_empty() {
                return deadlock.map_or(Ok(()), Err);
            }
            if !moved {
                let waiting: Vec<ProcessId> = self.stacks.ids().map(|stack| ProcessId(stack.0)).collect();
                // A process that a fault has hung or paused waits for nothing.
                if !waiting.iter().all(|id| self.lock().programs.process(*id).is_stopped()) {
                    deadlock.get_or_insert(self.deadlock(&waiting));
                }
                for id in waiting {
                    let Simulation { environment, programs, .. } = &mut *self.lock();
                    programs.end(&mut environment.kernel, id, "no event is left: every process waits");
                }
            }
        }
    }

    fn run_ready(&mut self) {
        loop {
            self.stack_restarted();
            let Some(id) = self.lock().programs.take_ready() else { return };
            let ended = self.stacks.resume(StackId(id.0)).expect("a thread for a process");
            if let Some(StackId(ended)) = ended {
                self.lock().on_process_returned(ProcessId(ended));
            }
        }
    }

    /// Reports whether any process may restart, by a future fault or with its host.
    fn may_restart(&self) -> bool {
        let simulation = self.lock();
        simulation.programs.may_restart(&simulation.environment.kernel)
    }

    fn deadlock(&self, waiting: &[ProcessId]) -> Deadlock {
        let simulation = self.lock();
        let Simulation { environment, programs, .. } = &*simulation;
        let waiting = waiting
            .iter()
            .map(|id| Waiting { spec: programs.process(*id).spec.clone(), what: programs.wait_text(environment, *id) });
        Deadlock { seconds: simulation.now().seconds(), waiting: waiting.collect() }
    }

    fn lock(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock at {} s: every process waits", self.seconds)?;
        for Waiting { spec, what } in &self.waiting {
            write!(f, "\n  {} on {} waits for {what}", spec.function, spec.host)?;
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

/// The error of a process in a deadlocked world.
impl From<Deadlock> for ProcessError {
    fn from(deadlock: Deadlock) -> ProcessError {
        ProcessError::Ended { why: deadlock.to_string() }
    }
}
