//! Which constraints a change concerns.
//!
//! A change concerns what is connected to it through enabled variables. That is sought when the system is solved, once
//! for all changes since the last time.
//!
//! **The reference differs.** SimGrid 4.1 seeks it at each change, from the first constraint of the changed variable
//! alone. If an earlier change at the same date concerned that one already, the search ends there. Then the variable's
//! other constraints may be left out, and it is solved without regard to them until something else touches them. Two
//! flows from one host meet this if their latency phases end together. [`Reach::AsReference`] does the same, to be
//! compared with it.

use super::{Constraint, Solver, VariableIndex};

/// How far a change reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// To all that is connected to it.
    #[default]
    Connected,
    /// As in SimGrid 4.1: sought at each change from the variable's first constraint, unless that one is concerned already.
    AsReference,
}

impl Solver {
    /// Notes that a constraint has changed.
    pub(super) fn touch(&mut self, constraint: u32) {
        mark(&mut self.constraints, &mut self.touched, constraint);
        if self.reach == Reach::AsReference {
            self.follow();
        }
    }

    /// Notes that an enabled variable has changed.
    pub(super) fn touch_variable(&mut self, variable: VariableIndex) {
        let elements = self.variables[variable.0 as usize].elements();
        match self.reach {
            Reach::Connected => {
                for element in elements {
                    self.touch(self.pool[element].constraint);
                }
            }
            Reach::AsReference => {
                if let Some(first) = elements.into_iter().next() {
                    self.touch(self.pool[first].constraint);
                }
            }
        }
    }

    /// Marks what the marked constraints reach.
    fn follow(&mut self) {
        while self.followed < self.touched.len() {
            let constraint = self.touched[self.followed] as usize;
            self.followed += 1;
            for at in 0..self.constraints[constraint].users.len() {
                let variable = self.constraints[constraint].users.get(at).0.variable;
                for element in self.variables[variable as usize].elements() {
                    mark(&mut self.constraints, &mut self.touched, self.pool[element].constraint);
                }
            }
        }
    }
}

fn mark(constraints: &mut [Constraint], touched: &mut Vec<u32>, constraint: u32) {
    let state = &mut constraints[constraint as usize];
    if !state.touched {
        state.touched = true;
        touched.push(constraint);
    }
}
