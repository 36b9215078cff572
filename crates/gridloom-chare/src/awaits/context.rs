//! What a method that waits may do.

use std::rc::Rc;

use super::channel::Channel;
use super::leaves::{Receive, Reply};
use super::shared::Shared;
use crate::chare::Chare;
use crate::contribution::Contribution;
use crate::id::{ChareId, Index, Pe, Priority};
use crate::placement::Elements;
use crate::proxy::{Callback, Proxy, Target, To};
use crate::value::Value;

/// What a method that waits may do: see [`Context::spawn`](crate::Context::spawn). Clones are of the same chare, which alone may use them. It may
/// store one or a [`Channel`]: what an entry method asks by it happens when that has returned.
pub struct AsyncContext<C: Chare>(Rc<Shared<C>>);

impl<C: Chare> Clone for AsyncContext<C> {
    fn clone(&self) -> AsyncContext<C> {
        AsyncContext(self.0.clone())
    }
}

impl<C: Chare> AsyncContext<C> {
    pub(super) fn new(shared: Rc<Shared<C>>) -> AsyncContext<C> {
        AsyncContext(shared)
    }

    /// The chare itself. Its other entry methods may change it whenever this method waits.
    ///
    /// # Panics
    /// Within another such closure or one of [`AsyncContext::receive_if`]; in an entry method, which has the chare itself; and in `Drop`
    /// of what a method still has when the program ends.
    pub fn with<T>(&self, run: impl FnOnce(&mut C) -> T) -> T {
        self.0.with(run)
    }

    /// As [`Context::spawn`](crate::Context::spawn): the other one begins when this method waits again.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, method: impl FnOnce(AsyncContext<C>) -> F + 'static) {
        self.0.then(move |cx| cx.spawn(method));
    }

    /// The earliest message that this chare keeps ([`Context::keep`](crate::Context::keep)).
    pub fn receive(&self) -> Receive<C, impl FnMut(&C::Message) -> bool + use<C>> {
        self.receive_if(|_| true)
    }

    /// The earliest message that fits, such as one of this step. Others stay for later. Each message is looked at once, so whether it fits
    /// must depend on the message alone: take before what the closure needs of the chare.
    ///
    /// # Panics
    /// When awaited, if the closure calls [`AsyncContext::with`].
    pub fn receive_if<F: FnMut(&C::Message) -> bool>(&self, fits: F) -> Receive<C, F> {
        Receive::new(&self.0, fits)
    }

    /// A value that some chare will give: send it [`Reply::to`].
    pub fn reply(&self) -> Reply<C> {
        let tag = self.0.replies.borrow_mut().own();
        Reply::new(&self.0, tag)
    }

    /// Takes part in the array's next reduction, at once. Each chare of the array gets the result. All chares must take part in the same
    /// order, so only one method of a chare reduces at a time.
    pub fn all_reduce(&self, contribution: Contribution) -> Reply<C> {
        let tag = self.0.replies.borrow_mut().shared();
        self.contribute(contribution, Callback::to(self.array().all()).with_tag(tag));
        Reply::new(&self.0, tag)
    }

    /// Comes once no message waits or is on its way, on any element. Messages that chares keep do not count.
    pub fn quiet(&self) -> Reply<C> {
        let reply = self.reply();
        self.when_quiet(reply.to());
        reply
    }

    /// A channel to another chare, which makes one to this chare, too. The first channel that one of them makes to the other
    /// belongs to the other's first, and so on. It carries values, as reductions do. It ends with the methods that have its ends: once they
    /// ended, both sides make a new one.
    ///
    /// # Panics
    /// If the target is not one chare.
    pub fn channel<D: Chare>(&self, other: Target<D>) -> Channel<C> {
        let To::One(index) = other.to else { panic!("a channel joins two chares: give one, such as cx.array().at(1)") };
        let key = self.0.pipes.borrow_mut().make(other.array, index);
        Channel::new(&self.0, Callback::to(other), key)
    }

    /// As [`Context::send`](crate::Context::send).
    pub fn send<D: Chare>(&self, to: Target<D>, message: D::Message) {
        self.0.then(move |cx| cx.send(to, message));
    }

    /// As [`Context::send_with`](crate::Context::send_with).
    pub fn send_with<D: Chare>(&self, priority: Priority, to: Target<D>, message: D::Message) {
        self.0.then(move |cx| cx.send_with(priority, to, message));
    }

    /// As [`Context::call_back`](crate::Context::call_back).
    pub fn call_back(&self, callback: impl Into<Callback>, value: impl Into<Value>) {
        let (callback, value) = (callback.into(), value.into());
        self.0.then(move |cx| cx.call_back(callback, value));
    }

    /// As [`Context::contribute`](crate::Context::contribute).
    pub fn contribute(&self, contribution: Contribution, callback: impl Into<Callback>) {
        let callback = callback.into();
        self.0.then(move |cx| cx.contribute(contribution, callback));
    }

    /// As [`Context::when_quiet`](crate::Context::when_quiet).
    pub fn when_quiet(&self, callback: impl Into<Callback>) {
        let callback = callback.into();
        self.0.then(move |cx| cx.when_quiet(callback));
    }

    /// As [`Context::checkpoint`](crate::Context::checkpoint). This method has to end before all is quiet, as any other one that waits.
    pub fn checkpoint(&self, callback: impl Into<Callback>) {
        let callback = callback.into();
        self.0.then(move |cx| cx.checkpoint(callback));
    }

    /// As [`Context::migrate_to`](crate::Context::migrate_to), as the last thing that this method does. No other one may wait.
    pub fn migrate_to(&self, element: Pe) {
        self.0.then(move |cx| cx.migrate_to(element));
    }

    /// As [`Context::compute`](crate::Context::compute).
    pub fn compute(&self, flops: f64) {
        self.0.then(move |cx| cx.compute(flops));
    }

    /// As [`Context::exit`](crate::Context::exit).
    pub fn exit(&self, value: impl Into<Value>) {
        let value = value.into();
        self.0.then(move |cx| cx.exit(value));
    }

    /// As [`Context::fail`](crate::Context::fail).
    pub fn fail(&self, why: impl Into<String>) {
        let why = why.into();
        self.0.then(move |cx| cx.fail(why));
    }

    /// As [`Context::now`](crate::Context::now).
    pub fn now(&self) -> f64 {
        self.0.now().seconds()
    }

    /// The own index.
    pub fn index(&self) -> Index {
        self.0.index
    }

    pub fn id(&self) -> ChareId {
        ChareId { array: self.0.array, index: self.0.index }
    }

    /// The array of this chare.
    pub fn array(&self) -> Proxy<C> {
        Proxy::new(self.0.array)
    }

    /// This chare.
    pub fn this(&self) -> Target<C> {
        self.array().at(self.0.index)
    }

    /// The processing element that runs this.
    pub fn element(&self) -> Pe {
        self.0.element
    }

    pub fn elements(&self) -> &Elements {
        &self.0.elements
    }
}
