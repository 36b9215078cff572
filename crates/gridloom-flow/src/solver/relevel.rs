//! Propagates a change from constraint to constraint. A change usually affects only a small part of what it can reach.
//!
//! A solution is max-min fair exactly if each variable is at its bound or *limited by* a constraint: one that is full,
//! and on which no other variable has a higher level p·x (Bertsekas and Gallager, *Data Networks*, 6.5.2). So a
//! solution is described by the level at which each constraint is full, and by the constraint that limits each
//! variable. Let A_i be the level to which each user of a constraint is limited elsewhere or by its bound. The
//! constraint is then full at
//!
//! ```text
//! shared    the level l with  sum over users of w/p min(l, A_i) = C
//! fat pipe  the lowest l = C p_i / w_i with  l <= A_i            (its other users are limited to that level too)
//! ```
//!
//! and limits the users with an A_i above that. Changed constraints wait in a queue ordered by level:
//!
//! ```text
//! repeat  take the waiting constraint with the lowest level; recompute its level
//!         limit the users that have more, and release those that reach their bound below it
//!         if a user's level changed, queue its other constraints, unless they are full below that level
//! until none waits; then set the values of users of constraints with a new level
//! ```
//!
//! A constraint that is not full has spare capacity. Rises are subtracted from it; the constraint is queued when it is used up.
//!
//! **Invariant:** the level of a constraint that is not queued follows from its users' other constraints. So the
//! result is a solution, whatever the order. Lowest first makes it fast: the level of a constraint depends only on
//! constraints that fill up at lower levels. This is also why it terminates: the lowest wrong level becomes correct
//! once its constraint, and the wrong constraints below it, have been processed.
//!
//! **Not done.** If many variables change, or the queue takes long to empty, filling everything costs less; the caller does that.
//!
//! Source: the characterisation as cited; the procedure is new. Newton's method finds the level of a shared
//! constraint. The function is concave and piecewise linear, and the method starts at the previous level.

use super::users::{Demand, User};
use super::{Constraint, NO_BOTTLENECK, Policy, Solver, VariableIndex};

/// Relative difference below which levels count as equal, and a constraint as within its capacity.
const EQUAL_TOLERANCE: f64 = 1e-12;
/// Relative tolerance where many differences were added up.
const EQUAL_TOLERANCE_SUMS: f64 = 1e-9;
/// Maximum number of users visited per element of the system before propagation is given up.
const VISITS_MAX: usize = 16;
/// From this number of users on, they change to the new level together.
const BATCH_USERS_MIN: usize = 32;
/// Maximum number of Newton steps. One step per user would do, but rounding could make it oscillate.
const STEPS_MAX: usize = 64;

impl Solver {
    /// Updates all levels. Returns false if it is better to refill everything that the change reaches.
    pub(super) fn relevel(&mut self) -> bool {
        let changed: usize = self.dirty.iter().map(|index| self.variables[index.0 as usize].length as usize).sum();
        if 2 * changed > self.user_count {
            return false;
        }
        self.scratch.levels.clear();
        for at in 0..self.touched_constraints.len() {
            self.enqueue(self.touched_constraints[at]);
        }
        let mut looks = VISITS_MAX * self.user_count + self.touched_constraints.len();
        while let Some((_, constraint)) = self.scratch.levels.first() {
            self.scratch.levels.pop();
            self.shares[constraint as usize].dequeue();
            let users = self.constraints[constraint as usize].users.len();
            if looks < users {
                self.clear_queue();
                return false;
            }
            looks -= users;
            self.recompute_level(constraint);
        }
        for constraint in self.touched_constraints.drain(..) {
            self.constraints[constraint as usize].touched = false;
        }
        true
    }

    /// Queues a constraint to have its level recomputed.
    fn enqueue(&mut self, constraint: u32) {
        if self.shares[constraint as usize].enqueue() {
            self.scratch.levels.push(self.levels.of(constraint), constraint);
        }
    }

    /// Removes all constraints from the queue.
    fn clear_queue(&mut self) {
        while let Some((_, constraint)) = self.scratch.levels.first() {
            self.scratch.levels.pop();
            self.shares[constraint as usize].dequeue();
        }
    }

    /// Finds the level at which a constraint is full, and the users that it limits.
    fn recompute_level(&mut self, constraint: u32) {
        let before = self.levels.of(constraint);
        let of_same = self.level_of_same(constraint);
        let found = of_same.unwrap_or_else(|| {
            self.levels.set(constraint, f64::INFINITY);
            match self.constraints[constraint as usize].policy {
                Policy::Shared => self.level_of_shared(constraint, before),
                Policy::FatPipe => self.level_of_pipe(constraint),
            }
        });
        let same = found == before || (found - before).abs() <= EQUAL_TOLERANCE * found.min(before);
        let level = if same { before } else { found };
        self.levels.set(constraint, level);
        if !same {
            self.scratch.releveled.push(constraint);
        }
        if of_same.is_none() {
            self.update_limited_users(constraint, before, level);
        } else if !same {
            self.notify_bundle(constraint, before, level);
        }
        if level == f64::INFINITY {
            let capacity = self.constraints[constraint as usize].capacity;
            self.shares[constraint as usize].set_alarm(capacity * (1.0 - EQUAL_TOLERANCE_SUMS));
        }
    }

    /// Returns the level at which a shared constraint is full if it limits the same users as before; `None` if not.
    fn level_of_same(&mut self, constraint: u32) -> Option<f64> {
        let Solver { constraints, shares, held, levels: full_at, .. } = self;
        let Constraint { capacity, users, policy, .. } = &constraints[constraint as usize];
        let (share, held) = (&mut shares[constraint as usize], &mut held[constraint as usize]);
        if *policy == Policy::FatPipe {
            return None;
        }
        loop {
            if !share.is_known {
                held.recompute(share, constraint, users, full_at);
            }
            let room = capacity - share.used_elsewhere;
            if held.usage <= 0.0 {
                return (room >= -EQUAL_TOLERANCE * capacity).then_some(f64::INFINITY);
            }
            let level = room / held.usage;
            if level > 0.0 && share.highest <= level * (1.0 + EQUAL_TOLERANCE) && level <= held.ceiling {
                return Some(level);
            }
            if held.is_fresh(share) {
                return None;
            }
            share.invalidate();
        }
    }

    /// Notifies the other constraints of all users that a constraint limits.
    fn notify_bundle(&mut self, constraint: u32, before: f64, after: f64) {
        if self.held[constraint as usize].bundle_changes_left == 0 {
            self.bundle(constraint);
        }
        let (above, rise) = (lowest_of(before, after), after - before);
        let mut roused = std::mem::take(&mut self.scratch.notified);
        let shares = &mut self.shares[..];
        for (other, quota) in self.bundles[constraint as usize].iter() {
            if shares[other as usize].notify(after, quota * rise) {
                roused.push(other);
            }
        }
        for other in roused.drain(..) {
            self.enqueue_if_affected(other, above);
        }
        self.scratch.notified = roused;
    }

    /// Collects the other constraints of the users that a constraint limits.
    fn bundle(&mut self, constraint: u32) {
        let Solver { constraints, held, bundles, pool, .. } = self;
        let bundle = &mut bundles[constraint as usize];
        bundle.clear();
        for (user, terms) in constraints[constraint as usize].users.with_terms() {
            if terms.holder == constraint {
                // The user's quota is its weight / penalty.
                let share = terms.quota / pool[user.element as usize].weight;
                let others = pool[user.elements()].iter().filter(|element| element.constraint != constraint);
                for element in others {
                    let place = &mut held[element.constraint as usize].place_in_bundle;
                    bundle.push(element.constraint, element.weight * share, place);
                }
            }
        }
        held[constraint as usize].bundle_changes_left = bundle.good_for();
    }

    /// Limits the users that have more elsewhere, releases those that reach their bound below, and notifies their
    /// other constraints.
    fn update_limited_users(&mut self, constraint: u32, before: f64, level: f64) {
        // A few users change to their new level one by one. Among many, a newly limited user is reported as if it had
        // been limited before, so that all change to the new level together.
        let many = self.constraints[constraint as usize].users.len() >= BATCH_USERS_MIN;
        let meeting = if many && before < f64::INFINITY { before } else { level };
        for at in 0..self.constraints[constraint as usize].users.len() {
            let (user, terms) = self.constraints[constraint as usize].users.get(at);
            let Demand { quota, ceiling, holder } = terms;
            if holder == constraint {
                if ceiling < level {
                    self.set_bottleneck(user.variable, NO_BOTTLENECK);
                    self.notify_others(&user, quota, constraint, before, ceiling);
                } else if before != meeting {
                    self.notify_others(&user, quota, constraint, before, meeting);
                }
            } else {
                let elsewhere = self.levels.elsewhere(&terms);
                if elsewhere > level * (1.0 + EQUAL_TOLERANCE) {
                    self.set_bottleneck(user.variable, constraint);
                    self.notify_others(&user, quota, constraint, elsewhere, meeting);
                }
            }
        }
        if meeting != level {
            self.notify_bundle(constraint, meeting, level);
        }
    }

    /// Returns the level at which a shared constraint is full, starting from a guess; infinite if it is not full.
    fn level_of_shared(&self, constraint: u32, guess: f64) -> f64 {
        let constraint = &self.constraints[constraint as usize];
        let mut level = guess;
        for _ in 0..STEPS_MAX {
            // Users not above the level keep their own level; the others share the remaining capacity.
            let (mut room, mut usage, mut least_above, mut most_below) = (constraint.capacity, 0.0, f64::INFINITY, 0.0);
            for terms in constraint.users.terms() {
                let elsewhere = self.levels.elsewhere(terms);
                if elsewhere > level {
                    usage += terms.quota;
                    least_above = f64::min(least_above, elsewhere);
                } else {
                    room -= terms.quota * elsewhere;
                    most_below = f64::max(most_below, elsewhere);
                }
            }
            if usage > 0.0 {
                level = f64::max(room / usage, 0.0);
                if most_below * (1.0 - EQUAL_TOLERANCE) <= level && level <= least_above * (1.0 + EQUAL_TOLERANCE) {
                    break;
                }
            } else if room >= -EQUAL_TOLERANCE * constraint.capacity {
                return f64::INFINITY;
            } else {
                level = 0.0;
            }
        }
        level
    }

    /// Returns the level at which a fat pipe is full; infinite if it is not full.
    fn level_of_pipe(&self, constraint: u32) -> f64 {
        let constraint = &self.constraints[constraint as usize];
        let reached = constraint.users.terms().filter_map(|terms| {
            let level = constraint.capacity / terms.quota;
            (level <= self.levels.elsewhere(terms)).then_some(level)
        });
        reached.fold(f64::INFINITY, f64::min)
    }

    /// Notifies a user's other constraints that its level changes.
    fn notify_others(&mut self, user: &User, quota: f64, constraint: u32, before: f64, after: f64) {
        // The user's quota is its weight / penalty.
        let rise = (after - before) * quota / self.pool[user.element as usize].weight;
        for at in user.elements() {
            let element = self.pool[at];
            if element.constraint != constraint {
                self.notify(element.constraint, lowest_of(before, after), after, element.weight * rise);
            }
        }
    }

    /// Notifies a constraint that a user's level has changed to `after` and that the user takes `more` of it.
    fn notify(&mut self, other: u32, above: f64, after: f64, more: f64) {
        let share = &mut self.shares[other as usize];
        if !share.is_known || share.notify(after, more) {
            self.enqueue_if_affected(other, above);
        }
    }

    /// Queues a constraint that was notified of levels, unless it is full at a lower level. A constraint that is full
    /// at exactly `above` may have left the user to the constraint that notified it.
    #[inline]
    fn enqueue_if_affected(&mut self, other: u32, above: f64) {
        let (share, level) = (&mut self.shares[other as usize], self.levels.of(other));
        if share.must_enqueue() && level >= above {
            share.enqueue();
            self.scratch.levels.push(level, other);
        }
    }

    /// Records which constraint limits a variable.
    fn set_bottleneck(&mut self, index: u32, holder: u32) {
        self.scratch.rebottlenecked.push(index);
        self.set_holder(index, holder);
    }

    /// Sets a variable's limiting constraint in all its constraints.
    pub(super) fn set_holder(&mut self, index: u32, holder: u32) {
        let variable = &mut self.variables[index as usize];
        variable.bottleneck = holder;
        let elements = &self.pool[variable.elements()];
        for element in elements {
            let this = element.constraint;
            let users = &mut self.constraints[this as usize].users;
            let before = users.set_holder(element.place as usize, holder);
            let comes_or_goes = before == this || holder == this;
            if comes_or_goes && self.held[this as usize].counts_bundle_change() {
                let (bundle, share) = (&mut self.bundles[this as usize], 1.0 / variable.penalty);
                match holder == this {
                    true => bundle.add_user(this, elements, share),
                    false => bundle.remove_user(this, elements, share),
                }
            }
            if comes_or_goes || before == NO_BOTTLENECK || holder == NO_BOTTLENECK {
                self.shares[this as usize].invalidate();
            }
        }
    }

    /// Collects the variables that changed or have a new limiting constraint. Sets the value of those without one,
    /// unless filling did.
    pub(super) fn note_bottlenecks(&mut self) {
        self.solution = self.solution.wrapping_add(1);
        self.scratch.changed.clear();
        for at in 0..self.dirty.len() {
            self.note_holder(self.dirty[at].0);
        }
        for at in 0..self.scratch.rebottlenecked.len() {
            self.note_holder(self.scratch.rebottlenecked[at]);
        }
    }

    fn note_holder(&mut self, index: u32) {
        let variable = &mut self.variables[index as usize];
        if variable.solution == self.solution || variable.penalty <= 0.0 {
            return;
        }
        variable.solution = self.solution;
        self.scratch.changed.push(VariableIndex(index));
        if variable.bottleneck == NO_BOTTLENECK && !self.filled {
            variable.value = if variable.length == 0 { 0.0 } else { variable.bound.max(0.0) };
        }
    }

    /// Takes over the result of a filling.
    pub(super) fn adopt_filling(&mut self) {
        for at in 0..self.scratch.component.len() {
            let constraint = self.scratch.component[at];
            let state = &self.constraints[constraint as usize];
            self.shares[constraint as usize].invalidate();
            self.held[constraint as usize].bundle_changes_left = 0;
            self.levels.set(constraint, state.limiting_level.unwrap_or(f64::INFINITY));
            self.scratch.releveled.push(constraint);
        }
        for at in 0..self.scratch.variables.len() {
            let index = self.scratch.variables[at];
            let variable = &self.variables[index as usize];
            let first = &self.pool[variable.start as usize];
            if self.constraints[first.constraint as usize].users.holder(first.place as usize) != variable.bottleneck {
                self.set_bottleneck(index, variable.bottleneck);
            }
        }
    }
}

/// Returns the lowest level that depends on a change.
fn lowest_of(before: f64, after: f64) -> f64 {
    before.min(after) * (1.0 - 2.0 * EQUAL_TOLERANCE)
}
