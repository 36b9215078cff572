//! Changes the number of elements of a running program.
//!
//! ```text
//!  first element                          all elements
//!    │ quiet, and a chare wants to save    │
//!    │── save, for 4 elements ────────────▶│ the owner stores the bytes where the next elements find them
//!    │◀───────────────────────────── saved │
//!    │ the owner records that all exist    │
//!    │── renew ───────────────────────────▶│ ends: its owner creates one element of 4, or none
//! ```
//! The number changes at a checkpoint, because a checkpoint can be restored on any number of elements. Its callbacks
//! are invoked on the new elements.
//!
//! **Promise:** an element that ends for a resize notifies all others before its owner closes its connections, so that
//! none takes that for a loss. **Does not** start or stop elements; their owner does.

use super::core::Core;
use super::element::Element;
use super::error::ChareError;
use super::id::Pe;
use super::record::Control;
use super::resize_state::ResizePolicy;

/// A new number of elements, for which all elements save.
#[derive(Clone, Copy)]
pub(crate) struct NewSize {
    pub(crate) elements: u32,
    /// True if it was requested from outside, and not by a chare.
    pub(crate) is_asked: bool,
}

impl Core {
    /// On the first element: records a chare's request for a number of elements from the next checkpoint on.
    pub(crate) fn request(&mut self, elements: u32) {
        match self.check_resize(elements) {
            Ok(()) => self.resizing.want(elements),
            Err(why) => self.fail(ChareError::Resize { elements, why }),
        }
    }

    /// # Errors
    /// The reason why the program cannot continue with this number.
    fn check_resize(&self, elements: u32) -> Result<(), String> {
        if elements == self.elements.count() {
            return Ok(());
        }
        if elements == 0 {
            return Err("at least one element is needed".into());
        }
        self.resizing.check(elements)?;
        match self.rosters.iter().find(|roster| !roster.is_migratable) {
            Some(roster) => Err(format!(
                "array {} is not migratable, so its chares cannot move to other elements: make it a migratable array, \
                not a group",
                roster.name
            )),
            None => Ok(()),
        }
    }

    /// On the first element, at a checkpoint: returns the new number of elements, if it changes.
    pub(crate) fn next_elements(&mut self) -> Option<NewSize> {
        let count = self.elements.count();
        if let Some(wanted) = self.resizing.take_wanted() {
            return (wanted != count).then_some(NewSize { elements: wanted, is_asked: false });
        }
        let asked = self.resizing.requested().filter(|asked| *asked != count)?;
        let checked = self.check_resize(asked);
        if let Err(why) = &checked {
            self.resizing.refuse(asked, why);
        }
        checked.is_ok().then_some(NewSize { elements: asked, is_asked: true })
    }

    /// On the first element: reports that the resize requested from outside failed.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.resizing.refuse_target(why);
    }

    /// Ends this element, because the program continues with `elements` elements.
    pub(crate) fn end_for_resize(&mut self, elements: u32) {
        if self.resizing.end() {
            self.others().for_each(|other| self.send_control(other, Control::EndForResize(elements)));
        }
    }
}

impl Element {
    /// Allows the number of elements to change. Only needed on the first element.
    pub fn set_resize_policy(&mut self, policy: Box<dyn ResizePolicy>) {
        self.core.resizing.set_policy(policy);
    }

    /// Returns the number of elements for which [`Element::take_part`] saves, if it differs from the current number.
    /// The owner of the first element then calls [`Element::renew`] instead of [`Element::resume`].
    pub fn saves_for(&self) -> Option<u32> {
        self.core.resizing.target()
    }

    /// Reports whether the resize was requested from outside. Then a failure to save does not fail the program, and
    /// the owner calls [`Element::cannot_save`].
    pub fn is_resize_requested(&self) -> bool {
        self.core.resizing.is_external()
    }

    /// Reports whether the element has ended, or is about to, because the program continues with another number of elements.
    pub fn is_resized(&self) -> bool {
        self.core.resizing.has_ended()
    }

    /// On the first element, when all have saved: ends all elements with [`Step::Resized`](super::Step::Resized).
    ///
    /// # Panics
    /// If they have not saved for another number of elements.
    pub fn renew(&mut self) {
        assert_eq!(self.me(), Pe(0), "the first element ends the others");
        let elements = self.core.resizing.target().expect("the checkpoint is for another number of elements");
        self.core.end_for_resize(elements);
    }
}
