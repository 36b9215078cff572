//! The interface of programs: chares, and the operations available to their entry methods.

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
/// An entry method runs to completion, and no other runs on its element meanwhile. A chare that needs something
/// records that in its state and returns, or starts a waiting method ([`Context::spawn`]).
pub trait Chare: Sized + 'static {
    type Message: Payload;

    /// Handles a message. A message for waiting methods is passed to [`Context::keep`].
    fn entry(&mut self, message: Self::Message, cx: &mut Context<'_, Self>);

    /// Handles the result of a [`Callback`] to this chare: of a reduction, or a notification that the program is quiet.
    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, Self>) {
        let _ = value;
        cx.unexpected(tag);
    }

    /// Describes what the chare waits for. Used in the error of a program that can never end.
    fn waits_for(&self) -> Option<String> {
        None
    }

    /// Returns the name that a timeline shows for [`Chare::on_result`] with that tag.
    fn name_of_outcome(&self, tag: u32) -> Cow<'static, str> {
        format!("outcome {tag}").into()
    }
}

/// The context of the start function, which runs once, on the first element, when all arrays exist.
#[derive(Debug)]
pub enum Start {}

/// The operations available to an entry method.
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
    /// Sends a message. It is always handled later, even if it is for this chare.
    pub fn send<D: Chare>(&mut self, to: Target<D>, message: D::Message) {
        self.core.send(to.array, &to.to, Priority::default(), message);
    }

    /// Sends a message that runs before messages with higher priority numbers. The default is 0.
    pub fn send_with<D: Chare>(&mut self, priority: Priority, to: Target<D>, message: D::Message) {
        self.core.send(to.array, &to.to, priority, message);
    }

    /// Invokes a callback with a value: delivers it to a [`ReplyTo`](super::ReplyTo), ends the program, or runs
    /// `outcome` of chares.
    pub fn call_back(&mut self, callback: impl Into<Callback>, value: impl Into<Value>) {
        self.core.call_back(callback.into(), value.into());
    }

    /// Invokes the callback once no message is waiting or in transit on any element.
    pub fn when_quiet(&mut self, callback: impl Into<Callback>) {
        self.core.wait_for_quiescence(callback.into());
    }

    /// Saves all chares once no message is waiting or in transit, and then invokes the callback. All arrays must be
    /// migratable. A program restarted from the checkpoint gets the same callback. If the element's owner keeps no
    /// checkpoints, nothing is saved.
    pub fn checkpoint(&mut self, callback: impl Into<Callback>) {
        self.core.wait_for_quiescence(callback.into().after_save());
    }

    /// Continues the program with this number of elements from the next checkpoint on ([`Context::checkpoint`]). The
    /// checkpoint's callback is then invoked on the new elements, and all chares are where the placements put them for
    /// that number. The last call wins. All arrays must be migratable, and the program's owner must allow resizing.
    pub fn resize(&mut self, elements: u32) {
        self.core.send_control(Pe(0), Control::Resize(elements));
    }

    /// Ends the program on all elements. Each of them gets `value`. Waiting messages are dropped.
    pub fn exit(&mut self, value: impl Into<Value>) {
        self.core.exit(value.into());
    }

    /// Ends the program with an error.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.core.fail(ChareError::Failed(why.into()));
    }

    /// Charges the work of this entry method, in floating-point operations, which determines its time in simulation.
    /// Without a charge, its time on this machine counts.
    pub fn compute(&mut self, flops: f64) {
        self.core.account.flops += flops;
    }

    /// Returns the time in seconds: since 1970 in a real run, since the start in a simulation.
    pub fn now(&self) -> f64 {
        (self.core.clock)().seconds()
    }

    /// Returns the processing element that runs this entry method.
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

    /// Returns the index of this chare.
    pub fn index(&self) -> Index {
        let roster = self.core.roster(self.array);
        roster.shape.index(roster.number(self.slot))
    }

    pub fn id(&self) -> ChareId {
        ChareId { array: self.array, index: self.index() }
    }

    /// Returns the array of this chare.
    pub fn array(&self) -> Proxy<C> {
        Proxy::new(self.array)
    }

    /// Returns this chare as a target.
    pub fn this(&self) -> Target<C> {
        self.array().at(self.index())
    }

    /// Reports whether a chare of this array exchanges messages with other sites, as declared to
    /// [`Placement::by_communication`](super::Placement::by_communication); always false with another placement. Send
    /// to such chares with a priority ([`Context::send_with`]), because their answers take long.
    pub fn is_at_border(&self, index: impl Into<Index>) -> bool {
        self.core.roster(self.array).is_at_border(&index.into())
    }

    /// Contributes to the array's next reduction. Each chare contributes once to each reduction, and all of them in
    /// the same order. The result is sent to the callback once the last chare has contributed.
    pub fn contribute(&mut self, contribution: Contribution, callback: impl Into<Callback>) {
        self.core.contribute(self.array, self.slot, contribution, callback.into());
    }

    /// Moves this chare to another element once the entry method has returned. Messages are forwarded to it, each
    /// exactly once. Its array must be migratable. If one of its methods waits at that time, the program ends with an
    /// error.
    pub fn migrate_to(&mut self, element: Pe) {
        self.core.request_move(self.array, element);
    }

    fn unexpected(&mut self, tag: u32) {
        let array = self.core.roster(self.array).name.clone();
        self.core.fail(ChareError::Unexpected { array, tag });
    }
}
