//! Turns of stacks on threads: a thread that suspends itself finds the next stack and wakes its thread.
//!
//! The scheduler has a thread of its own, which begins, ends and joins. In between, a thread that suspends itself asks
//! [`Turns`] for the next stack and gives its thread the turn: one change of threads for each, or none if the next stack is
//! its own. It leaves the rest to the scheduler: coroutines, stacks that have not begun, panics, and that no stack is ready.
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the stacks with threads that wait for their turn or have it.
    batons: BTreeMap<StackId, Arc<Baton>>,
    /// What the scheduler has to know when it gets the turn.
    ended: Option<StackId>,
    is_stuck: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl Relay {
    pub(crate) fn new(turns: Arc<dyn Turns>) -> Relay {
        Relay { turns, scheduler: Baton::default(), state: Mutex::default() }
    }

    /// A thread for this stack exists; it has the turn as soon as it asks for it.
    pub(crate) fn begin(&self, stack: StackId) -> Arc<Baton> {
        self.scheduler.belongs_to(std::thread::current());
        let baton = Arc::new(Baton::default());
        self.state().batons.insert(stack, baton.clone());
        baton
    }

    /// Forgets a stack for which no thread could be made.
    pub(crate) fn forget(&self, stack: StackId) {
        self.state().batons.remove(&stack);
    }

    /// The scheduler gives the turn to a thread, and gets it back: with the stack that has ended its code, if one has.
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

    /// Called by a stack's thread: returns when it is its turn again.
    pub(crate) fn suspend(&self, own: &Arc<Baton>) {
        // A panic here is that of `Turns`, not of the stack's code.
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

    /// Takes the next that is ready, if it has a thread.
    fn next(&self) -> Option<Arc<Baton>> {
        let Some(next) = self.turns.first_ready() else {
            self.state().is_stuck = true;
            return None;
        };
        let baton = self.state().batons.get(&next)?.clone();
        self.turns.take_first();
        Some(baton)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it is a thread's turn.
#[derive(Default)]
pub(crate) struct Baton {
    given: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Baton {
    /// From now on, that thread waits for it.
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
