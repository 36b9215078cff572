//! How a program names chares: a proxy to an array, and what it may send to.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::id::{ArrayId, Index};
use super::waits::TAGS;

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

    /// One chare.
    pub fn at(&self, index: impl Into<Index>) -> Target<C> {
        self.target(To::One(index.into()))
    }

    /// Every chare of the array.
    pub fn all(&self) -> Target<C> {
        self.target(To::All)
    }

    /// These chares. A message for a section goes once to each element.
    pub fn section(&self, indices: impl IntoIterator<Item = impl Into<Index>>) -> Target<C> {
        self.target(To::Section(indices.into_iter().map(Into::into).collect()))
    }

    fn target(&self, to: To) -> Target<C> {
        Target { array: self.array, to, of: PhantomData }
    }
}

/// What a message is sent to. A section that is kept is cloned cheaply.
pub struct Target<C: ?Sized> {
    pub(crate) array: ArrayId,
    pub(crate) to: To,
    of: PhantomData<fn(&C)>,
}

/// Chares of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum To {
    One(Index),
    All,
    Section(Arc<[Index]>),
}

/// Where the result of a reduction goes, or the word that all is quiet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Callback {
    pub(crate) goal: Goal,
    pub(crate) tag: u32,
    /// Whether all chares are to be saved before it is called.
    pub(crate) saves: bool,
}

/// See [`Callback`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Goal {
    Chares {
        array: ArrayId,
        to: To,
    },
    Exit,
    /// The program can never end if all is quiet.
    Stalled,
}

impl Callback {
    /// It goes to those chares, which get it in [`crate::Chare::outcome`].
    pub fn to<C: ?Sized>(target: Target<C>) -> Callback {
        Callback { goal: Goal::Chares { array: target.array, to: target.to }, tag: 0, saves: false }
    }

    /// It ends the program, on all elements, with that value.
    pub fn exit() -> Callback {
        Callback { goal: Goal::Exit, tag: 0, saves: false }
    }

    /// It ends the program with an error, since nothing can make it go on.
    pub(crate) fn stalled() -> Callback {
        Callback { goal: Goal::Stalled, tag: 0, saves: false }
    }

    /// All chares are saved before it is called.
    pub(crate) fn after_save(self) -> Callback {
        Callback { saves: true, ..self }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.goal == Goal::Stalled
    }

    /// Tells this result from others of the same chare.
    ///
    /// # Panics
    /// If the tag is not below 2^31. Greater ones are those of replies.
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

// Derived ones would ask the same of `C`.
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
