//! Who uses a constraint, laid out so that going through all takes little memory.
//!
//! Who holds back each user, and its quota w/p, stand in arrays of their own: most passes need no more.

use super::{Variable, VariableIndex};

/// The users of a constraint.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    terms: Vec<User>,
    quotas: Vec<f64>,
    holders: Vec<u32>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    /// The level at which it meets its bound.
    pub(super) ceiling: f64,
    pub(super) variable: u32,
    pub(super) element: u32,
    start: u32,
    length: u32,
}

impl User {
    pub(super) fn new(variable: &Variable, index: VariableIndex, element: usize) -> User {
        let Variable { start, length, .. } = *variable;
        User { ceiling: variable.ceiling(), variable: index.0, element: element as u32, start, length }
    }

    pub(super) fn elements(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

impl Users {
    pub(super) fn len(&self) -> usize {
        self.terms.len()
    }

    /// Each with its quota and its holder.
    pub(super) fn with_terms(&self) -> impl Iterator<Item = (&User, f64, u32)> + Clone {
        let terms = self.terms.iter().zip(&self.quotas).zip(&self.holders);
        terms.map(|((user, quota), holder)| (user, *quota, *holder))
    }

    pub(super) fn get(&self, place: usize) -> User {
        self.terms[place]
    }

    pub(super) fn quota(&self, place: usize) -> f64 {
        self.quotas[place]
    }

    pub(super) fn holder(&self, place: usize) -> u32 {
        self.holders[place]
    }

    pub(super) fn push(&mut self, user: User, quota: f64, holder: u32) {
        self.terms.push(user);
        self.quotas.push(quota);
        self.holders.push(holder);
    }

    /// Changes one's terms, but for its holder.
    pub(super) fn replace(&mut self, place: usize, user: User, quota: f64) {
        (self.terms[place], self.quotas[place]) = (user, quota);
    }

    /// Removes one; who has its place now.
    pub(super) fn swap_remove(&mut self, place: usize) -> Option<&User> {
        self.terms.swap_remove(place);
        self.quotas.swap_remove(place);
        self.holders.swap_remove(place);
        self.terms.get(place)
    }

    /// Enters who holds one back; who did.
    pub(super) fn set_holder(&mut self, place: usize, holder: u32) -> u32 {
        std::mem::replace(&mut self.holders[place], holder)
    }
}
