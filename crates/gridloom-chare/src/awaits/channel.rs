//! Channels between two chares that wait: what one sends the other receives, in order.
//!
//! Letters between two elements may overtake one another, so each value has its number on the channel. A value travels as the result of
//! a callback does, with the channel's key beside it.

use std::cell::Cell;
use std::rc::Rc;

use super::leaves::ReceiveOnChannel;
use super::shared::{Key, Shared};
use super::{AsyncChare, ON_CHANNEL};
use crate::id::ArrayId;
use crate::proxy::Callback;
use crate::value::Value;

/// One end of a channel. Made by [`AsyncContext::channel`](super::AsyncContext::channel).
pub struct Channel<C: AsyncChare> {
    shared: Rc<Shared<C>>,
    other: Callback,
    key: Key,
    sent: Cell<i64>,
}

impl<C: AsyncChare> Channel<C> {
    pub(super) fn new(shared: &Rc<Shared<C>>, other: Callback, key: Key) -> Channel<C> {
        Channel { shared: shared.clone(), other: other.tagged(ON_CHANNEL), key, sent: Cell::new(0) }
    }

    /// Sends a value. Never waits.
    pub fn send(&self, value: impl Into<Value>) {
        let (index, (_, _, channel)) = (self.shared.index, self.key);
        let head = vec![i64::from(self.shared.array.0), i64::from(channel), self.sent.get()];
        self.sent.set(self.sent.get() + 1);
        let (to, value) = (self.other.clone(), Value::Gathered(vec![(index, head.into()), (index, value.into())]));
        self.shared.then(move |cx| cx.call_back(to, value));
    }

    /// The next value that the other end has sent.
    pub fn receive(&self) -> ReceiveOnChannel<'_, C> {
        ReceiveOnChannel { shared: &self.shared, key: self.key }
    }
}

/// The sender's end, the number on the channel, and what was sent.
pub(super) fn read(came: Value) -> Option<(Key, i64, Value)> {
    let Value::Gathered(both) = came else { return None };
    let [(index, Value::Integers(head)), (_, value)] = <[_; 2]>::try_from(both).ok()? else { return None };
    let [array, channel, number] = head[..] else { return None };
    let key = (ArrayId(u32::try_from(array).ok()?), index, u32::try_from(channel).ok()?);
    Some((key, number, value))
}
