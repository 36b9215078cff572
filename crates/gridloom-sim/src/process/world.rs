//! The simulated world as one process sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_core::base::limits::{KIND_BYTES_MAX, LETTER_BYTES_MAX};
use gridloom_core::base::{NodeId, Time};
use gridloom_core::node::Event;
use gridloom_core::process::{Incoming, Letter, Level, PeerId, ProcessError, ProcessSpec, ProcessWorld};

use super::kernel::{ProcessId, Wait};
use super::stack::Suspender;
use crate::simulation::Simulation;

/// A process that was told to end and calls on, so often, is unwound.
const CALLS_AFTER_END_MAX: u32 = 100;

/// Where lines of the log go.
pub type Log = Arc<dyn Fn(Time, &ProcessSpec, Level, &str, &str) + Send + Sync>;

/// The world of a simulated process.
pub struct SimProcess {
    pub(super) id: ProcessId,
    pub(super) spec: ProcessSpec,
    pub(super) simulation: Arc<Mutex<Simulation>>,
    pub(super) suspender: Suspender,
    pub(super) log: Log,
    pub(super) calls_after_end: u32,
}

impl SimProcess {
    fn lock(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process was told to end: what it does afterwards is no failure of its own. For who outlives it.
    pub fn end_watch(&self) -> impl Fn() -> bool + Send + 'static {
        let (simulation, id) = (self.simulation.clone(), self.id);
        move || simulation.lock().unwrap_or_else(PoisonError::into_inner).process(id).end.is_some()
    }

    /// Blocks; what is waited for was said before.
    fn suspend(&mut self) -> Result<(), ProcessError> {
        self.suspender.suspend();
        self.check()
    }

    fn check(&mut self) -> Result<(), ProcessError> {
        let Some(why) = self.lock().process(self.id).end.clone() else { return Ok(()) };
        self.calls_after_end += 1;
        if self.calls_after_end > CALLS_AFTER_END_MAX {
            std::panic::resume_unwind(Box::new("a process went on after its end"));
        }
        Err(ProcessError::Ended { why })
    }

    /// The next event of a client that this process uses; `None` at `until`.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    pub fn next_event(&mut self, client: NodeId, until: Option<Time>) -> Result<Option<Event>, ProcessError> {
        loop {
            {
                let mut simulation = self.lock();
                if let Some(event) = simulation.node_mut(client).events.pop_front() {
                    return Ok(Some(event));
                }
                if until.is_some_and(|until| simulation.now() >= until) {
                    return Ok(None);
                }
                simulation.process_waits_until(self.id, Wait::Event { client }, until);
            }
            self.suspend()?;
        }
    }
}

impl ProcessWorld for SimProcess {
    fn spec(&self) -> &ProcessSpec {
        &self.spec
    }

    fn now(&self) -> Time {
        self.lock().now()
    }

    fn listen(&mut self, port: u16) -> Result<u16, ProcessError> {
        self.check()?;
        self.lock().process_listen(self.id, port)
    }

    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError> {
        self.check()?;
        self.lock().process_dials(self.id, host, port)?;
        self.suspend()?;
        let outcome = self.lock().process_connected(self.id);
        outcome.expect("a process that waits for a connection is woken by its outcome")
    }

    fn send(&mut self, peer: PeerId, letter: Letter) -> Result<(), ProcessError> {
        self.check()?;
        let (kind, size_bytes) = (letter.kind.to_string(), letter.payload.len() as u64);
        if size_bytes > LETTER_BYTES_MAX || kind.len() > KIND_BYTES_MAX {
            return Err(ProcessError::TooLarge { kind, size_bytes, limit: LETTER_BYTES_MAX });
        }
        while !self.lock().process_send(self.id, peer, &letter)? {
            self.lock().process_waits(self.id, Wait::Room { peer });
            self.suspend()?;
        }
        Ok(())
    }

    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError> {
        self.check()?;
        loop {
            {
                let mut simulation = self.lock();
                if let Some(incoming) = simulation.process_mut(self.id).inbox.pop_front() {
                    return Ok(Some(incoming));
                }
                if until.is_some_and(|until| simulation.now() >= until) {
                    return Ok(None);
                }
                simulation.process_waits_until(self.id, Wait::Incoming, until);
            }
            self.suspend()?;
        }
    }

    fn expect(&mut self, kind: Option<&str>, from: Option<PeerId>) {
        self.lock().process_expects(self.id, kind, from);
    }

    fn close(&mut self, peer: PeerId) {
        self.lock().process_close(self.id, peer);
    }

    fn describe(&self, peer: PeerId) -> String {
        self.lock().process_describe(self.id, peer)
    }

    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError> {
        self.check()?;
        self.lock().process_waits_until(self.id, Wait::Time, Some(at));
        self.suspend()
    }

    fn compute(&mut self, flops: f64) -> Result<(), ProcessError> {
        self.check()?;
        self.lock().process_computes(self.id, None, flops.max(0.0));
        self.suspend()
    }

    fn computed(&mut self, block: &str, real_ns: u64) -> Result<(), ProcessError> {
        self.check()?;
        let flops = self.lock().process_measured(self.id, block, real_ns);
        // If nothing can be charged the simulation has failed.
        let Some(flops) = flops else { return self.check() };
        self.lock().process_computes(self.id, Some(block), flops);
        self.suspend()
    }

    fn log(&mut self, level: Level, category: &str, text: &str) {
        let now = self.now();
        (self.log)(now, &self.spec, level, category, text);
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
