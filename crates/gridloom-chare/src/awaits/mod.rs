//! Methods of chares that wait: Rust futures, driven by the element's scheduler without any runtime.
//!
//! ```text
//! message ──▶ entry ──keep──▶ Shared ──poll──▶ method ──▶ actions of AsyncContext ──▶ Context
//! result ────────bring───────▶
//! ```
//! A chare may have several of them at a time, and its other entry methods run while they wait.
//!
//! **Invariant:** a method is polled only while its chare runs for something that has come, so what it sends and contributes is its
//! chare's. Its actions are carried out when it waits again, in their order. That is as good as at once, since nothing that they do is
//! seen before. What an entry method asks for by a stored `AsyncContext` or `Channel` is carried out when it has returned, in the same step.
//!
//! No future can be packed: a chare stays on its element while a method of it waits. When none does, what has come for them goes along.

mod channel;
mod context;
mod leaves;
mod pipes;
mod replies;
mod shared;
mod waiting;

pub use channel::Channel;
pub use context::AsyncContext;
pub use leaves::{Receive, ReceiveOnChannel, Reply};
pub use replies::ReplyTo;

use std::rc::Rc;

use super::chare::{Chare, Context};
use super::element::Element;
use super::mail::{Outcome, Slots};
use super::proxy::Proxy;
use super::value::Value;
use super::waits::{BEGIN, ON_CHANNEL};

impl<C: Chare> Context<'_, C> {
    /// Has a method of this chare begin that waits, when this one has returned. Other entry methods run while it waits.
    ///
    /// It awaits what its [`AsyncContext`] gives, alone or joined with others of those; nothing else wakes it. While it waits, the chare
    /// stays on its element and cannot be saved.
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

    /// Keeps a message for [`AsyncContext::receive`] and [`AsyncContext::receive_if`], of a method that waits now or begins later. Kept
    /// messages go along when the chare moves.
    pub fn keep(&mut self, message: C::Message) {
        self.core.waiting::<C>(self.array, self.slot).shared.inbox.borrow_mut().put(message);
        self.core.waits.wake();
    }

    /// A result has come for a method that waits.
    pub(crate) fn bring(&mut self, tag: u32, value: Value) {
        let shared = &self.core.waiting::<C>(self.array, self.slot).shared;
        let is_awaited = match tag {
            BEGIN => true,
            ON_CHANNEL => {
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
    /// Has a method that waits begin with the program, of each chare of that array. A program that goes on from a checkpoint does not begin.
    pub fn spawn<C: Chare, F: Future<Output = ()> + 'static>(
        &mut self,
        array: Proxy<C>,
        method: impl Fn(AsyncContext<C>) -> F + 'static,
    ) {
        let natives = self.core.roster(array.id()).natives().len() as u32;
        if natives == 0 || self.core.checkpoints.is_restart {
            return;
        }
        let method = Rc::new(method);
        for slot in 0..natives {
            let method = method.clone();
            self.core.waiting(array.id(), slot).spawn(move |cx| method(cx));
        }
        self.core.put_outcome_in(array.id(), Slots::All, Outcome { tag: BEGIN, value: Value::Nothing });
    }
}
