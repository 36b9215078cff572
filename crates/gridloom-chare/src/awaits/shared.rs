//! State shared between a chare and its waiting methods.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use gridloom_base::Time;

use super::pipes::{Channels, Key};
use super::replies::Replies;
use crate::chare::{Chare, Context};
use crate::core::Core;
use crate::id::{ArrayId, Index, Pe};
use crate::placement::Elements;
use crate::waiting_methods::Woken;

/// An action that a method requests from its chare.
pub(super) type Action<C> = Box<dyn FnOnce(&mut Context<'_, C>)>;

/// The kind of thing a method waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum AwaitedKind {
    Message,
    Reply,
    OnChannel(Key),
}

pub(super) struct Shared<C: Chare> {
    pub(super) array: ArrayId,
    pub(super) index: Index,
    pub(super) element: Pe,
    pub(super) elements: Arc<Elements>,
    clock: Rc<dyn Fn() -> Time>,
    pub(super) inbox: RefCell<Inbox<C::Message>>,
    pub(super) replies: RefCell<Replies>,
    pub(super) pipes: RefCell<Channels>,
    /// The chare, while its methods are being polled.
    chare: RefCell<Option<C>>,
    actions: RefCell<Vec<Action<C>>>,
    /// Set when there is an action. An entry method may also request one, through a context that the chare has stored.
    woken: Woken,
    /// The futures that wait. All of them check again when anything has arrived.
    waits: RefCell<Vec<(Waker, AwaitedKind)>>,
}

impl<C: Chare> Shared<C> {
    pub(super) fn new(core: &Core, array: ArrayId, slot: u32) -> Shared<C> {
        let roster = core.roster(array);
        Shared {
            array,
            index: roster.shape.index(roster.number(slot)),
            element: core.me,
            elements: core.elements.clone(),
            clock: core.clock.clone(),
            inbox: RefCell::default(),
            replies: RefCell::default(),
            pipes: RefCell::default(),
            chare: RefCell::default(),
            actions: RefCell::default(),
            woken: core.waits.woken().clone(),
            waits: RefCell::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        (self.clock)()
    }

    /// Lends the chare to its methods, or takes it back.
    pub(super) fn swap_chare(&self, chare: &mut Option<C>) {
        std::mem::swap(chare, &mut *self.chare.borrow_mut());
    }

    /// # Panics
    /// See [`AsyncContext::with`](super::AsyncContext::with).
    pub(super) fn with<T>(&self, run: impl FnOnce(&mut C) -> T) -> T {
        // Only a search, in which the user's closure runs, borrows an inbox mutably.
        let searches = self.inbox.try_borrow().is_err();
        assert!(
            !searches,
            "a closure of receive_if may use only the message: copy what it needs from the chare beforehand"
        );
        let mut chare =
            self.chare.try_borrow_mut().expect("a closure of AsyncContext::with must not call AsyncContext::with");
        run(chare.as_mut().expect(
            "AsyncContext::with works only while a waiting method runs: an entry method has the chare itself, and a \
            Drop at the end of the program has no chare",
        ))
    }

    pub(super) fn then(&self, action: impl FnOnce(&mut Context<'_, C>) + 'static) {
        self.actions.borrow_mut().push(Box::new(action));
        self.woken.set(true);
    }

    /// Returns the actions requested so far. Dropping one may add others, because a dropped value may request actions.
    pub(super) fn take_actions(&self) -> Vec<Action<C>> {
        self.actions.take()
    }

    pub(super) fn wait<T>(&self, waker: &Waker, what: AwaitedKind) -> Poll<T> {
        self.waits.borrow_mut().push((waker.clone(), what));
        Poll::Pending
    }

    pub(super) fn wake(&self) {
        self.waits.borrow_mut().drain(..).for_each(|(waker, _)| waker.wake());
    }

    pub(super) fn waits_for(&self) -> String {
        let in_words = |what: &AwaitedKind| match what {
            AwaitedKind::Message => match self.inbox.borrow().messages.len() {
                0 => "a message".to_string(),
                kept => format!("a message ({kept} kept, none matches)"),
            },
            AwaitedKind::Reply => "a reply or reduction".to_string(),
            AwaitedKind::OnChannel((_, index, _)) => format!("the channel to {index}"),
        };
        let mut waits: Vec<String> = self.waits.borrow().iter().map(|(_, what)| in_words(what)).collect();
        waits.dedup();
        match waits.is_empty() {
            true => "something that its context does not provide".into(),
            false => waits.join(", and for "),
        }
    }
}

/// Messages that were not yet received, earliest first.
pub(super) struct Inbox<M> {
    pub(super) messages: VecDeque<M>,
    /// Number of messages taken. Positions of tested messages stay valid while it does not change.
    taken: u64,
}

impl<M> Default for Inbox<M> {
    fn default() -> Inbox<M> {
        Inbox { messages: VecDeque::new(), taken: 0 }
    }
}

/// The progress of a search through an inbox.
#[derive(Default)]
pub(super) struct SearchPosition {
    count: usize,
    taken: u64,
}

impl<M> Inbox<M> {
    pub(super) fn put(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// Takes the earliest matching message. No message is tested twice unless another search took one in between.
    pub(super) fn take(&mut self, looked: &mut SearchPosition, fits: &mut impl FnMut(&M) -> bool) -> Option<M> {
        if looked.taken != self.taken {
            *looked = SearchPosition { count: 0, taken: self.taken };
        }
        let found = self.messages.iter().skip(looked.count).position(fits);
        let Some(at) = found else {
            looked.count = self.messages.len();
            return None;
        };
        self.taken += 1;
        self.messages.remove(looked.count + at)
    }
}
