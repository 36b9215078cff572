//! Progressive filling: all values rise together, in proportion to 1/p, until a constraint is full or a bound is met.
//!
//! ```text
//! R = C,  U = sum (shared) or max (fat pipe) of w/p over enabled users,  level = R/U
//! repeat  m   = lowest level; the constraints of exactly that level are saturated
//!         B   = lowest b·p < m of the unfixed users of those
//!         fix those with b·p = B, at b; or, if there is no B, all of them at m/p
//!         a fixed variable leaves R -= w x, U -= w/p on shared constraints, and the next greatest w/p on fat pipes
//! until no constraint has capacity left
//! ```
//!
//! **Cost.** Each round asks [`Levels`] for the lowest level. One solution visits the users of a constraint at most
//! three times: when it is opened, when it is first saturated, and when the rest of its users are fixed. In between,
//! users that reach a bound come from a list that was sorted once, and so does the greatest quota of a fat pipe.
//! Together this is O(E log E) for E elements, whatever the number of rounds.
//!
//! Source: see [`super`]. The sorted lists are an addition; they give the same values by the same operations.

use super::levels::Levels;
use super::users::Demand;
use super::{Constraint, NO_BOTTLENECK, PRECISION, Policy, Reach, Solver, Variable, VariableIndex};

/// Buffers kept between solutions so that solving does not allocate.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// The constraints and variables being solved, and the variables' previous values.
    pub(super) component: Vec<u32>,
    pub(super) variables: Vec<u32>,
    pub(super) before: Vec<f64>,
    pub(super) changed: Vec<VariableIndex>,
    /// Constraints whose level may have changed.
    pub(super) releveled: Vec<u32>,
    /// Variables whose limiting constraint may have changed.
    pub(super) rebottlenecked: Vec<u32>,
    pub(super) levels: Levels,
    /// Constraints that may have to be queued because they were notified of a level.
    pub(super) notified: Vec<u32>,
    saturated: Vec<u32>,
    /// Runs of variables sorted by bound or by quota, for the constraints that needed one.
    sorted: Vec<(f64, u32)>,
}

impl Solver {
    /// Updates all values.
    pub fn solve(&mut self) {
        self.scratch.rebottlenecked.clear();
        self.scratch.releveled.clear();
        match self.reach {
            Reach::AsReference => {
                self.filled = true;
                self.open();
                self.fill();
                self.note_values();
            }
            Reach::Connected => {
                self.filled = !self.relevel();
                if self.filled {
                    self.open();
                    self.fill();
                    self.adopt_filling();
                }
                self.note_bottlenecks();
            }
        }
        self.dirty.clear();
        self.touched_followed = 0;
    }

    /// Collects the variables whose value has changed.
    fn note_values(&mut self) {
        let Scratch { variables, before, changed, .. } = &mut self.scratch;
        changed.clear();
        let differs = |index: &u32, before: f64| self.variables[*index as usize].value != before;
        let found = variables.iter().zip(before.iter()).filter(|(index, before)| differs(index, **before));
        changed.extend(found.map(|(index, _)| VariableIndex(*index)));
    }

    /// Raises the values of the opened variables.
    fn fill(&mut self) {
        while let Some(level) = self.saturate() {
            match self.lowest_ceiling(level) {
                Some(ceiling) => self.fix_at_bound(ceiling),
                None => self.fix_at_level(level),
            }
            for at in 0..self.scratch.saturated.len() {
                let constraint = self.scratch.saturated[at];
                if let Some(level) = self.level_now(constraint) {
                    self.scratch.levels.push(level, constraint);
                }
            }
        }
    }

    /// Collects everything that a change can affect, and the initial levels for the filling.
    fn open(&mut self) {
        self.solution = self.solution.wrapping_add(1);
        let Solver { constraints, variables, pool, scratch, solution, .. } = self;
        let Scratch { component, variables: gathered, before, levels, sorted, .. } = scratch;
        component.clear();
        gathered.clear();
        before.clear();
        levels.clear();
        sorted.clear();
        component.append(&mut self.touched_constraints);
        for constraint in component.iter() {
            let state = &mut constraints[*constraint as usize];
            (state.solution, state.touched) = (*solution, false);
        }
        let mut next = 0;
        while let Some(&index) = component.get(next) {
            next += 1;
            let mut usage = 0.0;
            let shared = constraints[index as usize].policy == Policy::Shared;
            for at in 0..constraints[index as usize].users.len() {
                let (user, Demand { quota, .. }) = constraints[index as usize].users.get(at);
                usage = if shared { usage + quota } else { f64::max(usage, quota) };
                let variable = &mut variables[user.variable as usize];
                if variable.solution == *solution {
                    continue;
                }
                gathered.push(user.variable);
                before.push(variable.value);
                variable.solution = *solution;
                variable.empty();
                if self.reach == Reach::AsReference {
                    continue;
                }
                for element in &pool[variable.elements()] {
                    let neighbour = &mut constraints[element.constraint as usize];
                    if neighbour.solution != *solution {
                        neighbour.solution = *solution;
                        component.push(element.constraint);
                    }
                }
            }
            let state = &mut constraints[index as usize];
            state.open(usage);
            if state.live {
                levels.append(state.remaining / usage, index);
            }
        }
        levels.order();
    }

    /// Removes the constraints with the lowest level from the heap.
    fn saturate(&mut self) -> Option<f64> {
        self.scratch.saturated.clear();
        let mut lowest = None;
        while let Some((key, constraint)) = self.scratch.levels.first() {
            if lowest.is_some_and(|lowest| key > lowest) {
                break;
            }
            match self.level_now(constraint) {
                None => self.scratch.levels.pop(),
                Some(level) if level > key => self.scratch.levels.raise(level),
                // Only rounding can make a level lower than its key; the key then decides the order.
                Some(level) if lowest.is_none_or(|lowest| lowest == level) => {
                    lowest = Some(level);
                    self.scratch.levels.pop();
                    self.scratch.saturated.push(constraint);
                }
                Some(_) => break,
            }
        }
        lowest
    }

    /// Returns the level of a constraint that still takes part in the filling.
    fn level_now(&mut self, constraint: u32) -> Option<f64> {
        let state = &self.constraints[constraint as usize];
        if state.live && state.usage_is_old {
            self.recompute_usage(constraint);
        }
        let state = &self.constraints[constraint as usize];
        state.live.then(|| state.remaining / state.usage)
    }

    /// Returns the lowest ceiling below `level` among the unfixed users of the saturated constraints.
    fn lowest_ceiling(&mut self, level: f64) -> Option<f64> {
        let mut lowest = f64::INFINITY;
        for at in 0..self.scratch.saturated.len() {
            let index = self.scratch.saturated[at];
            if self.constraints[index as usize].by_bound.is_none() {
                self.sort_by_bound(index, level);
            }
            let Some((start, end)) = &mut self.constraints[index as usize].by_bound else { continue };
            while start < end && self.variables[self.scratch.sorted[*start as usize].1 as usize].fixed {
                *start += 1;
            }
            if start < end {
                lowest = lowest.min(self.scratch.sorted[*start as usize].0);
            }
        }
        (lowest < level).then_some(lowest)
    }

    /// Sorts a constraint's bounded users if one of them reaches its bound below `level`.
    fn sort_by_bound(&mut self, index: u32, level: f64) {
        let Solver { constraints, variables, scratch, .. } = self;
        let constraint = &mut constraints[index as usize];
        let unfixed = constraint.users.with_terms().filter_map(|(user, _)| {
            let variable = &variables[user.variable as usize];
            (!variable.fixed).then(|| (variable.ceiling(), user.variable))
        });
        if unfixed.clone().any(|(ceiling, _)| ceiling < level) {
            let sorted = &mut scratch.sorted;
            let start = sorted.len();
            sorted.extend(unfixed.filter(|(ceiling, _)| *ceiling < f64::INFINITY));
            sorted[start..].sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            constraint.by_bound = Some((start as u32, sorted.len() as u32));
        }
    }

    /// Fixes the users of saturated constraints that have this ceiling.
    fn fix_at_bound(&mut self, ceiling: f64) {
        for at in 0..self.scratch.saturated.len() {
            let Some((start, end)) = self.constraints[self.scratch.saturated[at] as usize].by_bound else { continue };
            for place in start..end {
                let (own, variable) = self.scratch.sorted[place as usize];
                // All users with a lower ceiling are already fixed.
                if own - ceiling >= PRECISION {
                    break;
                }
                if !self.variables[variable as usize].fixed {
                    self.fix(variable, self.variables[variable as usize].bound, NO_BOTTLENECK);
                }
            }
        }
    }

    /// Fixes all users of the saturated constraints.
    fn fix_at_level(&mut self, level: f64) {
        for at in 0..self.scratch.saturated.len() {
            let holder = self.scratch.saturated[at];
            let index = holder as usize;
            self.constraints[index].limiting_level = Some(level);
            for place in 0..self.constraints[index].users.len() {
                let variable = self.constraints[index].users.get(place).0.variable;
                let state = &self.variables[variable as usize];
                if !state.fixed {
                    self.fix(variable, level / state.penalty, holder);
                }
            }
        }
    }

    /// Sets a variable's value and subtracts it from its constraints.
    fn fix(&mut self, index: u32, value: f64, held_by: u32) {
        let variable = &mut self.variables[index as usize];
        (variable.value, variable.bottleneck, variable.fixed) = (value, held_by, true);
        for element in &self.pool[variable.elements()] {
            let constraint = &mut self.constraints[element.constraint as usize];
            let quota = element.weight / variable.penalty;
            match constraint.policy {
                Policy::Shared => {
                    let room = constraint.remaining - element.weight * value;
                    constraint.remaining = if room < PRECISION * constraint.capacity { 0.0 } else { room };
                    let usage = constraint.usage - quota;
                    constraint.usage = if usage < PRECISION { 0.0 } else { usage };
                    constraint.live &=
                        constraint.usage > PRECISION && constraint.remaining > PRECISION * constraint.capacity;
                }
                Policy::FatPipe => constraint.usage_is_old |= quota >= constraint.usage,
            }
        }
    }

    /// Recomputes a fat pipe's usage: that of its greediest user that is not yet fixed.
    fn recompute_usage(&mut self, index: u32) {
        let Solver { constraints, variables, scratch, .. } = self;
        let constraint = &mut constraints[index as usize];
        let sorted = &mut scratch.sorted;
        let (start, end) = constraint.by_quota.get_or_insert_with(|| {
            let start = sorted.len();
            let unfixed = constraint.users.with_terms().filter(|(user, _)| !variables[user.variable as usize].fixed);
            sorted.extend(unfixed.map(|(user, terms)| (terms.quota, user.variable)));
            sorted[start..].sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            (start as u32, sorted.len() as u32)
        });
        while start < end && variables[sorted[*start as usize].1 as usize].fixed {
            *start += 1;
        }
        constraint.usage = if start < end { sorted[*start as usize].0 } else { 0.0 };
        constraint.usage_is_old = false;
        constraint.live = constraint.usage > PRECISION;
    }
}

impl Constraint {
    /// Initializes the constraint for a filling.
    fn open(&mut self, usage: f64) {
        (self.remaining, self.usage) = (self.capacity, usage);
        (self.by_bound, self.by_quota, self.limiting_level, self.usage_is_old) = (None, None, None, false);
        self.live = usage > 0.0;
    }
}

impl Variable {
    /// Initializes the variable for a filling. It stays at 0 if none of its constraints has capacity left.
    fn empty(&mut self) {
        (self.value, self.bottleneck, self.fixed) = (0.0, NO_BOTTLENECK, false);
    }
}
