//! Channels between waiting methods of two chares. Values are received in the order in which they were sent.

use std::cell::Cell;
use std::rc::Rc;

use super::futures::ReceiveOnChannel;
use super::pipes::{self, Key};
use super::shared::Shared;
use crate::chare::Chare;
use crate::proxy::Callback;
use crate::value::Value;
use crate::waiting_methods::CHANNEL_TAG;

/// One end of a channel. Created by [`AsyncContext::channel`](super::AsyncContext::channel).
pub struct Channel<C: Chare> {
    shared: Rc<Shared<C>>,
    other: Callback,
    key: Key,
    sent: Cell<i64>,
}

impl<C: Chare> Channel<C> {
    pub(super) fn new(shared: &Rc<Shared<C>>, other: Callback, key: Key) -> Channel<C> {
        Channel { shared: shared.clone(), other: other.with_tag(CHANNEL_TAG), key, sent: Cell::new(0) }
    }

    /// Sends a value. Never waits.
    pub fn send(&self, value: impl Into<Value>) {
        let own = (self.shared.array, self.shared.index, self.key.2);
        let (to, value) = (self.other.clone(), pipes::packed(own, self.sent.get(), value.into()));
        self.sent.set(self.sent.get() + 1);
        self.shared.then(move |cx| cx.call_back(to, value));
    }

    /// Receives the next value that the other end has sent.
    pub fn receive(&self) -> ReceiveOnChannel<'_, C> {
        ReceiveOnChannel { shared: &self.shared, key: self.key }
    }
}

impl<C: Chare> Drop for Channel<C> {
    fn drop(&mut self) {
        self.shared.pipes.borrow_mut().forget(&self.key);
    }
}
