//! Finds the constraints that a change affects.
//!
//! A change affects everything that is connected to it through enabled variables. This is determined once per
//! solution, for all changes since the last one.
//!
//! **Difference from the reference.** SimGrid 4.1 searches at each change, starting from the first constraint of the
//! changed variable only. If an earlier change at the same date already reached that constraint, the search ends
//! there. The variable's other constraints may then be left out, and it is solved without them until another change
//! touches them. This happens to two flows from one host whose latency phases end together. [`Reach::AsReference`]
//! reproduces this behaviour for comparisons.

use super::{Constraint, Solver, VariableIndex};

/// How far a change propagates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// It propagates to everything that is connected to it.
    #[default]
    Connected,
    /// As in SimGrid 4.1: the search runs at each change from the variable's first constraint, unless that one is already reached.
    AsReference,
}

impl Solver {
    /// Marks a constraint as changed.
    pub(super) fn touch(&mut self, constraint: u32) {
        mark(&mut self.constraints, &mut self.touched_constraints, constraint);
        if self.reach == Reach::AsReference {
            self.follow();
        }
    }

    /// Marks an enabled variable as changed.
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

    /// Marks the constraints that the marked ones reach.
    fn follow(&mut self) {
        while self.touched_followed < self.touched_constraints.len() {
            let constraint = self.touched_constraints[self.touched_followed] as usize;
            self.touched_followed += 1;
            for at in 0..self.constraints[constraint].users.len() {
                let variable = self.constraints[constraint].users.get(at).0.variable;
                for element in self.variables[variable as usize].elements() {
                    mark(&mut self.constraints, &mut self.touched_constraints, self.pool[element].constraint);
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
