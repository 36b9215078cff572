//! Stacks on which user code blocks while other code runs: a scheduler resumes a stack, and the code on it suspends itself.
//!
//! A *coroutine* switches stacks within the scheduler's thread: for code of C and Rust. A *thread* holds a baton: for code
//! of an interpreter that wants a thread of its own. Which stack is ready, and how time moves, the owner says ([`Turns`]).
//!
//! **Invariant:** of the stacks of one [`Stacks`], one runs at a time, in the order that [`Turns`] gives, or the scheduler
//! does.
//!
//! **Not done.** Coroutines that move from thread to thread: the thread that begins one resumes it.

#![deny(unsafe_code)]

mod relay;
mod stack;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use relay::Relay;
use stack::Stack;
pub use stack::{STACK_BYTES, Suspender};

/// Number of a stack, of its owner's choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StackId(pub u32);

/// What kind of stack code has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackKind {
    /// A stack within the scheduler's thread.
    Coroutine,
    /// A thread with a baton.
    Thread,
}

/// Code that runs on a stack; it ends with this function.
pub type Start = Box<dyn FnOnce(Suspender) + Send>;

/// The order of turns. Called only by the scheduler, or by the thread of a stack that is about to suspend itself.
pub trait Turns: Send + Sync {
    /// The stack that is ready first, after whatever has to happen before one is; `None` if none will be any more.
    fn first_ready(&self) -> Option<StackId>;

    /// Takes that stack out of those that are ready: it is resumed now.
    fn take_first(&self);
}

/// The stacks of one scheduler.
pub struct Stacks {
    stacks: BTreeMap<StackId, Stack>,
    relay: Arc<Relay>,
}

impl Stacks {
    /// Without stacks yet.
    pub fn new(turns: Arc<dyn Turns>) -> Stacks {
        Stacks { stacks: BTreeMap::new(), relay: Arc::new(Relay::new(turns)) }
    }

    /// Adds a stack; its code begins when it is resumed for the first time.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn add(&mut self, id: StackId, kind: StackKind, start: Start) -> io::Result<()> {
        self.stacks.insert(id, Stack::new(kind, &self.relay, start)?);
        Ok(())
    }

    /// Stacks with code that has not ended, in order of their numbers.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.keys().copied()
    }

    /// Whether all code has ended.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Runs a stack until it suspends itself; threads then run others until the scheduler has to act. Returns the stack
    /// that has ended its code, if one has. A stack that is not there, or not any more, does nothing.
    ///
    /// # Errors
    /// If the system has no thread for it.
    ///
    /// # Panics
    /// If [`Turns`] panicked on another thread: with that panic.
    pub fn resume(&mut self, id: StackId) -> io::Result<Option<StackId>> {
        let Some(stack) = self.stacks.get_mut(&id) else { return Ok(None) };
        let Some(ended) = stack.resume(id)? else { return Ok(None) };
        if let Some(stack) = self.stacks.remove(&ended) {
            stack.join();
        }
        Ok(Some(ended))
    }

    /// Whether a thread found since the last call that no stack will be ready any more.
    pub fn take_stuck(&self) -> bool {
        self.relay.take_stuck()
    }
}
