//! Solves only what a change does concern, which is mostly little of what it can reach.
//!
//! A solution is max-min fair exactly if each variable is at its bound, or is *held back* by a constraint that is full and
//! on which no other variable has a higher level p·x (Bertsekas and Gallager, *Data Networks*, 6.5.2). So:
//!
//! ```text
//! S = variables that changed, and those held back by a constraint that changed
//! repeat  fill the variables of S alone, with what all others leave of their constraints
//!         add to S whom that harms: variables held back by a constraint that is not full any more, or on which one of S
//!         now has a higher level; and those of a higher level than one of S that their constraint holds back
//! until nobody is added
//! ```
//!
//! **Invariant:** S only grows, so this ends; then all are held back, and the solution is that of the whole system.
//!
//! **Not done.** Systems with fat pipes, whose rule is another, and changes that concern so many that filling S again
//! and again would cost more than filling all: these are left to the caller, as they were.
//!
//! Source: the characterisation as above; the procedure is ours.

use super::{Policy, Solver};

/// Levels are alike, and a constraint is full, within this part.
const ALIKE: f64 = 1e-11;
/// By that part, a constraint may be over its capacity because of rounding.
const OVERFULL: f64 = 1e-9;

/// After repairs that were given up, so many solutions at most are not begun by trying one.
const PAUSE_MAX: u32 = 64;

/// The repair cannot be done, or would cost too much.
struct GivenUp;

impl Solver {
    /// Brings all values up to date; false, and nothing done, if that is better done for all that the change reaches.
    pub(super) fn repair(&mut self) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        let done = self.try_repair();
        self.pause_next = if done.is_ok() { 1 } else { (2 * self.pause_next).min(PAUSE_MAX) };
        if done.is_err() {
            self.pause = self.pause_next;
            for (index, before) in self.scratch.variables.iter().zip(&self.scratch.before) {
                self.variables[*index as usize].value = *before;
            }
            return false;
        }
        for constraint in self.touched.drain(..) {
            self.constraints[constraint as usize].touched = false;
        }
        true
    }

    fn try_repair(&mut self) -> Result<(), GivenUp> {
        self.solution = self.solution.wrapping_add(1);
        let own = self.solution;
        self.scratch.variables.clear();
        self.scratch.before.clear();
        for at in 0..self.dirty.len() {
            self.join(self.dirty[at].0, own);
        }
        for at in 0..self.touched.len() {
            let constraint = self.touched[at];
            self.join_users(constraint, own, |_, held_by| held_by == constraint);
        }
        let mut cost = 0;
        loop {
            let known = self.scratch.variables.len();
            self.open_around(own, &mut cost)?;
            if self.scratch.variables.len() == known {
                self.fill();
                for at in 0..self.scratch.component.len() {
                    self.join_the_harmed(self.scratch.component[at], own);
                }
            }
            if self.scratch.variables.len() == known {
                return Ok(());
            }
        }
    }

    /// Opens the constraints of S, with what the others leave of them.
    fn open_around(&mut self, own: u32, cost: &mut usize) -> Result<(), GivenUp> {
        // Constraints are stamped anew each time; variables keep the stamp of S.
        self.solution = self.solution.wrapping_add(1);
        let Solver { constraints, variables, pool, scratch, solution, .. } = self;
        scratch.component.clear();
        scratch.levels.clear();
        scratch.sorted.clear();
        for index in &scratch.variables {
            for element in &pool[variables[*index as usize].elements()] {
                let constraint = &mut constraints[element.constraint as usize];
                if constraint.solution != *solution {
                    constraint.solution = *solution;
                    scratch.component.push(element.constraint);
                }
            }
        }
        let mut overfull = Vec::new();
        for index in &scratch.component {
            let constraint = &mut constraints[*index as usize];
            if constraint.policy == Policy::FatPipe {
                return Err(GivenUp);
            }
            *cost += constraint.users.len();
            if *cost > self.listed {
                return Err(GivenUp);
            }
            let (mut room, mut usage) = (constraint.capacity, 0.0);
            for user in &constraint.users {
                let variable = &variables[user.variable as usize];
                if variable.solution == own {
                    usage += user.quota;
                } else {
                    room -= user.weight * variable.value;
                }
            }
            if room < -OVERFULL * constraint.capacity {
                overfull.push(*index);
            }
            constraint.open(room.max(0.0), usage);
            if constraint.live {
                scratch.levels.append(constraint.remaining / usage, *index);
            }
        }
        scratch.levels.order();
        for index in &scratch.variables {
            variables[*index as usize].empty();
            variables[*index as usize].solution = own;
        }
        for index in overfull {
            self.join_users(index, own, |_, _| true);
        }
        Ok(())
    }

    /// Adds those whom the new values of S on a constraint harm, or who stand in the way of S.
    fn join_the_harmed(&mut self, index: u32, own: u32) {
        let constraint = &self.constraints[index as usize];
        let (mut left, mut highest, mut others) = (constraint.capacity, 0.0f64, false);
        for user in &constraint.users {
            let variable = &self.variables[user.variable as usize];
            left -= user.weight * variable.value;
            match variable.solution == own {
                true => highest = highest.max(variable.level()),
                false => others = true,
            }
        }
        if !others {
            return;
        }
        let (capacity, held_at) = (constraint.capacity, constraint.held_at);
        match held_at {
            Some(held_at) => self.join_users(index, own, |level, held_by| {
                level > held_at * (1.0 + ALIKE) || held_by == index && level < held_at * (1.0 - ALIKE)
            }),
            None if left > ALIKE * capacity => self.join_users(index, own, |_, held_by| held_by == index),
            None => self.join_users(index, own, |level, held_by| held_by == index && level < highest * (1.0 - ALIKE)),
        }
    }

    /// Adds the users of a constraint of whom that is true, by their level and by what holds them back.
    fn join_users(&mut self, index: u32, own: u32, which: impl Fn(f64, u32) -> bool) {
        for at in 0..self.constraints[index as usize].users.len() {
            let user = self.constraints[index as usize].users[at].variable;
            let variable = &self.variables[user as usize];
            if variable.solution != own && which(variable.level(), variable.held_by) {
                self.join(user, own);
            }
        }
    }

    /// Adds an enabled variable to S.
    fn join(&mut self, index: u32, own: u32) {
        let variable = &mut self.variables[index as usize];
        if variable.solution != own && variable.penalty > 0.0 {
            variable.solution = own;
            self.scratch.variables.push(index);
            self.scratch.before.push(variable.value);
        }
    }
}
