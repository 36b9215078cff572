//! What a program writes: chares, and what their entry methods may do.

use std::borrow::Cow;
use std::marker::PhantomData;

use super::contribution::Contribution;
use super::core::Core;
use super::error::ChareError;
use super::id::{ArrayId, ChareId, Index, Pe, Priority};
use super::payload::Payload;
use super::placement::Elements;
use super::proxy::{Callback, Proxy, Target};
use super::record::Control;
use super::value::Value;

/// A message-driven object. Its entry methods are the variants of its message type.
///
/// An entry method runs to its end, with no other of its element beside it. A chare that needs something notes that in its state and
/// returns, or has a method begin that waits ([`Context::spawn`]).
pub trait Chare: Sized + 'static {
    type Message: Payload;

    /// A message has come: for this entry method, or for methods that wait ([`Context::keep`]).
    fn entry(&mut self, message: Self::Message, cx: &mut Context<'_, Self>);

    /// The result of a reduction, or that all is quiet: what a [`Callback`] to this chare brings.
    fn outcome(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Self>) {
        let _ = value;
        cx.unexpected(tag);
    }

    /// What it waits for, in words, for the error of a program that can never end.
    fn waits_for(&self) -> Option<String> {
        None
    }

    /// How a timeline calls what [`Chare::outcome`] does for that tag.
    fn name_of_outcome(&self, tag: u32) -> Cow<'static, str> {
        format!("outcome {tag}").into()
    }
}

/// The context of what runs once, on the first element, when all arrays are there.
#[derive(Debug)]
pub enum Start {}

/// What an entry method may do.
pub struct Context<'a, C> {
    pub(crate) core: &'a mut Core,
    pub(crate) array: ArrayId,
    pub(crate) slot: u32,
    of: PhantomData<fn(&C)>,
}

impl<'a> Context<'a, Start> {
    pub(crate) fn start(core: &'a mut Core) -> Context<'a, Start> {
        Context { core, array: ArrayId(u32::MAX), slot: 0, of: PhantomData }
    }
}

impl<C> Context<'_, C> {
    /// Sends a message. It runs some time later, also if it is for this chare.
    pub fn send<D: Chare>(&mut self, to: Target<D>, message: D::Message) {
        self.core.send(to.array, &to.to, Priority::default(), message);
    }

    /// Sends a message that runs before those of higher priority numbers. 0 is the usual one.
    pub fn send_with<D: Chare>(&mut self, priority: Priority, to: Target<D>, message: D::Message) {
        self.core.send(to.array, &to.to, priority, message);
    }

    /// Calls back with that value: gives a [`ReplyTo`](super::ReplyTo) what its chare waits for, ends the program, or runs `outcome` of
    /// chares.
    pub fn call_back(&mut self, callback: impl Into<Callback>, value: impl Into<Value>) {
        self.core.call_back(callback.into(), value.into());
    }

    /// Calls back once no message waits or is on its way, on any element.
    pub fn when_quiet(&mut self, callback: impl Into<Callback>) {
        self.core.await_quiet(callback.into());
    }

    /// Once no message waits or is on its way, saves all chares, and then calls back. All arrays must be migratable. A program that begins
    /// again from what was saved gets the same callback. Where the element's owner keeps no checkpoints, nothing is saved.
    pub fn checkpoint(&mut self, callback: impl Into<Callback>) {
        self.core.await_quiet(callback.into().after_save());
    }

    /// From the next checkpoint on, the program goes on with so many elements ([`Context::checkpoint`]). Its callback comes among these, and all
    /// chares are where the placements put them on so many. The last number counts. All arrays must be migratable, and the program's
    /// owner must allow it.
    pub fn resize(&mut self, elements: u32) {
        self.core.tell(Pe(0), Control::Resize(elements));
    }

    /// Ends the program on all elements, with a value that each of them gets. Messages that wait are dropped.
    pub fn exit(&mut self, value: impl Into<Value>) {
        self.core.exit(value.into());
    }

    /// Ends the program with an error.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.core.fail(ChareError::Failed(why.into()));
    }

    /// Charges the work of this entry method, in floating-point operations, for the time that it takes in simulation. Without a
    /// charge, its time on this machine counts.
    pub fn compute(&mut self, flops: f64) {
        self.core.account.flops += flops;
    }

    /// The time in seconds: since 1970 for real, since the beginning in simulation.
    pub fn now(&self) -> f64 {
        (self.core.clock)().seconds()
    }

    /// The processing element that runs this.
    pub fn element(&self) -> Pe {
        self.core.me
    }

    pub fn elements(&self) -> &Elements {
        &self.core.elements
    }
}

impl<'a, C: Chare> Context<'a, C> {
    pub(crate) fn new(core: &'a mut Core, array: ArrayId, slot: u32) -> Context<'a, C> {
        Context { core, array, slot, of: PhantomData }
    }

    /// The own index.
    pub fn index(&self) -> Index {
        let roster = self.core.roster(self.array);
        roster.shape.index(roster.number(self.slot))
    }

    pub fn id(&self) -> ChareId {
        ChareId { array: self.array, index: self.index() }
    }

    /// The array of this chare.
    pub fn array(&self) -> Proxy<C> {
        Proxy::new(self.array)
    }

    /// This chare.
    pub fn this(&self) -> Target<C> {
        self.array().at(self.index())
    }

    /// Whether that chare of the own array exchanges messages with other sites, as stated to [`Placement::by_communication`](super::Placement::by_communication); never with
    /// another placement. Let what is sent to such chares run first, by [`Context::send_with`]: their answers have a long way.
    pub fn is_at_border(&self, index: impl Into<Index>) -> bool {
        self.core.roster(self.array).is_at_border(&index.into())
    }

    /// Takes part in the array's next reduction: each chare contributes once to each, all of them in the same order. The result
    /// goes to the callback once the last one has contributed.
    pub fn contribute(&mut self, contribution: Contribution, callback: impl Into<Callback>) {
        self.core.contribute(self.array, self.slot, contribution, callback.into());
    }

    /// Moves this chare to another element once the entry method has returned. Messages find it there, each once. Its array must be
    /// a migratable one. If a method of it waits then, the program ends with an error.
    pub fn migrate_to(&mut self, element: Pe) {
        self.core.migrate(self.array, element);
    }

    fn unexpected(&mut self, tag: u32) {
        let array = self.core.roster(self.array).name.clone();
        self.core.fail(ChareError::Unexpected { array, tag });
    }
}
