//! The scheduler: runs whoever is ready, in order, and lets time move when nobody is.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_core::base::Time;
use gridloom_core::platform::HostId;
use gridloom_core::process::{ProcessError, ProcessSpec};

use super::kernel::ProcessId;
use super::relay::{Relay, advance};
use super::seat::{self, Common, Seat};
use super::stack::{Stack, StackKind, Suspender};
use super::world::{Log, SimProcess};
use crate::simulation::Simulation;

/// A process's code.
pub type Body = Box<dyn FnOnce(SimProcess) + Send>;
/// Gives a process's code anew, each time that it starts.
pub type Make = Box<dyn Fn() -> Body + Send>;

/// A process that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Who.
    pub spec: ProcessSpec,
    /// For what, in words.
    pub what: String,
}

/// Nobody can go on.
#[derive(Clone, PartialEq, Debug)]
pub struct Deadlock {
    /// Virtual seconds.
    pub seconds: f64,
    /// Who waits for what.
    pub waiting: Vec<Waiting>,
}

/// Runs the processes of a simulation.
pub struct Runner {
    simulation: Arc<Mutex<Simulation>>,
    stacks: BTreeMap<ProcessId, Stack>,
    relay: Arc<Relay>,
    log: Log,
    common: Option<Common>,
    /// Those that start again with their hosts.
    restarting: BTreeMap<ProcessId, (StackKind, Make)>,
}

impl Runner {
    /// Without processes yet.
    pub fn new(simulation: Arc<Mutex<Simulation>>, log: Log) -> Runner {
        let relay = Arc::new(Relay::new(simulation.clone()));
        Runner { simulation, stacks: BTreeMap::new(), relay, log, common: None, restarting: BTreeMap::new() }
    }

    /// What processes that are added from now on share beside the simulation; their [`Seat`]s have it.
    pub fn share(&mut self, common: Common) {
        self.common = Some(common);
    }

    /// Adds a process.
    ///
    /// # Errors
    /// If there is no memory for its stack.
    pub fn add(
        &mut self,
        host: HostId,
        spec: ProcessSpec,
        start: Time,
        kind: StackKind,
        body: Body,
    ) -> io::Result<ProcessId> {
        let id = self.lock().add_process(host, spec.clone(), start);
        self.stack(id, spec, kind, body)?;
        Ok(id)
    }

    /// Adds a process that starts anew, as another one, when its host was off and is on again.
    ///
    /// # Errors
    /// As [`Runner::add`].
    pub fn add_restarting(
        &mut self,
        host: HostId,
        spec: ProcessSpec,
        start: Time,
        kind: StackKind,
        make: Make,
    ) -> io::Result<ProcessId> {
        let id = self.add_remade(host, spec, start, kind, make)?;
        self.lock().process_mut(id).restarts = true;
        Ok(id)
    }

    /// Adds a process that can start anew, as another one, if a fault restarts it; not with its host.
    ///
    /// # Errors
    /// As [`Runner::add`].
    pub fn add_remade(
        &mut self,
        host: HostId,
        spec: ProcessSpec,
        start: Time,
        kind: StackKind,
        make: Make,
    ) -> io::Result<ProcessId> {
        let id = self.add(host, spec, start, kind, make())?;
        self.restarting.insert(id, (kind, make));
        Ok(id)
    }

    fn stack(&mut self, id: ProcessId, spec: ProcessSpec, kind: StackKind, body: Body) -> io::Result<()> {
        let (seat, log) = (Seat::new(id, self.simulation.clone(), self.common.clone()), self.log.clone());
        let start = move |suspender: Suspender| {
            let here = seat::enter(seat.clone(), suspender);
            // Who has to end before it has begun does nothing.
            if seat.check().is_ok() {
                body(SimProcess { seat, spec, log });
            }
            drop(here);
        };
        self.stacks.insert(id, Stack::new(kind, &self.relay, Box::new(start))?);
        Ok(())
    }

    /// Gives stacks to processes that the simulation has started anew.
    fn revive(&mut self) {
        let reborn = std::mem::take(&mut self.lock().processes.reborn);
        for (id, before) in reborn {
            let Some((kind, make)) = self.restarting.remove(&before) else { continue };
            let spec = self.lock().process(id).spec.clone();
            self.stack(id, spec, kind, make()).expect("memory for the stack of a process that starts anew");
            self.restarting.insert(id, (kind, make));
        }
    }

    /// Kills a process at that time.
    pub fn kill_at(&mut self, id: ProcessId, at: Time) {
        self.lock().kill_process_at(id, at);
    }

    /// Runs until all processes have ended.
    ///
    /// # Errors
    /// If nobody can go on: those that wait are then told to end.
    ///
    /// # Panics
    /// If a process panics on a coroutine, or the system has no thread for one.
    pub fn run(&mut self) -> Result<(), Deadlock> {
        let mut deadlock = None;
        loop {
            self.run_ready();
            if self.stacks.is_empty() && !self.lock().may_restart_process() {
                return deadlock.map_or(Ok(()), Err);
            }
            let moved = !self.relay.take_stuck() && advance(&mut self.lock());
            if !moved && self.stacks.is_empty() {
                return deadlock.map_or(Ok(()), Err);
            }
            if !moved {
                // Who hangs because a fault says so waits for nothing.
                if !self.stacks.keys().all(|id| self.lock().is_stopped(*id)) {
                    deadlock.get_or_insert(self.deadlock());
                }
                let waiting: Vec<ProcessId> = self.stacks.keys().copied().collect();
                for id in waiting {
                    self.lock().end_process(id, "nothing can happen any more: every process waits");
                }
            }
        }
    }

    fn run_ready(&mut self) {
        loop {
            self.revive();
            let Some(id) = self.lock().processes.ready.pop_front() else { return };
            let Some(stack) = self.stacks.get_mut(&id) else { continue };
            let over = stack.resume(id).expect("a thread for a process");
            if let Some((over, stack)) = over.and_then(|over| self.stacks.remove_entry(&over)) {
                stack.bury();
                self.lock().process_over(over);
            }
        }
    }

    fn deadlock(&self) -> Deadlock {
        let simulation = self.lock();
        let waiting = self.stacks.keys().map(|id| {
            let process = simulation.process(*id);
            let what = process.wait.as_ref().map(|wait| simulation.process_wait_text(*id, wait));
            let what = what.unwrap_or_else(|| "its turn".into());
            Waiting { spec: process.spec.clone(), what }
        });
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

/// Error of a process whose world is a deadlock's.
impl From<Deadlock> for ProcessError {
    fn from(deadlock: Deadlock) -> ProcessError {
        ProcessError::Ended { why: deadlock.to_string() }
    }
}
