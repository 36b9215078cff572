//! The simulated world as seen by one process.

use std::sync::{Arc, MutexGuard};

use gridloom_base::{NodeId, Time};
use gridloom_core::node::Event;
use gridloom_process::{Incoming, Level, PeerId, ProcessError, ProcessMessage, ProcessSpec, ProcessWorld};

use super::context::ProcessContext;
use super::id::ProcessId;
use super::table::Wait;
use crate::observe::Lane;
use crate::simulation::Simulation;

/// The receiver of log lines.
pub type Log = Arc<dyn Fn(Time, &ProcessSpec, Level, &str, &str) + Send + Sync>;

/// The world of a simulated process.
pub struct SimProcess {
    pub(super) context: ProcessContext,
    pub(super) spec: ProcessSpec,
    pub(super) log: Log,
}

impl SimProcess {
    pub fn context(&self) -> &ProcessContext {
        &self.context
    }

    fn lock(&self) -> MutexGuard<'_, Simulation> {
        self.context.simulation()
    }

    /// Returns a function that reports whether this process was requested to end; later failures are then not its own.
    /// The function may outlive the process.
    pub fn end_watch(&self) -> impl Fn() -> bool + Send + 'static {
        let context = self.context.clone();
        move || context.simulation().programs.process(context.process()).must_end()
    }

    /// Returns a function that returns the current time. It may outlive the process.
    pub fn clock(&self) -> impl Fn() -> Time + Send + 'static {
        let context = self.context.clone();
        move || context.simulation().now()
    }

    fn id(&self) -> ProcessId {
        self.context.process()
    }

    fn check(&self) -> Result<(), ProcessError> {
        self.context.check()
    }

    /// Sends on a lane. Returns the message if the lane does not accept it now.
    fn offer_by(
        &self,
        lane: Lane,
        peer: PeerId,
        letter: ProcessMessage,
    ) -> Result<Option<ProcessMessage>, ProcessError> {
        let Simulation { environment, programs, .. } = &mut *self.lock();
        programs.send(environment, self.id(), peer, lane, letter)
    }

    /// Sends on a lane. Waits until the lane accepts the message.
    fn send_by(&mut self, lane: Lane, peer: PeerId, mut letter: ProcessMessage) -> Result<(), ProcessError> {
        let id = self.id();
        loop {
            self.check()?;
            let refused = self.offer_by(lane, peer, letter)?;
            let Some(back) = refused else { return Ok(()) };
            letter = back;
            self.context.suspend(|Simulation { environment, programs, .. }| {
                programs.wait(environment, id, Wait::Room { peer }, None);
                Ok(())
            })?;
        }
    }

    /// Returns the next event of a client that this process uses; `None` at `until`.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    pub fn next_event(&mut self, client: NodeId, until: Option<Time>) -> Result<Option<Event>, ProcessError> {
        self.context.next_event(client, until)
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
        self.lock().programs.listen(self.id(), port)
    }

    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError> {
        self.check()?;
        let id = self.id();
        self.context.suspend(|Simulation { environment, programs, .. }| programs.dial(environment, id, host, port))?;
        let outcome = self.lock().programs.take_connected(id);
        outcome.expect("a process that waits for a connection is woken by its outcome")
    }

    fn send(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        self.check()?;
        letter.check()?;
        self.send_by(Lane::Bulk, peer, letter)
    }

    fn offer(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<Option<ProcessMessage>, ProcessError> {
        self.check()?;
        letter.check()?;
        self.offer_by(Lane::Bulk, peer, letter)
    }

    fn send_urgent(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        self.check()?;
        letter.check_urgent()?;
        self.send_by(Lane::Urgent, peer, letter)
    }

    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError> {
        self.check()?;
        loop {
            {
                let mut simulation = self.lock();
                if let Some(incoming) = simulation.programs.read(self.id()) {
                    return Ok(Some(incoming));
                }
                if until.is_some_and(|until| simulation.now() >= until) {
                    return Ok(None);
                }
            }
            let id = self.id();
            self.context.suspend(|Simulation { environment, programs, .. }| {
                programs.wait(environment, id, Wait::Incoming, until);
                Ok(())
            })?;
        }
    }

    fn set_expected(&mut self, kind: Option<&str>, from: Option<PeerId>) {
        self.lock().programs.expect(self.id(), kind, from);
    }

    fn close(&mut self, peer: PeerId) {
        let Simulation { environment, programs, .. } = &mut *self.lock();
        programs.close(environment, self.id(), peer);
    }

    fn is_closed(&self, peer: PeerId) -> bool {
        self.lock().programs.is_closed(self.id(), peer)
    }

    fn why_closed(&self, peer: PeerId) -> String {
        self.lock().programs.why_closed(self.id(), peer)
    }

    fn describe(&self, peer: PeerId) -> String {
        self.lock().programs.describe(self.id(), peer)
    }

    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError> {
        self.context.sleep_until(at)
    }

    fn account_flops(&mut self, flops: f64) -> Result<(), ProcessError> {
        self.check()?;
        let id = self.id();
        self.context.suspend(|Simulation { environment, programs, .. }| {
            programs.compute(&mut environment.kernel, id, None, flops.max(0.0));
            Ok(())
        })
    }

    fn account_computed(&mut self, block: &str, real_ns: u64) -> Result<f64, ProcessError> {
        self.check()?;
        let id = self.id();
        let flops = {
            let Simulation { environment, programs, .. } = &mut *self.lock();
            programs.charge(&mut environment.kernel, id, block, real_ns)
        };
        // If nothing can be charged, the simulation has failed.
        let Some(flops) = flops else { return self.check().map(|()| 0.0) };
        self.context.suspend(|Simulation { environment, programs, .. }| {
            programs.compute(&mut environment.kernel, id, Some(block), flops);
            Ok(())
        })?;
        Ok(flops)
    }

    fn log(&mut self, level: Level, category: &str, text: &str) {
        let now = self.now();
        (self.log)(now, &self.spec, level, category, text);
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
