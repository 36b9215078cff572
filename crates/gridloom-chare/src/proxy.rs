//! Proxies: how a program addresses chares.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::id::{ArrayId, Index};
use super::waiting_methods::TAGS;

/// An array of chares of type `C`, on any element.
pub struct Proxy<C: ?Sized> {
    array: ArrayId,
    of: PhantomData<fn(&C)>,
}

impl<C: ?Sized> Proxy<C> {
    pub(crate) fn new(array: ArrayId) -> Proxy<C> {
        Proxy { array, of: PhantomData }
    }

    pub fn id(&self) -> ArrayId {
        self.array
    }

    /// Returns one chare as a target.
    pub fn at(&self, index: impl Into<Index>) -> Target<C> {
        self.target(Recipients::One(index.into()))
    }

    /// Returns all chares of the array as a target.
    pub fn all(&self) -> Target<C> {
        self.target(Recipients::All)
    }

    /// Returns a target of several chares. A message for a section is sent once to each element.
    pub fn section(&self, indices: impl IntoIterator<Item = impl Into<Index>>) -> Target<C> {
        self.target(Recipients::Section(indices.into_iter().map(Into::into).collect()))
    }

    fn target(&self, to: Recipients) -> Target<C> {
        Target { array: self.array, to, of: PhantomData }
    }
}

/// The destination of a message. A stored section is cheap to clone.
pub struct Target<C: ?Sized> {
    pub(crate) array: ArrayId,
    pub(crate) to: Recipients,
    of: PhantomData<fn(&C)>,
}

/// A set of chares of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Recipients {
    One(Index),
    All,
    Section(Arc<[Index]>),
}

/// The receiver of a reduction result or of a quiescence notification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Callback {
    pub(crate) goal: CallbackTarget,
    pub(crate) tag: u32,
    /// True if all chares are saved before it is called.
    pub(crate) saves: bool,
}

/// See [`Callback`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum CallbackTarget {
    Chares {
        array: ArrayId,
        to: Recipients,
    },
    Exit,
    /// Fails the program, which can never end if it is quiet.
    Stalled,
}

impl Callback {
    /// Creates a callback to chares, which receive the value in [`crate::Chare::on_result`].
    pub fn to<C: ?Sized>(target: Target<C>) -> Callback {
        Callback { goal: CallbackTarget::Chares { array: target.array, to: target.to }, tag: 0, saves: false }
    }

    /// Creates a callback that ends the program on all elements with the value.
    pub fn exit() -> Callback {
        Callback { goal: CallbackTarget::Exit, tag: 0, saves: false }
    }

    /// Creates a callback that ends the program with an error, because nothing can make it continue.
    pub(crate) fn stalled() -> Callback {
        Callback { goal: CallbackTarget::Stalled, tag: 0, saves: false }
    }

    /// Makes all chares be saved before the callback is called.
    pub(crate) fn after_save(self) -> Callback {
        Callback { saves: true, ..self }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.goal == CallbackTarget::Stalled
    }

    /// Sets a tag that distinguishes this result from others of the same chare.
    ///
    /// # Panics
    /// If the tag is not below 2^31. Greater tags are reserved for replies.
    #[must_use]
    pub fn tagged(self, tag: u32) -> Callback {
        assert!(tag < TAGS, "the tag of a result is below {TAGS}, not {tag}");
        self.with_tag(tag)
    }

    pub(crate) fn with_tag(mut self, tag: u32) -> Callback {
        self.tag = tag;
        self
    }
}

impl<C: ?Sized> From<Target<C>> for Callback {
    fn from(target: Target<C>) -> Callback {
        Callback::to(target)
    }
}

// Derived implementations would require the same traits of `C`.
impl<C: ?Sized> Clone for Proxy<C> {
    fn clone(&self) -> Proxy<C> {
        *self
    }
}

impl<C: ?Sized> Copy for Proxy<C> {}

impl<C: ?Sized> Clone for Target<C> {
    fn clone(&self) -> Target<C> {
        Target { array: self.array, to: self.to.clone(), of: PhantomData }
    }
}

impl<C: ?Sized> fmt::Debug for Proxy<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.array).finish()
    }
}

impl<C: ?Sized> fmt::Debug for Target<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("array", &self.array).field("to", &self.to).finish()
    }
}
