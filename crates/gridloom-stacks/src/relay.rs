//! Passes the turn between threads: a thread that suspends itself finds the next stack and wakes its thread.
//!
//! The scheduler has its own thread, which starts, ends and joins the others. In between, a thread that suspends
//! itself asks [`Turns`] for the next stack and passes the turn to its thread: one thread switch per turn, or none if
//! the next stack is its own. It leaves everything else to the scheduler: coroutines, stacks that have not started,
//! panics, and the case that no stack is ready.
//!
//! **Invariant:** at any time one thread has the turn, and only it calls [`Turns`].

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use crate::{StackId, Turns};

/// The turns of one scheduler's threads.
pub(crate) struct Relay {
    turns: Arc<dyn Turns>,
    scheduler: Baton,
    state: Mutex<RelayState>,
}

#[derive(Default)]
struct RelayState {
    /// Batons of the stacks whose threads wait for their turn or have it.
    batons: BTreeMap<StackId, Arc<Baton>>,
    /// Results for the scheduler, which it reads when it gets the turn.
    ended: Option<StackId>,
    is_stuck: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl Relay {
    pub(crate) fn new(turns: Arc<dyn Turns>) -> Relay {
        Relay { turns, scheduler: Baton::default(), state: Mutex::default() }
    }

    /// Registers a stack that has a thread of its own. Returns the thread's baton.
    pub(crate) fn begin(&self, stack: StackId) -> Arc<Baton> {
        self.scheduler.belongs_to(std::thread::current());
        let baton = Arc::new(Baton::default());
        self.state().batons.insert(stack, baton.clone());
        baton
    }

    /// Removes a stack whose thread could not be created.
    pub(crate) fn forget(&self, stack: StackId) {
        self.state().batons.remove(&stack);
    }

    /// Passes the turn from the scheduler to a thread and waits to get it back. Returns the stack whose code has
    /// ended, if any.
    pub(crate) fn run(&self, baton: &Baton) -> Option<StackId> {
        self.scheduler.belongs_to(std::thread::current());
        baton.give();
        self.scheduler.wait();
        let panic = self.state().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        self.state().ended.take()
    }

    pub(crate) fn take_stuck(&self) -> bool {
        std::mem::take(&mut self.state().is_stuck)
    }

    /// Called by a stack's thread. Returns when it has the turn again.
    pub(crate) fn suspend(&self, own: &Arc<Baton>) {
        // A panic here was raised by `Turns` and not by the stack's code.
        match catch_unwind(AssertUnwindSafe(|| self.next())) {
            Ok(Some(next)) if Arc::ptr_eq(&next, own) => return,
            Ok(Some(next)) => next.give(),
            Ok(None) => self.scheduler.give(),
            Err(panic) => {
                self.state().panic = Some(panic);
                self.scheduler.give();
            }
        }
        own.wait();
    }

    /// Called by a stack's thread at its end.
    pub(crate) fn end(&self, stack: StackId) {
        let mut state = self.state();
        state.batons.remove(&stack);
        state.ended = Some(stack);
        drop(state);
        self.scheduler.give();
    }

    /// Takes the next ready stack if it has a thread, and returns its baton.
    fn next(&self) -> Option<Arc<Baton>> {
        let Some(next) = self.turns.first_ready() else {
            self.state().is_stuck = true;
            return None;
        };
        let baton = self.state().batons.get(&next)?.clone();
        self.turns.take_first();
        Some(baton)
    }

    fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's turn: set when the thread may run.
#[derive(Default)]
pub(crate) struct Baton {
    given: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Baton {
    /// Sets the thread that waits for this baton.
    pub(crate) fn belongs_to(&self, thread: Thread) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    fn give(&self) {
        self.given.store(true, Ordering::Release);
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    /// Waits until it is given.
    pub(crate) fn wait(&self) {
        while !self.given.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}
