//! The state of a change of the number of elements: who wants it, for which number elements save, and whether they
//! have ended for it. [`super::resizing`] carries it out.

use std::fmt;

/// The policy of the first element's owner on the number of elements.
pub trait ResizePolicy {
    /// Returns the number of elements that was requested from outside.
    fn requested(&mut self) -> Option<u32>;

    /// # Errors
    /// The reason why the program cannot continue with this number.
    fn check(&self, elements: u32) -> Result<(), String>;

    /// Reports that a request from outside was refused, and why.
    fn refuse(&mut self, elements: u32, why: &str);
}

/// The reason for refusal if the owner sets no policy.
const NO_RESIZE_POLICY: &str = "this run has a fixed number of elements; 'gridloom chares run -n NUMBER -- PROGRAM' starts one on this machine whose number \
     can change";

/// The resize state of an element.
#[derive(Default)]
pub(crate) struct Resizing {
    /// The owner's policy; set only on the first element.
    policy: Option<Box<dyn ResizePolicy>>,
    /// The number of elements that chares have requested; set only on the first element.
    wanted: Option<u32>,
    /// The number of elements for which the current checkpoint is saved.
    target: Option<u32>,
    /// True if the resize was requested from outside.
    is_external: bool,
    /// True if the element has ended for a resize.
    has_ended: bool,
}

impl Resizing {
    pub(crate) fn set_policy(&mut self, policy: Box<dyn ResizePolicy>) {
        self.policy = Some(policy);
    }

    /// # Errors
    /// The policy's reason why the program cannot continue with this number.
    pub(crate) fn check(&self, elements: u32) -> Result<(), String> {
        self.policy.as_ref().map_or(Err(NO_RESIZE_POLICY.into()), |policy| policy.check(elements))
    }

    /// Records a chare's request. The last one wins.
    pub(crate) fn want(&mut self, elements: u32) {
        self.wanted = Some(elements);
    }

    /// Takes the number that chares have requested.
    pub(crate) fn take_wanted(&mut self) -> Option<u32> {
        self.wanted.take()
    }

    /// Returns the number that was requested from outside.
    pub(crate) fn requested(&mut self) -> Option<u32> {
        self.policy.as_mut()?.requested()
    }

    /// Reports that this request from outside was refused, and why.
    pub(crate) fn refuse(&mut self, elements: u32, why: &str) {
        if let Some(policy) = &mut self.policy {
            policy.refuse(elements, why);
        }
    }

    /// Records the number of elements for which the element saves, if it changes, and whether that was requested from outside.
    pub(crate) fn begin_saving(&mut self, target: Option<u32>, is_external: bool) {
        (self.target, self.is_external) = (target, is_external);
    }

    pub(crate) fn target(&self) -> Option<u32> {
        self.target
    }

    /// Drops the number for which the elements save, if there is one, and reports why to the owner.
    pub(crate) fn refuse_target(&mut self, why: &str) {
        if let Some(elements) = self.target.take() {
            self.refuse(elements, why);
        }
    }

    pub(crate) fn is_external(&self) -> bool {
        self.is_external
    }

    /// Records that the element ends for a resize. Returns false if it has ended already.
    pub(crate) fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.has_ended, true)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl fmt::Debug for Resizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resizing").field("wanted", &self.wanted).field("target", &self.target).finish_non_exhaustive()
    }
}
