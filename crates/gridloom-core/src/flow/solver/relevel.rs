//! Follows a change from constraint to constraint, which is mostly little of what it can reach.
//!
//! A solution is max-min fair exactly if each variable is at its bound, or is *held back* by a constraint that is full and
//! on which no other variable has a higher level p·x (Bertsekas and Gallager, *Data Networks*, 6.5.2). So a solution is
//! said by two things: the level at which each constraint is full, and who holds back each variable. Given the level A_i
//! that each user of a constraint has elsewhere, or would be held at by its bound, the constraint is full at
//!
//! ```text
//! shared    the level l with  sum over users of w/p min(l, A_i) = C
//! fat pipe  the lowest l = C p_i / w_i with  l <= A_i            (its other users are held at that level too)
//! ```
//!
//! and holds back those whose A_i is above that. What has changed waits in order of level:
//!
//! ```text
//! repeat  take the constraint of the lowest level that waits; find its level anew
//!         it takes users that have more, and lets go those that meet their bound below
//!         the other constraints of each user whose level changed wait, if they are not full before that level
//! until none waits; then values are reckoned, of the users of constraints whose level changed alone
//! ```
//!
//! A constraint that is not full has something to spare, from which rises are taken; it waits when nothing is left of that.
//!
//! **Invariant:** a constraint that does not wait, has the level that follows from its users' others. So the end is a
//! solution, whatever the order. Lowest first makes it quick: what is full early depends only on what is full earlier.
//! It ends because of that too: the lowest wrong level is right once its constraint, and those wrongly lower, were taken.
//!
//! **Not done.** Changes of so many variables, or waits for so long, that filling all would cost less: left to the caller.
//!
//! Source: the characterisation as above; the procedure is ours. The level on a shared constraint is found by Newton's
//! method on a concave function of pieces of straight lines, begun at the level before.

use super::{NOBODY, Policy, Solver, User};

/// Levels are alike within this part, and a constraint within its capacity.
const ALIKE: f64 = 1e-12;
/// As alike, where many differences were added up.
const ALIKE_SUMS: f64 = 1e-9;
/// So many users are looked at, for each element that there is, before it is given up.
const LOOKS_MAX: usize = 16;
/// Newton's method ends after a step for each user; rounding could make it go to and fro.
const STEPS_MAX: usize = 64;

impl Solver {
    /// Brings all values up to date; false, and no value changed, if that is better done for all that the change reaches.
    pub(super) fn relevel(&mut self) -> bool {
        let changed: usize = self.dirty.iter().map(|index| self.variables[index.0 as usize].length as usize).sum();
        if 2 * changed > self.listed {
            return false;
        }
        self.scratch.levels.clear();
        self.scratch.component.clear();
        self.scratch.moved.clear();
        for at in 0..self.touched.len() {
            self.line_up(self.touched[at]);
        }
        let mut looks = LOOKS_MAX * self.listed + self.touched.len();
        while let Some((_, constraint)) = self.scratch.levels.first() {
            self.scratch.levels.pop();
            self.constraints[constraint as usize].waits = false;
            let users = self.constraints[constraint as usize].users.len();
            if looks < users {
                self.dismiss();
                return false;
            }
            looks -= users;
            self.find_level(constraint);
        }
        for constraint in self.touched.drain(..) {
            self.constraints[constraint as usize].touched = false;
        }
        self.reckon();
        true
    }

    /// Lets a constraint wait for its turn.
    fn line_up(&mut self, constraint: u32) {
        let state = &mut self.constraints[constraint as usize];
        if !state.waits {
            state.waits = true;
            self.scratch.levels.push(self.full_at.of(constraint), constraint);
        }
    }

    /// Nobody waits any more.
    fn dismiss(&mut self) {
        while let Some((_, constraint)) = self.scratch.levels.first() {
            self.scratch.levels.pop();
            self.constraints[constraint as usize].waits = false;
        }
    }

    /// Finds at which level a constraint is full, and whom it holds back.
    fn find_level(&mut self, constraint: u32) {
        let before = self.full_at.of(constraint);
        self.full_at.set(constraint, f64::INFINITY);
        let found = match self.constraints[constraint as usize].policy {
            Policy::Shared => self.level_of_shared(constraint, before),
            Policy::FatPipe => self.level_of_pipe(constraint),
        };
        let same = found == before || (found - before).abs() <= ALIKE * found.min(before);
        let level = if same { before } else { found };
        self.full_at.set(constraint, level);
        if !same {
            self.scratch.component.push(constraint);
        }
        for at in 0..self.constraints[constraint as usize].users.len() {
            let user = self.constraints[constraint as usize].users[at];
            if user.held_by == constraint {
                if user.ceiling < level {
                    self.hold(user.variable, NOBODY);
                    self.stir(&user, constraint, before, user.ceiling);
                } else if !same {
                    self.stir(&user, constraint, before, level);
                }
            } else {
                let elsewhere = self.full_at.elsewhere(&user);
                if elsewhere > level * (1.0 + ALIKE) {
                    self.hold(user.variable, constraint);
                    self.stir(&user, constraint, elsewhere, level);
                }
            }
        }
    }

    /// The level at which a shared constraint is full, begun at a guess; infinite if it is not.
    fn level_of_shared(&mut self, constraint: u32, guess: f64) -> f64 {
        let constraint = &mut self.constraints[constraint as usize];
        let mut level = guess;
        for _ in 0..STEPS_MAX {
            // What is not above the level is what it is; the rest shares what that leaves.
            let (mut room, mut usage, mut least_above, mut most_below) = (constraint.capacity, 0.0, f64::INFINITY, 0.0);
            for user in &constraint.users {
                let elsewhere = self.full_at.elsewhere(user);
                if elsewhere > level {
                    usage += user.quota;
                    least_above = f64::min(least_above, elsewhere);
                } else {
                    room -= user.quota * elsewhere;
                    most_below = f64::max(most_below, elsewhere);
                }
            }
            if usage > 0.0 {
                level = f64::max(room / usage, 0.0);
                if most_below * (1.0 - ALIKE) <= level && level <= least_above * (1.0 + ALIKE) {
                    break;
                }
            } else if room >= -ALIKE * constraint.capacity {
                constraint.spare = room;
                return f64::INFINITY;
            } else {
                level = 0.0;
            }
        }
        level
    }

    /// The level at which a fat pipe is full; infinite if it is not.
    fn level_of_pipe(&self, constraint: u32) -> f64 {
        let constraint = &self.constraints[constraint as usize];
        let levels = constraint.users.iter().map(|user| (constraint.capacity / user.quota, user));
        let reached = levels.filter(|(level, user)| *level <= self.full_at.elsewhere(user));
        reached.map(|(level, _)| level).fold(f64::INFINITY, f64::min)
    }

    /// Lets the other constraints of a user wait whose level changes, unless they are full before. One that is full right
    /// there may have left it to this one.
    fn stir(&mut self, user: &User, constraint: u32, before: f64, after: f64) {
        let above = before.min(after) * (1.0 - 2.0 * ALIKE);
        // Its quota is its weight / penalty.
        let rise = (after - before) * user.quota / self.pool[user.element as usize].weight;
        for at in user.elements() {
            let element = &self.pool[at];
            let other = element.constraint;
            if other == constraint {
                continue;
            }
            let level = self.full_at.of(other);
            let state = &mut self.constraints[other as usize];
            if level == f64::INFINITY && state.policy == Policy::Shared {
                state.spare -= element.weight * rise;
                if state.spare > ALIKE_SUMS * state.capacity {
                    continue;
                }
            }
            if level >= above {
                self.line_up(other);
            }
        }
    }

    /// Notes who holds back a variable.
    fn hold(&mut self, index: u32, holder: u32) {
        self.scratch.moved.push(index);
        self.set_holder(index, holder);
    }

    /// Enters who holds back a variable, everywhere.
    pub(super) fn set_holder(&mut self, index: u32, holder: u32) {
        let variable = &mut self.variables[index as usize];
        variable.held_by = holder;
        for element in &self.pool[variable.elements()] {
            let users = &mut self.constraints[element.constraint as usize].users;
            users[element.place as usize].held_by = holder;
        }
    }

    /// Gives values to those who changed, who are held back by another than before, or whose holder has another level.
    fn reckon(&mut self) {
        self.solution = self.solution.wrapping_add(1);
        self.scratch.variables.clear();
        self.scratch.before.clear();
        for at in 0..self.dirty.len() {
            self.reckon_one(self.dirty[at].0);
        }
        for at in 0..self.scratch.moved.len() {
            self.reckon_one(self.scratch.moved[at]);
        }
        for at in 0..self.scratch.component.len() {
            let constraint = self.scratch.component[at];
            for place in 0..self.constraints[constraint as usize].users.len() {
                let user = self.constraints[constraint as usize].users[place];
                if user.held_by == constraint {
                    self.reckon_one(user.variable);
                }
            }
        }
    }

    fn reckon_one(&mut self, index: u32) {
        let variable = &mut self.variables[index as usize];
        if variable.solution == self.solution || variable.penalty <= 0.0 {
            return;
        }
        variable.solution = self.solution;
        self.scratch.variables.push(index);
        self.scratch.before.push(variable.value);
        variable.value = match variable.held_by {
            NOBODY if variable.length == 0 => 0.0,
            NOBODY => variable.bound.max(0.0),
            holder => self.full_at.of(holder) / variable.penalty,
        };
    }

    /// Takes over what a filling found.
    pub(super) fn adopt(&mut self) {
        for at in 0..self.scratch.component.len() {
            let constraint = self.scratch.component[at];
            let state = &mut self.constraints[constraint as usize];
            state.spare = 0.0;
            self.full_at.set(constraint, state.held_at.unwrap_or(f64::INFINITY));
        }
        for at in 0..self.scratch.variables.len() {
            let index = self.scratch.variables[at];
            self.set_holder(index, self.variables[index as usize].held_by);
        }
    }
}

/// The level at which each constraint is full; infinite if it is not.
#[derive(Clone, Debug)]
pub(super) struct FullAt {
    /// One more than a constraint's index, so that [`NOBODY`], one less than 0, has the first: infinite.
    levels: Vec<f64>,
}

impl Default for FullAt {
    fn default() -> FullAt {
        FullAt { levels: vec![f64::INFINITY] }
    }
}

impl FullAt {
    /// One constraint more, not full.
    pub(super) fn add(&mut self) {
        self.levels.push(f64::INFINITY);
    }

    fn of(&self, constraint: u32) -> f64 {
        self.levels[constraint.wrapping_add(1) as usize]
    }

    fn set(&mut self, constraint: u32, level: f64) {
        self.levels[constraint.wrapping_add(1) as usize] = level;
    }

    /// The level that a user has by its holder and its bound.
    fn elsewhere(&self, user: &User) -> f64 {
        user.ceiling.min(self.of(user.held_by))
    }
}
