//! The operations available to a waiting method.

use std::rc::Rc;

use super::channel::Channel;
use super::futures::{Receive, Reply};
use super::shared::Shared;
use crate::chare::Chare;
use crate::contribution::Contribution;
use crate::id::{ChareId, Index, Pe, Priority};
use crate::placement::Elements;
use crate::proxy::{Callback, Proxy, Recipients, Target};
use crate::value::Value;

/// The operations available to a waiting method: see [`Context::spawn`](crate::Context::spawn). Clones belong to the
/// same chare, and only that chare may use them. It may store a clone or a [`Channel`]: operations that an entry
/// method requests through it are carried out when the entry method returns.
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

    /// Gives access to the chare itself. Its other entry methods may change it whenever this method waits.
    ///
    /// # Panics
    /// Panics within another such closure or one of [`AsyncContext::receive_if`]; in an entry method, which has the
    /// chare itself; and in the `Drop` of values that a method still owns when the program ends.
    pub fn with<T>(&self, run: impl FnOnce(&mut C) -> T) -> T {
        self.0.with(run)
    }

    /// Like [`Context::spawn`](crate::Context::spawn). The spawned method begins when this method next waits.
    pub fn spawn<F: Future<Output = ()> + 'static>(&self, method: impl FnOnce(AsyncContext<C>) -> F + 'static) {
        self.0.then(move |cx| cx.spawn(method));
    }

    /// Receives the earliest message that this chare keeps ([`Context::keep`](crate::Context::keep)).
    pub fn receive(&self) -> Receive<C, impl FnMut(&C::Message) -> bool + use<C>> {
        self.receive_if(|_| true)
    }

    /// Receives the earliest message for which `fits` returns true, such as one of this step. Others stay for later.
    /// Each message is tested once, so the result must depend on the message alone. Copy whatever the closure needs
    /// from the chare beforehand.
    ///
    /// # Panics
    /// When awaited, if the closure calls [`AsyncContext::with`].
    pub fn receive_if<F: FnMut(&C::Message) -> bool>(&self, fits: F) -> Receive<C, F> {
        Receive::new(&self.0, fits)
    }

    /// Creates a reply: a value that another chare will provide. Send [`Reply::to`] to that chare.
    pub fn reply(&self) -> Reply<C> {
        let tag = self.0.replies.borrow_mut().own();
        Reply::new(&self.0, tag)
    }

    /// Contributes to the array's next reduction immediately. Each chare of the array receives the result. All chares
    /// must contribute in the same order, so only one method of a chare may reduce at a time.
    pub fn all_reduce(&self, contribution: Contribution) -> Reply<C> {
        let tag = self.0.replies.borrow_mut().shared();
        self.contribute(contribution, Callback::to(self.array().all()).with_tag(tag));
        Reply::new(&self.0, tag)
    }

    /// Completes once no message is waiting or in transit on any element. Messages that chares keep do not count.
    pub fn quiescence(&self) -> Reply<C> {
        let reply = self.reply();
        self.when_quiet(reply.to());
        reply
    }

    /// Opens a channel to another chare, which must open one to this chare too. The first channel that one of them
    /// opens to the other is paired with the first of the other, and so on. A channel carries values, as reductions
    /// do. It ends with the methods that own its ends; after that, both sides open a new one.
    ///
    /// # Panics
    /// If the target is not one chare.
    pub fn channel<D: Chare>(&self, other: Target<D>) -> Channel<C> {
        let Recipients::One(index) = other.to else {
            panic!("a channel connects two chares: pass a single one, such as cx.array().at(1)")
        };
        let key = self.0.pipes.borrow_mut().make(other.array, index);
        Channel::new(&self.0, Callback::to(other), key)
    }

    /// See [`Context::send`](crate::Context::send).
    pub fn send<D: Chare>(&self, to: Target<D>, message: D::Message) {
        self.0.then(move |cx| cx.send(to, message));
    }

    /// See [`Context::send_with`](crate::Context::send_with).
    pub fn send_with<D: Chare>(&self, priority: Priority, to: Target<D>, message: D::Message) {
        self.0.then(move |cx| cx.send_with(priority, to, message));
    }

    /// See [`Context::call_back`](crate::Context::call_back).
    pub fn call_back(&self, callback: impl Into<Callback>, value: impl Into<Value>) {
        let (callback, value) = (callback.into(), value.into());
        self.0.then(move |cx| cx.call_back(callback, value));
    }

    /// See [`Context::contribute`](crate::Context::contribute).
    pub fn contribute(&self, contribution: Contribution, callback: impl Into<Callback>) {
        let callback = callback.into();
        self.0.then(move |cx| cx.contribute(contribution, callback));
    }

    /// See [`Context::when_quiet`](crate::Context::when_quiet).
    pub fn when_quiet(&self, callback: impl Into<Callback>) {
        let callback = callback.into();
        self.0.then(move |cx| cx.when_quiet(callback));
    }

    /// See [`Context::checkpoint`](crate::Context::checkpoint). This method must end before the program is quiet, like
    /// any other waiting method.
    pub fn checkpoint(&self, callback: impl Into<Callback>) {
        let callback = callback.into();
        self.0.then(move |cx| cx.checkpoint(callback));
    }

    /// See [`Context::migrate_to`](crate::Context::migrate_to). This must be the last action of the method, and no
    /// other method of the chare may wait.
    pub fn migrate_to(&self, element: Pe) {
        self.0.then(move |cx| cx.migrate_to(element));
    }

    /// See [`Context::compute`](crate::Context::compute).
    pub fn compute(&self, flops: f64) {
        self.0.then(move |cx| cx.compute(flops));
    }

    /// See [`Context::exit`](crate::Context::exit).
    pub fn exit(&self, value: impl Into<Value>) {
        let value = value.into();
        self.0.then(move |cx| cx.exit(value));
    }

    /// See [`Context::fail`](crate::Context::fail).
    pub fn fail(&self, why: impl Into<String>) {
        let why = why.into();
        self.0.then(move |cx| cx.fail(why));
    }

    /// See [`Context::now`](crate::Context::now).
    pub fn now(&self) -> f64 {
        self.0.now().seconds()
    }

    /// Returns the index of this chare.
    pub fn index(&self) -> Index {
        self.0.index
    }

    pub fn id(&self) -> ChareId {
        ChareId { array: self.0.array, index: self.0.index }
    }

    /// Returns the array of this chare.
    pub fn array(&self) -> Proxy<C> {
        Proxy::new(self.0.array)
    }

    /// Returns this chare as a target.
    pub fn this(&self) -> Target<C> {
        self.array().at(self.0.index)
    }

    /// Returns the processing element that runs this method.
    pub fn element(&self) -> Pe {
        self.0.element
    }

    pub fn elements(&self) -> &Elements {
        &self.0.elements
    }
}
