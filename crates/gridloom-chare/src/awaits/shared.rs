//! What a chare that waits shares with its future.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use gridloom_base::Time;

use super::replies::Replies;
use super::{AsyncChare, Running};
use crate::chare::Context;
use crate::id::{ArrayId, Index, Pe};
use crate::placement::Elements;
use crate::value::Value;

/// What a future has a chare do.
type Action<C> = Box<dyn FnOnce(&mut Context<'_, Running<C>>)>;

/// One end of a channel: array and index of the other, and which of their channels it is.
pub(super) type Key = (ArrayId, Index, u32);

/// What a future waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaited {
    Message,
    Reply,
    OnChannel(Key),
}

pub(super) struct Shared<C: AsyncChare> {
    pub(super) array: ArrayId,
    pub(super) index: Index,
    pub(super) element: Pe,
    pub(super) elements: Arc<Elements>,
    clock: Rc<dyn Fn() -> Time>,
    pub(super) inbox: RefCell<Inbox<C::Message>>,
    pub(super) replies: RefCell<Replies>,
    pipes: RefCell<BTreeMap<Key, Pipe>>,
    /// How many channels it has made to each chare.
    channels: RefCell<BTreeMap<(ArrayId, Index), u32>>,
    actions: RefCell<Vec<Action<C>>>,
    /// The leaves of its future that wait. All of them look again when anything has come.
    waits: RefCell<Vec<(Waker, Awaited)>>,
}

impl<C: AsyncChare> Shared<C> {
    pub(super) fn new(cx: &mut Context<'_, Running<C>>) -> Shared<C> {
        Shared {
            array: cx.array().id(),
            index: cx.index(),
            element: cx.element(),
            elements: cx.core.elements.clone(),
            clock: cx.core.clock.clone(),
            inbox: RefCell::default(),
            replies: RefCell::default(),
            pipes: RefCell::default(),
            channels: RefCell::default(),
            actions: RefCell::default(),
            waits: RefCell::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        (self.clock)()
    }

    pub(super) fn then(&self, action: impl FnOnce(&mut Context<'_, Running<C>>) + 'static) {
        self.actions.borrow_mut().push(Box::new(action));
    }

    pub(super) fn act(&self, cx: &mut Context<'_, Running<C>>) {
        // None of them adds another.
        self.actions.borrow_mut().drain(..).for_each(|action| action(cx));
    }

    pub(super) fn wait<T>(&self, waker: &Waker, what: Awaited) -> Poll<T> {
        self.waits.borrow_mut().push((waker.clone(), what));
        Poll::Pending
    }

    pub(super) fn wake(&self) {
        self.waits.borrow_mut().drain(..).for_each(|(waker, _)| waker.wake());
    }

    pub(super) fn waits_for(&self) -> String {
        let in_words = |what: &Awaited| match what {
            Awaited::Message => match self.inbox.borrow().messages.len() {
                0 => "a message".to_string(),
                kept => format!("a message, and {kept} that it does not wait for have come"),
            },
            Awaited::Reply => "a reply or reduction".to_string(),
            Awaited::OnChannel((_, index, _)) => format!("the channel to {index}"),
        };
        let mut waits: Vec<String> = self.waits.borrow().iter().map(|(_, what)| in_words(what)).collect();
        waits.dedup();
        match waits.is_empty() {
            true => "what its context does not bring".into(),
            false => waits.join(", and for "),
        }
    }

    /// The number of its next channel to that chare.
    pub(super) fn next_channel(&self, array: ArrayId, index: Index) -> u32 {
        let mut channels = self.channels.borrow_mut();
        let count = channels.entry((array, index)).or_default();
        *count += 1;
        *count - 1
    }

    pub(super) fn put_on_channel(&self, came: Value) {
        // Only a channel's other end sends such a thing.
        if let Some((key, number, value)) = super::channel::read(came) {
            self.pipes.borrow_mut().entry(key).or_default().early.insert(number, value);
        }
    }

    pub(super) fn take_from_channel(&self, key: &Key) -> Option<Value> {
        let mut pipes = self.pipes.borrow_mut();
        let pipe = pipes.get_mut(key)?;
        let value = pipe.early.remove(&pipe.next)?;
        pipe.next += 1;
        Some(value)
    }
}

/// What has come on a channel, by number, and the number that is received next.
#[derive(Default)]
struct Pipe {
    early: BTreeMap<i64, Value>,
    next: i64,
}

/// Messages that were not received yet, the earliest first.
pub(super) struct Inbox<M> {
    messages: VecDeque<M>,
    /// How many were taken. Those that one has looked at are where they were as long as it is the same.
    taken: u64,
}

impl<M> Default for Inbox<M> {
    fn default() -> Inbox<M> {
        Inbox { messages: VecDeque::new(), taken: 0 }
    }
}

/// How far one has looked at an inbox.
#[derive(Default)]
pub(super) struct Looked {
    count: usize,
    taken: u64,
}

impl<M> Inbox<M> {
    pub(super) fn put(&mut self, message: M) {
        self.messages.push_back(message);
    }

    /// The earliest that fits. None is looked at twice as long as nobody else takes one.
    pub(super) fn take(&mut self, looked: &mut Looked, fits: &mut impl FnMut(&M) -> bool) -> Option<M> {
        if looked.taken != self.taken {
            *looked = Looked { count: 0, taken: self.taken };
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
