//! Chares that are one function, which waits: a Rust future, driven by the element's scheduler without any runtime.
//!
//! ```text
//! message, result ──▶ Running (a Chare) ──put──▶ Shared ──poll──▶ AsyncChare::run ──▶ actions of AsyncContext ──▶ Context
//! ```
//! **Invariant:** the future is polled only while its chare runs for something that has come, so what it sends and contributes is its
//! chare's. Its actions are carried out when it waits again, in their order. That is as good as at once, since nothing that they do is
//! seen before.
//!
//! The future holds the chare, and no future can be packed: such a chare stays on its element.

mod channel;
mod context;
mod leaves;
mod pipes;
mod replies;
mod shared;

use std::borrow::Cow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

pub use channel::Channel;
pub use context::AsyncContext;
pub use leaves::{Receive, ReceiveOnChannel, Reply};
pub use replies::ReplyTo;
use shared::Shared;

use super::chare::{Chare, Context};
use super::element::Element;
use super::error::ChareError;
use super::id::Index;
use super::mail::{Outcome, Slots};
use super::payload::Payload;
use super::placement::Placement;
use super::proxy::Proxy;
use super::shape::Shape;
use super::value::Value;

/// Tells a chare to begin.
const BEGIN: u32 = u32::MAX;
/// Something has come on a channel.
const ON_CHANNEL: u32 = u32::MAX - 1;

/// A message-driven object that is written as one function, which waits for messages. While it waits, its element runs other chares.
///
/// ```
/// use gridloom_chare::{AsyncChare, AsyncContext, Contribution};
/// # use gridloom_derive::Message;
///
/// #[derive(Clone, Message)]
/// # #[message(crate = "gridloom_layout")]
/// struct Edge {
///     step: u32,
///     value: f64,
/// }
///
/// /// Takes the mean with its left neighbour, again and again.
/// struct Cell {
///     value: f64,
/// }
///
/// impl AsyncChare for Cell {
///     type Message = Edge;
///
///     async fn run(mut self, cx: AsyncContext<Cell>) {
///         let right = cx.array().at((cx.index()[0] + 1) % 4);
///         for step in 0..10 {
///             cx.send(right.clone(), Edge { step, value: self.value });
///             let left = cx.receive_if(move |edge| edge.step == step).await;
///             self.value = (self.value + left.value) / 2.0;
///         }
///         let sum = cx.all_reduce(Contribution::sum(self.value)).await;
///         cx.exit(sum);
///     }
/// }
/// ```
pub trait AsyncChare: Sized + 'static {
    type Message: Payload;

    /// Runs once, from the program's begin. A message that comes after its end is dropped.
    ///
    /// It awaits what its [`AsyncContext`] gives, alone or joined with others of those; nothing else wakes it.
    fn run(self, cx: AsyncContext<Self>) -> impl Future<Output = ()> + 'static;
}

/// A chare that waits, as an element keeps it. Programs name it in proxies: `Proxy<Running<C>>`.
pub struct Running<C: AsyncChare>(State<C>);

enum State<C: AsyncChare> {
    /// With what has come already.
    Before(C, Vec<C::Message>),
    Running {
        future: Pin<Box<dyn Future<Output = ()>>>,
        shared: Rc<Shared<C>>,
    },
    Ended,
}

impl<C: AsyncChare> Chare for Running<C> {
    type Message = C::Message;

    fn entry(&mut self, message: C::Message, cx: &mut Context<'_, Running<C>>) {
        match &mut self.0 {
            State::Before(_, early) => early.push(message),
            State::Running { shared, .. } => {
                shared.inbox.borrow_mut().put(message);
                self.go_on(cx);
            }
            State::Ended => {}
        }
    }

    fn outcome(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Running<C>>) {
        if tag == BEGIN {
            return self.begin(cx);
        }
        if let State::Running { shared, .. } = &mut self.0 {
            match tag {
                ON_CHANNEL => shared.pipes.borrow_mut().put(value),
                tag if shared.replies.borrow_mut().put(tag, value) => {}
                _ => {
                    let (index, array) = (cx.index(), cx.core.roster(shared.array).name.clone());
                    return cx.fail(format!("chare {index} of array {array} got a second value for a reply"));
                }
            }
            self.go_on(cx);
        }
    }

    fn name_of_outcome(&self, tag: u32) -> Cow<'static, str> {
        match tag {
            BEGIN => "run".into(),
            ON_CHANNEL => "channel".into(),
            _ => "reply".into(),
        }
    }

    fn waits_for(&self) -> Option<String> {
        match &self.0 {
            State::Running { shared, .. } => Some(shared.waits_for()),
            State::Before(..) | State::Ended => None,
        }
    }
}

impl<C: AsyncChare> Running<C> {
    fn begin(&mut self, cx: &mut Context<'_, Running<C>>) {
        let State::Before(chare, early) = std::mem::replace(&mut self.0, State::Ended) else { return };
        let shared = Rc::new(Shared::new(cx));
        early.into_iter().for_each(|message| shared.inbox.borrow_mut().put(message));
        let future = Box::pin(chare.run(AsyncContext::new(shared.clone())));
        self.0 = State::Running { future, shared };
        self.go_on(cx);
    }

    /// Runs it until it waits again.
    fn go_on(&mut self, cx: &mut Context<'_, Running<C>>) {
        let State::Running { future, shared } = &mut self.0 else { return };
        shared.wake();
        let is_done = future.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready();
        shared.act(cx);
        if is_done {
            self.0 = State::Ended;
        }
    }
}

impl Element {
    /// As [`Element::array`], of chares that wait. Each begins with the program.
    ///
    /// # Errors
    /// As [`Element::array`].
    pub fn async_array<C: AsyncChare>(
        &mut self,
        name: &str,
        shape: Shape,
        placement: &Placement,
        mut make: impl FnMut(Index) -> C,
    ) -> Result<Proxy<Running<C>>, ChareError> {
        let before = |chare| Running(State::Before(chare, Vec::new()));
        let array = self.array(name, shape, placement, |index| before(make(index)))?;
        if !self.core.roster(array.id()).natives().is_empty() {
            self.core.put_outcome_in(array.id(), Slots::All, Outcome { tag: BEGIN, value: Value::Nothing });
        }
        Ok(array)
    }
}
