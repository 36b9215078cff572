//! The users of a constraint, laid out so that a pass over all of them reads little memory.
//!
//! The values that determine a level are in an array of their own, because most passes need nothing else.

use super::{Variable, VariableIndex};

#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    terms: Vec<Demand>,
    users: Vec<User>,
}

/// The values of one user that determine the level of its constraint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// w/p.
    pub(super) quota: f64,
    /// The level at which it reaches its bound.
    pub(super) ceiling: f64,
    pub(super) holder: u32,
}

/// The variable of a user, and the location of its elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) variable: u32,
    pub(super) element: u32,
    start: u32,
    length: u32,
}

impl Demand {
    pub(super) fn new(variable: &Variable, weight: f64) -> Demand {
        Demand { quota: weight / variable.penalty, ceiling: variable.ceiling(), holder: variable.bottleneck }
    }
}

impl User {
    pub(super) fn new(variable: &Variable, index: VariableIndex, element: usize) -> User {
        let Variable { start, length, .. } = *variable;
        User { variable: index.0, element: element as u32, start, length }
    }

    pub(super) fn elements(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

impl Users {
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = &Demand> {
        self.terms.iter()
    }

    /// Iterates over all users with their terms.
    pub(super) fn with_terms(&self) -> impl Iterator<Item = (&User, &Demand)> + Clone {
        self.users.iter().zip(&self.terms)
    }

    pub(super) fn get(&self, place: usize) -> (User, Demand) {
        (self.users[place], self.terms[place])
    }

    pub(super) fn holder(&self, place: usize) -> u32 {
        self.terms[place].holder
    }

    pub(super) fn push(&mut self, user: User, terms: Demand) {
        self.users.push(user);
        self.terms.push(terms);
    }

    /// Replaces a user's terms, except for its limiting constraint.
    pub(super) fn set_terms(&mut self, place: usize, terms: Demand) {
        self.terms[place] = Demand { holder: self.terms[place].holder, ..terms };
    }

    /// Removes a user. Returns the user that now has its position.
    pub(super) fn swap_remove(&mut self, place: usize) -> Option<&User> {
        self.terms.swap_remove(place);
        self.users.swap_remove(place);
        self.users.get(place)
    }

    /// Sets the constraint that limits a user. Returns the previous one.
    pub(super) fn set_holder(&mut self, place: usize, holder: u32) -> u32 {
        std::mem::replace(&mut self.terms[place].holder, holder)
    }
}
