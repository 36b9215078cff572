//! Stacks on which user code can block while other code runs: a scheduler resumes a stack, and the code on it
//! suspends itself.
//!
//! A *coroutine* switches stacks within the scheduler's thread, for C and Rust code. A *thread* holds a baton, for
//! code of an interpreter that needs a thread of its own. The owner decides which stack is ready and how time advances
//! ([`Turns`]).
//!
//! **Invariant:** of the stacks of one [`Stacks`], only one runs at a time, in the order that [`Turns`] or the
//! scheduler decides.
//!
//! **Does not do:** coroutines never move between threads; a coroutine is resumed by the thread that started it.

#![deny(unsafe_code)]

mod relay;
mod stack;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use relay::Relay;
use stack::Stack;
pub use stack::{STACK_BYTES, Suspender};

/// Number of a stack, chosen by its owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StackId(pub u32);

/// The kind of stack that code runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackKind {
    /// A stack within the scheduler's thread.
    Coroutine,
    /// A thread with a baton.
    Thread,
}

/// Code that runs on a stack. The stack ends when it returns.
pub type StackBody = Box<dyn FnOnce(Suspender) + Send>;

/// The order of turns. Called only by the scheduler, or by the thread of a stack that is about to suspend itself.
pub trait Turns: Send + Sync {
    /// Returns the next ready stack, after processing all events needed until one is ready. `None` if no stack will
    /// ever be ready.
    fn first_ready(&self) -> Option<StackId>;

    /// Removes that stack from the ready ones, because it is resumed now.
    fn take_first(&self);
}

/// The stacks of one scheduler.
pub struct Stacks {
    stacks: BTreeMap<StackId, Stack>,
    relay: Arc<Relay>,
}

impl Stacks {
    /// Starts without stacks.
    pub fn new(turns: Arc<dyn Turns>) -> Stacks {
        Stacks { stacks: BTreeMap::new(), relay: Arc::new(Relay::new(turns)) }
    }

    /// Adds a stack. Its code starts when it is resumed for the first time.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn add(&mut self, id: StackId, kind: StackKind, start: StackBody) -> io::Result<()> {
        self.stacks.insert(id, Stack::new(kind, &self.relay, start)?);
        Ok(())
    }

    /// Returns the stacks whose code has not ended, in order of their numbers.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.keys().copied()
    }

    /// True if all code has ended.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Runs a stack until it suspends itself; threads then run others until the scheduler has to act. Returns the
    /// stack whose code has ended, if any. Does nothing for a stack that does not exist or no longer exists.
    ///
    /// # Errors
    /// If the system cannot create its thread.
    ///
    /// # Panics
    /// If [`Turns`] panicked on another thread: with the same panic.
    pub fn resume(&mut self, id: StackId) -> io::Result<Option<StackId>> {
        let Some(stack) = self.stacks.get_mut(&id) else { return Ok(None) };
        let Some(ended) = stack.resume(id)? else { return Ok(None) };
        if let Some(stack) = self.stacks.remove(&ended) {
            stack.join();
        }
        Ok(Some(ended))
    }

    /// True if a thread has found, since the last call, that no stack will ever be ready.
    pub fn take_stuck(&self) -> bool {
        self.relay.take_stuck()
    }
}
