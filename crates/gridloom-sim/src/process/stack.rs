//! Stacks of processes: where user code stands while others run.
//!
//! A *coroutine* switches stacks within the thread, for code of C and Rust; a *thread* holds a baton, for code of an
//! interpreter that wants a thread of its own. Both run only between `resume` and the next `suspend`.
//!
//! **Invariant:** at any time either the scheduler runs or one process. Threads hand the baton to one another ([`relay`]).
//!
//! [`relay`]: super::relay

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::kernel::ProcessId;
use super::relay::{Baton, Relay};

/// Bytes of a coroutine's stack, enough for C code with arrays in its frames; pages are made as they are touched.
pub const STACK_BYTES: usize = 1 << 20;

/// What kind of stack a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackKind {
    /// A stack within the scheduler's thread.
    Coroutine,
    /// A thread with a baton.
    Thread,
}

pub(super) type Start = Box<dyn FnOnce(Suspender) + Send>;

pub(super) enum Stack {
    Coroutine(Option<Coroutine<(), (), ()>>),
    Thread { relay: Arc<Relay>, turn: Option<(Arc<Baton>, JoinHandle<()>)>, start: Option<Start> },
}

/// Handed to the process: gives the turn away.
#[derive(Clone)]
pub(super) enum Suspender {
    Coroutine(YielderPointer),
    Thread(Arc<Relay>, Arc<Baton>),
}

/// The yielder of a coroutine, which lives as long as its body.
#[derive(Clone, Copy)]
pub(super) struct YielderPointer(*const Yielder<(), ()>);

// SAFETY: dereferenced only in `suspend`, by the body of the coroutine, which runs on one thread at a time: the
// scheduler's, which resumes it.
#[allow(unsafe_code, reason = "a coroutine's body has no other way to keep its yielder")]
unsafe impl Send for YielderPointer {}

impl Suspender {
    /// Returns when the process is resumed.
    pub(super) fn suspend(&self) {
        match self {
            Suspender::Coroutine(pointer) => {
                // SAFETY: the pointer was made from the reference that the body of this coroutine got, and outlives it;
                // suspenders are used only where `seat` says that the body runs.
                #[allow(unsafe_code, reason = "see above")]
                let yielder = unsafe { &*pointer.0 };
                super::seat::away(|| yielder.suspend(()));
            }
            Suspender::Thread(relay, baton) => relay.suspend(baton),
        }
    }
}

impl Stack {
    pub(super) fn new(kind: StackKind, relay: &Arc<Relay>, start: Start) -> std::io::Result<Stack> {
        // What a process panics of is said where it does, and ends that process alone.
        let start: Start = Box::new(|suspender| drop(catch_unwind(AssertUnwindSafe(|| start(suspender)))));
        Ok(match kind {
            StackKind::Coroutine => {
                let stack = DefaultStack::new(STACK_BYTES)?;
                let body = move |yielder: &Yielder<(), ()>, ()| start(Suspender::Coroutine(YielderPointer(yielder)));
                Stack::Coroutine(Some(Coroutine::with_stack(stack, body)))
            }
            StackKind::Thread => Stack::Thread { relay: relay.clone(), turn: None, start: Some(start) },
        })
    }

    /// Runs the process, and others on threads after it, until the scheduler has to do something; who has ended.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn resume(&mut self, process: ProcessId) -> std::io::Result<Option<ProcessId>> {
        match self {
            Stack::Coroutine(coroutine) => {
                let Some(running) = coroutine else { return Ok(Some(process)) };
                let is_over = matches!(running.resume(()), CoroutineResult::Return(()));
                if is_over {
                    *coroutine = None;
                }
                Ok(is_over.then_some(process))
            }
            Stack::Thread { relay, turn, start } => {
                if let Some(start) = start.take() {
                    let baton = relay.begin(process);
                    let (held, passed) = (baton.clone(), relay.clone());
                    let body = move || {
                        held.wait();
                        let end = EndsAtDrop(passed.clone(), process);
                        start(Suspender::Thread(passed, held));
                        drop(end);
                    };
                    let thread = std::thread::Builder::new().name("process".into()).spawn(body);
                    let thread = thread.inspect_err(|_| relay.forget(process))?;
                    baton.belongs_to(thread.thread().clone());
                    *turn = Some((baton, thread));
                }
                let (baton, _) = turn.as_ref().expect("a process that has begun has a thread");
                Ok(relay.run(baton))
            }
        }
    }

    /// Waits for what is left of it after its end.
    pub(super) fn bury(self) {
        if let Stack::Thread { turn: Some((_, thread)), .. } = self {
            // A panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// Whatever happens, the scheduler gets the turn back.
struct EndsAtDrop(Arc<Relay>, ProcessId);

impl Drop for EndsAtDrop {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}
