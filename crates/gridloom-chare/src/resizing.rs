//! Programs that go on with another number of elements.
//!
//! ```text
//!  first element                          all elements
//!    │ quiet, and a chare wants to save    │
//!    │── save, for 4 elements ────────────▶│ the owner keeps the bytes where the next elements find them
//!    │◀───────────────────────────── saved │
//!    │ the owner notes that all are there  │
//!    │── renew ───────────────────────────▶│ ends: its owner makes an element among 4, or none
//! ```
//! The number changes with a checkpoint, since a checkpoint can be restored on any number of elements. Its callbacks come among the new ones.
//!
//! **Promise:** an element that ends so tells all others before its owner closes its connections. So none takes that for a loss.
//! **Does not** start elements, nor end them: their owner does.

use std::fmt;

use super::core::Core;
use super::element::Element;
use super::error::ChareError;
use super::id::Pe;
use super::record::Control;

/// What the owner of the first element says of the number of elements.
pub trait Resize {
    /// With how many elements the program was asked to go on, from outside.
    fn asked(&mut self) -> Option<u32>;

    /// # Errors
    /// Why the program cannot go on with so many.
    fn check(&self, elements: u32) -> Result<(), String>;

    /// What was asked from outside cannot be, for that reason.
    fn refuse(&mut self, elements: u32, why: &str);
}

/// Without an owner that says otherwise.
const FIXED: &str = "this run has a fixed number of elements; 'gridloom chares run -n NUMBER -- PROGRAM' starts one on this machine whose number \
     can change";

/// What an element has of a change of their number.
#[derive(Default)]
pub(crate) struct Resizing {
    /// At the first element.
    owner: Option<Box<dyn Resize>>,
    /// At the first element: what chares have asked for.
    wanted: Option<u32>,
    /// What is saved is for so many elements.
    pub(crate) saves_for: Option<u32>,
    /// That was asked from outside.
    pub(crate) is_asked: bool,
    /// The element has ended: the program goes on with so many.
    pub(crate) renewed: Option<u32>,
}

/// Another number of elements, for which all save.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    pub(crate) elements: u32,
    /// From outside, and not by a chare.
    pub(crate) is_asked: bool,
}

impl fmt::Debug for Resizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resizing")
            .field("wanted", &self.wanted)
            .field("saves_for", &self.saves_for)
            .finish_non_exhaustive()
    }
}

impl Core {
    /// At the first element: a chare wants so many elements from the next checkpoint on.
    pub(crate) fn want(&mut self, elements: u32) {
        match self.check_resize(elements) {
            Ok(()) => self.checkpoints.resizing.wanted = Some(elements),
            Err(why) => self.fail(ChareError::Resize { elements, why }),
        }
    }

    /// # Errors
    /// Why the program cannot go on with so many.
    fn check_resize(&self, elements: u32) -> Result<(), String> {
        if elements == self.elements.count() {
            return Ok(());
        }
        if elements == 0 {
            return Err("at least one is needed".into());
        }
        self.checkpoints.resizing.owner.as_ref().map_or(Err(FIXED.into()), |owner| owner.check(elements))?;
        match self.rosters.iter().find(|roster| !roster.is_migratable) {
            Some(roster) => Err(format!(
                "array {} is not migratable, so its chares cannot go to other elements: make it a migratable one, and no group",
                roster.name
            )),
            None => Ok(()),
        }
    }

    /// At the first element, at a checkpoint: for how many elements it is, if for another number.
    pub(crate) fn next_elements(&mut self) -> Option<Next> {
        let count = self.elements.count();
        if let Some(wanted) = self.checkpoints.resizing.wanted.take() {
            return (wanted != count).then_some(Next { elements: wanted, is_asked: false });
        }
        let asked = self.checkpoints.resizing.owner.as_mut()?.asked().filter(|asked| *asked != count)?;
        let checked = self.check_resize(asked);
        if let (Err(why), Some(owner)) = (&checked, &mut self.checkpoints.resizing.owner) {
            owner.refuse(asked, why);
        }
        checked.is_ok().then_some(Next { elements: asked, is_asked: true })
    }

    /// At the first element: what was asked from outside cannot be.
    pub(crate) fn refuse(&mut self, why: &str) {
        let resizing = &mut self.checkpoints.resizing;
        if let (Some(elements), Some(owner)) = (resizing.saves_for.take(), &mut resizing.owner) {
            owner.refuse(elements, why);
        }
    }

    /// The element ends, since the program goes on with so many.
    pub(crate) fn renew(&mut self, elements: u32) {
        if self.checkpoints.resizing.renewed.is_none() {
            self.others().for_each(|other| self.tell(other, Control::Renew(elements)));
            self.checkpoints.resizing.renewed = Some(elements);
        }
    }
}

impl Element {
    /// Lets the number of elements change. Only the first element needs to be told.
    pub fn let_resize(&mut self, owner: Box<dyn Resize>) {
        self.core.checkpoints.resizing.owner = Some(owner);
    }

    /// For how many elements [`Element::take_saved`] saves, if for another number than there are. The owner of the first element then calls
    /// [`Element::renew`] in place of [`Element::go_on`].
    pub fn saves_for(&self) -> Option<u32> {
        self.core.checkpoints.resizing.saves_for
    }

    /// Whether that was asked from outside: then what cannot be saved is no failure of the program, and the owner calls
    /// [`Element::cannot_save`].
    pub fn saves_as_asked(&self) -> bool {
        self.core.checkpoints.resizing.is_asked
    }

    /// Whether it has ended, or is about to, as the program goes on with another number of elements.
    pub fn is_renewed(&self) -> bool {
        self.core.checkpoints.resizing.renewed.is_some()
    }

    /// At the first element: all have saved, and end with [`Step::Renewed`](super::Step::Renewed).
    ///
    /// # Panics
    /// If they have not saved for another number of elements.
    pub fn renew(&mut self) {
        assert_eq!(self.me(), Pe(0), "the first element ends the others");
        let elements =
            self.core.checkpoints.resizing.saves_for.expect("what was saved is for another number of elements");
        self.core.renew(elements);
    }
}
