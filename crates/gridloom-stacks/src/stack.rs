//! One stack, and the handle by which its code suspends itself. The only file of the crate with `unsafe`.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::relay::{Baton, Relay};
use crate::{StackBody, StackId, StackKind};

/// Size of a coroutine's stack in bytes: enough for C code with arrays in its frames. Pages are allocated when they
/// are touched.
pub const STACK_BYTES: usize = 1 << 20;

thread_local! {
    /// The yielder of the coroutine that runs on this thread.
    static RUNNING: Cell<Option<*const Yielder<(), ()>>> = const { Cell::new(None) };
}

pub(crate) enum Stack {
    Coroutine(Option<Coroutine<(), (), ()>>),
    Thread { relay: Arc<Relay>, turn: Option<(Arc<Baton>, JoinHandle<()>)>, start: Option<StackBody> },
}

/// Suspends a stack. Passed to the stack's code, which alone may use it.
#[derive(Clone)]
pub struct Suspender(SuspenderKind);

#[derive(Clone)]
enum SuspenderKind {
    Coroutine,
    Thread(Arc<Relay>, Arc<Baton>),
}

impl Suspender {
    /// Suspends the stack; returns when it is resumed.
    ///
    /// # Panics
    /// If this belongs to a coroutine and no coroutine runs on this thread.
    pub fn suspend(&self) {
        match &self.0 {
            SuspenderKind::Coroutine => {
                let running = RUNNING.take();
                let pointer = running.expect("a coroutine suspends itself where it runs");
                // SAFETY: `RUNNING` is set only while the body that got this yielder runs on this thread, and the
                // yielder lives as long as the body.
                #[allow(unsafe_code, reason = "a coroutine's body has no other way to keep its yielder")]
                let yielder = unsafe { &*pointer };
                yielder.suspend(());
                RUNNING.set(running);
            }
            SuspenderKind::Thread(relay, baton) => relay.suspend(baton),
        }
    }
}

impl Stack {
    pub(crate) fn new(kind: StackKind, relay: &Arc<Relay>, start: StackBody) -> io::Result<Stack> {
        // A panic of the code is printed where it happens and ends only that code.
        let start: StackBody = Box::new(|suspender| drop(catch_unwind(AssertUnwindSafe(|| start(suspender)))));
        Ok(match kind {
            StackKind::Coroutine => {
                let body = move |yielder: &Yielder<(), ()>, ()| {
                    RUNNING.set(Some(yielder));
                    start(Suspender(SuspenderKind::Coroutine));
                };
                Stack::Coroutine(Some(Coroutine::with_stack(DefaultStack::new(STACK_BYTES)?, body)))
            }
            StackKind::Thread => Stack::Thread { relay: relay.clone(), turn: None, start: Some(start) },
        })
    }

    /// Runs the code, and then others on threads, until the scheduler has to act. Returns the stack whose code has
    /// ended.
    ///
    /// # Errors
    /// If its thread cannot be created.
    pub(crate) fn resume(&mut self, own: StackId) -> io::Result<Option<StackId>> {
        match self {
            Stack::Coroutine(coroutine) => {
                let Some(running) = coroutine else { return Ok(Some(own)) };
                // A coroutine may resume those of another scheduler.
                let outer = RUNNING.take();
                let is_over = matches!(running.resume(()), CoroutineResult::Return(()));
                RUNNING.set(outer);
                if is_over {
                    *coroutine = None;
                }
                Ok(is_over.then_some(own))
            }
            Stack::Thread { relay, turn, start } => {
                if let Some(start) = start.take() {
                    let baton = relay.begin(own);
                    let (held, passed) = (baton.clone(), relay.clone());
                    let body = move || {
                        held.wait();
                        let end = TurnGuard(passed.clone(), own);
                        start(Suspender(SuspenderKind::Thread(passed, held)));
                        drop(end);
                    };
                    let thread = std::thread::Builder::new().name("process".into()).spawn(body);
                    let thread = thread.inspect_err(|_| relay.forget(own))?;
                    baton.belongs_to(thread.thread().clone());
                    *turn = Some((baton, thread));
                }
                let (baton, _) = turn.as_ref().expect("a stack that has begun has a thread");
                Ok(relay.run(baton))
            }
        }
    }

    /// Joins the thread of a stack whose code has ended.
    pub(crate) fn join(self) {
        if let Stack::Thread { turn: Some((_, thread)), .. } = self {
            // The panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// Returns the turn to the scheduler when it is dropped, even after a panic.
struct TurnGuard(Arc<Relay>, StackId);

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;
    use crate::{Stacks, Turns};

    /// A stack is ready as soon as it is in this queue.
    #[derive(Default)]
    struct Ready(Mutex<VecDeque<StackId>>);

    impl Turns for Ready {
        fn first_ready(&self) -> Option<StackId> {
            self.0.lock().unwrap().front().copied()
        }

        fn take_first(&self) {
            self.0.lock().unwrap().pop_front();
        }
    }

    #[test]
    fn stacks_run_in_the_order_of_turns_on_either_kind() {
        for kinds in [[StackKind::Coroutine; 2], [StackKind::Thread; 2], [StackKind::Thread, StackKind::Coroutine]] {
            let ready = Arc::new(Ready::default());
            let mut stacks = Stacks::new(ready.clone());
            let said = Arc::new(Mutex::new(String::new()));
            for (id, kind) in (0..).map(StackId).zip(kinds) {
                let (ready, said) = (ready.clone(), said.clone());
                let start = move |suspender: Suspender| {
                    for round in 0..3 {
                        said.lock().unwrap().push_str(&format!("{}{round} ", id.0));
                        ready.0.lock().unwrap().push_back(id);
                        suspender.suspend();
                    }
                };
                stacks.add(id, kind, Box::new(start)).unwrap();
            }
            ready.0.lock().unwrap().extend([StackId(0), StackId(1)]);
            while let Some(id) = ready.first_ready() {
                ready.take_first();
                stacks.resume(id).unwrap();
            }
            assert!(stacks.is_empty());
            assert_eq!(*said.lock().unwrap(), "00 10 01 11 02 12 ", "{kinds:?}");
        }
    }

    #[test]
    fn a_panic_ends_its_own_stack_alone() {
        for kind in [StackKind::Coroutine, StackKind::Thread] {
            let mut stacks = Stacks::new(Arc::new(Ready::default()));
            stacks.add(StackId(7), kind, Box::new(|_| std::panic::resume_unwind(Box::new("an end")))).unwrap();
            assert_eq!(stacks.resume(StackId(7)).unwrap(), Some(StackId(7)));
            assert!(stacks.is_empty() && stacks.resume(StackId(7)).unwrap().is_none());
        }
    }

    #[test]
    #[should_panic(expected = "a coroutine suspends itself where it runs")]
    fn a_coroutines_suspender_does_nothing_elsewhere() {
        let mut stacks = Stacks::new(Arc::new(Ready::default()));
        let taken = Arc::new(Mutex::new(None));
        let kept = taken.clone();
        let start = move |suspender| *kept.lock().unwrap() = Some(suspender);
        stacks.add(StackId(1), StackKind::Coroutine, Box::new(start)).unwrap();
        stacks.resume(StackId(1)).unwrap();
        let suspender: Suspender = taken.lock().unwrap().take().unwrap();
        suspender.suspend();
    }
}
