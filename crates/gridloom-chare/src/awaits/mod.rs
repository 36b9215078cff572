//! Waiting methods of chares: Rust futures that the element's scheduler drives, without an async runtime.
//!
//! ```text
//! message ──▶ entry ──keep──▶ Shared ──poll──▶ method ──▶ actions of AsyncContext ──▶ Context
//! result ────────bring───────▶
//! ```
//! A chare may have several waiting methods at a time, and its other entry methods run while they wait.
//!
//! **Invariant:** a method is polled only while its chare runs because something has arrived for it, so its sends and
//! contributions belong to its chare. Its actions are carried out, in order, when it waits again. This is equivalent
//! to carrying them out immediately, because their effects cannot be observed before. Actions that an entry method
//! requests through a stored `AsyncContext` or `Channel` are carried out when it has returned, in the same step.
//!
//! Futures cannot be packed, so a chare stays on its element while one of its methods waits. Otherwise, the messages
//! and replies kept for its methods move with it.

mod channel;
mod context;
mod futures;
mod pipes;
mod replies;
mod shared;
mod waiting;

pub use channel::Channel;
pub use context::AsyncContext;
pub use futures::{Receive, ReceiveOnChannel, Reply};
pub use replies::ReplyTo;

use std::rc::Rc;

use super::chare::{Chare, Context};
use super::element::Element;
use super::mail::{Outcome, Slots};
use super::proxy::Proxy;
use super::value::Value;
use super::waiting_methods::{CHANNEL_TAG, START_TAG};

impl<C: Chare> Context<'_, C> {
    /// Starts a waiting method of this chare when the current entry method has returned. Other entry methods run while it waits.
    ///
    /// The method awaits futures of its [`AsyncContext`], alone or joined with others of them; nothing else wakes it.
    /// While it waits, the chare stays on its element and cannot be saved.
    ///
    /// ```
    /// use gridloom_chare::{AsyncContext, Chare, Context, Contribution};
    /// # use gridloom_derive::Message;
    ///
    /// #[derive(Clone, Message)]
    /// # #[message(crate = "gridloom_layout")]
    /// enum Ask {
    ///     Run { steps: u32 },
    ///     Edge { step: u32, value: f64 },
    ///     Heat { by: f64 },
    /// }
    ///
    /// /// Takes the mean with its left neighbour, again and again.
    /// struct Cell {
    ///     value: f64,
    /// }
    ///
    /// impl Chare for Cell {
    ///     type Message = Ask;
    ///
    ///     fn entry(&mut self, ask: Ask, cx: &mut Context<'_, Cell>) {
    ///         match ask {
    ///             Ask::Run { steps } => cx.spawn(move |cx| Cell::run(cx, steps)),
    ///             Ask::Heat { by } => self.value += by,
    ///             edge => cx.keep(edge),
    ///         }
    ///     }
    /// }
    ///
    /// impl Cell {
    ///     async fn run(cx: AsyncContext<Cell>, steps: u32) {
    ///         let right = cx.array().at((cx.index()[0] + 1) % 4);
    ///         for now in 0..steps {
    ///             cx.send(right.clone(), Ask::Edge { step: now, value: cx.with(|cell| cell.value) });
    ///             let is_next = move |ask: &Ask| matches!(ask, Ask::Edge { step, .. } if *step == now);
    ///             if let Ask::Edge { value, .. } = cx.receive_if(is_next).await {
    ///                 cx.with(|cell| cell.value = (cell.value + value) / 2.0);
    ///             }
    ///         }
    ///         let sum = cx.all_reduce(Contribution::sum(cx.with(|cell| cell.value))).await;
    ///         cx.exit(sum);
    ///     }
    /// }
    /// ```
    pub fn spawn<F: Future<Output = ()> + 'static>(&mut self, method: impl FnOnce(AsyncContext<C>) -> F + 'static) {
        self.core.waiting(self.array, self.slot).spawn(method);
        self.core.waits.wake();
    }

    /// Keeps a message for [`AsyncContext::receive`] and [`AsyncContext::receive_if`] in a method that waits now or
    /// begins later. Kept messages move with the chare.
    pub fn keep(&mut self, message: C::Message) {
        self.core.waiting::<C>(self.array, self.slot).shared.inbox.borrow_mut().put(message);
        self.core.waits.wake();
    }

    /// Delivers a result to a waiting method.
    pub(crate) fn deliver(&mut self, tag: u32, value: Value) {
        let shared = &self.core.waiting::<C>(self.array, self.slot).shared;
        let is_awaited = match tag {
            START_TAG => true,
            CHANNEL_TAG => {
                shared.pipes.borrow_mut().put(value);
                true
            }
            tag => shared.replies.borrow_mut().put(tag, value),
        };
        if !is_awaited {
            let (index, array) = (self.index(), self.core.roster(self.array).name.clone());
            return self.fail(format!("chare {index} of array {array} got a second value for a reply"));
        }
        self.core.waits.wake();
    }
}

impl Element {
    /// Starts a waiting method with the program on each chare of an array. A program restarted from a checkpoint does
    /// not start it.
    pub fn spawn<C: Chare, F: Future<Output = ()> + 'static>(
        &mut self,
        array: Proxy<C>,
        method: impl Fn(AsyncContext<C>) -> F + 'static,
    ) {
        let natives = self.core.roster(array.id()).natives().len() as u32;
        if natives == 0 || self.core.checkpoints.is_restarted() {
            return;
        }
        let method = Rc::new(method);
        for slot in 0..natives {
            let method = method.clone();
            self.core.waiting(array.id(), slot).spawn(move |cx| method(cx));
        }
        self.core.put_outcome_in(array.id(), Slots::All, Outcome { tag: START_TAG, value: Value::Nothing });
    }
}
