//! A simulated process's world: while its code blocks, other processes run, and before it continues its globals are restored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::Time;
use gridloom_process::{Incoming, Level, PeerId, ProcessError, ProcessMessage, ProcessSpec, ProcessWorld};

use crate::current::SavedContext;
use crate::globals::Globals;
use crate::overflow;

/// The variables of all processes, if each has its own.
pub(crate) type Shared = Option<Arc<Mutex<Globals>>>;

pub(crate) fn lock(globals: &Arc<Mutex<Globals>>) -> MutexGuard<'_, Globals> {
    globals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process's place among the others, while its code runs.
#[derive(Clone, Debug)]
pub(crate) struct ProcessPlace {
    globals: Shared,
    number: usize,
    /// Approximate start of its stack.
    stack: usize,
    was_told_to_end: Arc<AtomicBool>,
}

impl ProcessPlace {
    /// Returns the place of a new process whose stack starts at that address.
    pub(crate) fn enter(globals: &Shared, stack: usize, now: Time) -> Result<ProcessPlace, String> {
        let number = globals.as_ref().map_or(Ok(0), |globals| lock(globals).enter())?;
        overflow::set_stack_top(stack);
        overflow::set_time(now);
        Ok(ProcessPlace { globals: globals.clone(), number, stack, was_told_to_end: Arc::default() })
    }

    /// True if its world ends and has notified it.
    pub(crate) fn was_told_to_end(&self) -> bool {
        self.was_told_to_end.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        if let Some(globals) = &self.globals {
            lock(globals).leave(self.number);
        }
    }
}

/// A world that may let other processes run during its calls.
pub(crate) struct SwitchingWorld {
    pub(crate) inner: Box<dyn ProcessWorld>,
    pub(crate) place: ProcessPlace,
}

/// Restores this process when dropped, also when the call is unwound, because its C frames are unwound next.
struct ProcessRestore<'a>(&'a ProcessPlace, #[allow(dead_code, reason = "it acts when dropped")] SavedContext);

impl Drop for ProcessRestore<'_> {
    fn drop(&mut self) {
        if let Some(globals) = &self.0.globals {
            lock(globals).switch_to(self.0.number);
        }
        overflow::set_stack_top(self.0.stack);
    }
}

impl SwitchingWorld {
    fn blocks<R>(
        &mut self,
        call: impl FnOnce(&mut dyn ProcessWorld) -> Result<R, ProcessError>,
    ) -> Result<R, ProcessError> {
        let back = ProcessRestore(&self.place, SavedContext::new());
        let result = call(&mut *self.inner);
        drop(back);
        overflow::set_time(self.inner.now());
        if let Err(ProcessError::Ended { .. }) = &result {
            self.place.was_told_to_end.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl ProcessWorld for SwitchingWorld {
    fn spec(&self) -> &ProcessSpec {
        self.inner.spec()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn listen(&mut self, port: u16) -> Result<u16, ProcessError> {
        self.inner.listen(port)
    }

    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError> {
        self.blocks(|world| world.connect(host, port))
    }

    fn send(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        self.blocks(|world| world.send(peer, letter))
    }

    fn offer(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<Option<ProcessMessage>, ProcessError> {
        self.blocks(|world| world.offer(peer, letter))
    }

    fn send_urgent(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        self.blocks(|world| world.send_urgent(peer, letter))
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        self.inner.take_buffer()
    }

    fn return_buffer(&mut self, payload: Vec<u8>) {
        self.inner.return_buffer(payload);
    }

    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError> {
        self.blocks(|world| world.receive(until))
    }

    fn set_expected(&mut self, kind: Option<&str>, from: Option<PeerId>) {
        self.inner.set_expected(kind, from);
    }

    fn close(&mut self, peer: PeerId) {
        self.inner.close(peer);
    }

    fn is_closed(&self, peer: PeerId) -> bool {
        self.inner.is_closed(peer)
    }

    fn why_closed(&self, peer: PeerId) -> String {
        self.inner.why_closed(peer)
    }

    fn describe(&self, peer: PeerId) -> String {
        self.inner.describe(peer)
    }

    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError> {
        self.blocks(|world| world.sleep_until(at))
    }

    fn account_flops(&mut self, flops: f64) -> Result<(), ProcessError> {
        self.blocks(|world| world.account_flops(flops))
    }

    fn account_computed(&mut self, block: &str, real_ns: u64) -> Result<f64, ProcessError> {
        self.blocks(|world| world.account_computed(block, real_ns))
    }

    fn log(&mut self, level: Level, category: &str, text: &str) {
        self.inner.log(level, category, text);
    }

    fn is_simulated(&self) -> bool {
        self.inner.is_simulated()
    }
}
