//! Futures that a chare's methods can await: messages, replies, and values on channels.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::pipes::Key;
use super::replies::ReplyTo;
use super::shared::{AwaitedKind, SearchPosition, Shared};
use crate::chare::Chare;
use crate::value::Value;

/// The earliest matching message: see [`AsyncContext::receive_if`](super::AsyncContext::receive_if).
#[must_use = "await it"]
pub struct Receive<C: Chare, F> {
    shared: Rc<Shared<C>>,
    fits: F,
    looked: SearchPosition,
}

impl<C: Chare, F> Receive<C, F> {
    pub(super) fn new(shared: &Rc<Shared<C>>, fits: F) -> Receive<C, F> {
        Receive { shared: shared.clone(), fits, looked: SearchPosition::default() }
    }
}

// `Unpin` is sound because no field refers to the value itself.
impl<C: Chare, F> Unpin for Receive<C, F> {}

impl<C: Chare, F: FnMut(&C::Message) -> bool> Future for Receive<C, F> {
    type Output = C::Message;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Message> {
        let Receive { shared, fits, looked } = &mut *self;
        let found = shared.inbox.borrow_mut().take(looked, fits);
        found.map_or_else(|| shared.wait(cx.waker(), AwaitedKind::Message), Poll::Ready)
    }
}

/// A value that arrives once. Await it, and pass [`Reply::to`] to the chare that provides the value.
#[must_use = "await it, or drop it to ignore the value"]
pub struct Reply<C: Chare> {
    shared: Rc<Shared<C>>,
    tag: u32,
}

impl<C: Chare> Reply<C> {
    pub(super) fn new(shared: &Rc<Shared<C>>, tag: u32) -> Reply<C> {
        Reply { shared: shared.clone(), tag }
    }

    /// Returns the address for the value: a callback, and a field of messages.
    pub fn to(&self) -> ReplyTo {
        ReplyTo { array: self.shared.array, index: self.shared.index, tag: self.tag }
    }
}

impl<C: Chare> Future for Reply<C> {
    type Output = Value;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Value> {
        let came = self.shared.replies.borrow_mut().take(self.tag);
        came.map_or_else(|| self.shared.wait(cx.waker(), AwaitedKind::Reply), Poll::Ready)
    }
}

impl<C: Chare> Drop for Reply<C> {
    fn drop(&mut self) {
        self.shared.replies.borrow_mut().forget(self.tag);
    }
}

/// The next value of a channel: see [`Channel::receive`](super::Channel::receive).
#[must_use = "await it"]
pub struct ReceiveOnChannel<'a, C: Chare> {
    pub(super) shared: &'a Shared<C>,
    pub(super) key: Key,
}

impl<C: Chare> Future for ReceiveOnChannel<'_, C> {
    type Output = Value;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Value> {
        let came = self.shared.pipes.borrow_mut().take(&self.key);
        came.map_or_else(|| self.shared.wait(cx.waker(), AwaitedKind::OnChannel(self.key)), Poll::Ready)
    }
}
