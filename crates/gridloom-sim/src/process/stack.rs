//! Stacks of processes: where user code stands while others run.
//!
//! A *coroutine* switches stacks within the thread, for code of C and Rust; a *thread* holds a baton, for code of an
//! interpreter that wants a thread of its own. Both run only between `resume` and the next `suspend`.
//!
//! **Invariant:** at any time either the scheduler runs or one process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

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
    Thread { baton: Arc<Baton>, start: Option<Start>, thread: Option<JoinHandle<()>> },
}

/// Handed to the process: gives the turn back to the scheduler.
#[derive(Clone)]
pub(super) enum Suspender {
    Coroutine(YielderPointer),
    Thread(Arc<Baton>),
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
                // only the body holds the suspender, in a world that it cannot give away past its end.
                #[allow(unsafe_code, reason = "see above")]
                let yielder = unsafe { &*pointer.0 };
                yielder.suspend(());
            }
            Suspender::Thread(baton) => baton.give(Turn::Scheduler, Turn::Process),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Scheduler,
    Process,
    Over,
}

pub(super) struct Baton {
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Baton {
    /// Gives the turn away and waits until it is `until`'s, or over.
    fn give(&self, to: Turn, until: Turn) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = to;
        self.changed.notify_all();
        while *turn != until && *turn != Turn::Over {
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_over(&self) -> bool {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) == Turn::Over
    }

    fn end(&self) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Turn::Over;
        self.changed.notify_all();
    }
}

impl Stack {
    pub(super) fn new(kind: StackKind, start: Start) -> std::io::Result<Stack> {
        // What a process panics of is said where it does, and ends that process alone.
        let start: Start = Box::new(|suspender| drop(catch_unwind(AssertUnwindSafe(|| start(suspender)))));
        Ok(match kind {
            StackKind::Coroutine => {
                let stack = DefaultStack::new(STACK_BYTES)?;
                let body = move |yielder: &Yielder<(), ()>, ()| start(Suspender::Coroutine(YielderPointer(yielder)));
                Stack::Coroutine(Some(Coroutine::with_stack(stack, body)))
            }
            StackKind::Thread => {
                let baton = Arc::new(Baton { turn: Mutex::new(Turn::Scheduler), changed: Condvar::new() });
                Stack::Thread { baton, start: Some(start), thread: None }
            }
        })
    }

    /// Runs it until it suspends itself or ends; whether it has ended.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn resume(&mut self) -> std::io::Result<bool> {
        match self {
            Stack::Coroutine(coroutine) => {
                let Some(running) = coroutine else { return Ok(true) };
                let is_over = matches!(running.resume(()), CoroutineResult::Return(()));
                if is_over {
                    *coroutine = None;
                }
                Ok(is_over)
            }
            Stack::Thread { baton, start, thread } => {
                if let Some(start) = start.take() {
                    let held = baton.clone();
                    *baton.turn.lock().unwrap_or_else(PoisonError::into_inner) = Turn::Process;
                    *thread = Some(std::thread::Builder::new().name("process".into()).spawn(move || {
                        let end = EndsAtDrop(held.clone());
                        start(Suspender::Thread(held));
                        drop(end);
                    })?);
                    let mut turn = baton.turn.lock().unwrap_or_else(PoisonError::into_inner);
                    while *turn == Turn::Process {
                        turn = baton.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
                    }
                } else if !baton.is_over() {
                    baton.give(Turn::Process, Turn::Scheduler);
                }
                let is_over = baton.is_over();
                if let Some(thread) = thread.take_if(|_| is_over) {
                    // A panic was printed where it happened.
                    let _ = thread.join();
                }
                Ok(is_over)
            }
        }
    }
}

/// Whatever happens, the scheduler gets the turn back.
struct EndsAtDrop(Arc<Baton>);

impl Drop for EndsAtDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
