//! Weighted max-min fair sharing by progressive filling.
//!
//! A *constraint* c has a capacity C_c. A *variable* i has a penalty p_i, an optional bound b_i and a value x_i. An
//! *element* (i, c) has a weight w_ic: the units of c that one unit of i takes. The solution maximises, in lexicographic
//! order, the sorted vector of p_i·x_i subject to
//!
//! ```text
//! shared:   sum over i of w_ic x_i <= C_c        fat pipe:  max over i of w_ic x_i <= C_c        x_i <= b_i
//! ```
//!
//! A variable of penalty 0 is *disabled*: it takes no part and has the value 0.
//!
//! ```text
//! pool      elements, one block per variable            reach     which constraints a change can affect
//! filling   the values of the affected variables       levels    the constraint that fills up next
//! relevel   the few values that a change does affect   share     the sums that determine a level
//! users     the users of a constraint                  bundle    the other constraints of the variables it limits
//! ```
//!
//! **Invariants.** A constraint lists the elements of its enabled variables as users, and those of its disabled
//! variables as waiting. Each element knows its position in the list that contains it. A user's quota is its weight /
//! penalty. After [`Solver::solve`] every value is that of the whole system. Only variables connected to a change
//! through constraints and enabled variables are recomputed; the values of the others do not depend on it.
//!
//! **Not supported.** A limit on the number of variables of a constraint; capacities that depend on that number.
//!
//! Source: SimGrid 4.1's max-min solver, with the same operations in the same order, because rounding decides between
//! equal levels.

mod affected;
mod filling;
mod level_sums;
mod levels;
mod pool;
mod reach;
mod relevel;
mod users;

use affected::AffectedConstraints;
use filling::Scratch;
use level_sums::{LimitedUsers, Share};
use levels::FullLevels;
use pool::ElementPool;
pub use reach::Reach;
use users::{Demand, User, Users};

/// A capacity (relative to itself), a usage or a difference of bounds below this counts as zero.
const PRECISION: f64 = 1e-5;

/// How the users of a constraint share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The sum of their rates is bounded by the capacity.
    #[default]
    Shared,
    /// Each user's rate alone is bounded by the capacity.
    FatPipe,
}

/// A constraint's index, in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConstraintIndex(pub u32);

/// A variable's index. The index of a removed variable is reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VariableIndex(pub u32);

/// A system of constraints and variables.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    constraints: Vec<Constraint>,
    variables: Vec<Variable>,
    pool: ElementPool,
    free: Vec<VariableIndex>,
    reach: Reach,
    /// Constraints touched since the last solution, each once. With [`Reach::AsReference`] it includes those that they reach.
    touched_constraints: Vec<u32>,
    /// Number of entries of `touched` whose reach has been followed.
    touched_followed: usize,
    /// Variables added since the last solution, or whose penalty or bound changed.
    dirty: Vec<VariableIndex>,
    /// Number of users on all constraints together.
    user_count: usize,
    /// The level of each constraint; used with [`Reach::Connected`] only.
    levels: FullLevels,
    shares: Vec<Share>,
    held: Vec<LimitedUsers>,
    bundles: Vec<AffectedConstraints>,
    /// True if the last solution was found by filling.
    filled: bool,
    solution: u32,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct Constraint {
    /// Capacity left, and how much of it one more unit of level uses.
    remaining: f64,
    usage: f64,
    capacity: f64,
    policy: Policy,
    touched: bool,
    /// True if it takes part in the filling.
    live: bool,
    /// For a fat pipe: its usage may be that of a fixed variable.
    usage_is_old: bool,
    /// The last solution that reached this constraint.
    solution: u32,
    /// The range of its sorted variables in the scratch space of the filling: sorted by bound if the constraint is
    /// shared or saturated, by quota to find the usage of a fat pipe.
    by_bound: Option<(u32, u32)>,
    by_quota: Option<(u32, u32)>,
    /// The level at which it limited users in the last filling that included it.
    limiting_level: Option<f64>,
    users: Users,
    /// Elements of disabled variables, each with its variable.
    disabled_elements: Vec<(u32, VariableIndex)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Variable {
    penalty: f64,
    /// No bound if not positive.
    bound: f64,
    /// With [`Reach::Connected`], valid only for variables that no constraint limits.
    value: f64,
    /// Start of its block of elements.
    start: u32,
    length: u32,
    solution: u32,
    /// The full constraint that determined its value, or [`NO_BOTTLENECK`] if its bound did.
    bottleneck: u32,
    fixed: bool,
}

/// Marks a variable that no constraint limits.
const NO_BOTTLENECK: u32 = u32::MAX;

impl Variable {
    /// Returns the level at which it reaches its bound.
    fn ceiling(&self) -> f64 {
        if self.bound > 0.0 { self.bound * self.penalty } else { f64::INFINITY }
    }

    fn elements(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

impl Solver {
    pub fn new() -> Solver {
        Solver::default()
    }

    /// Sets how far changes propagate. Must be called before the first change.
    pub fn set_reach(&mut self, reach: Reach) {
        self.reach = reach;
    }

    pub fn add_constraint(&mut self, capacity: f64, policy: Policy) -> ConstraintIndex {
        self.constraints.push(Constraint { capacity, policy, ..Constraint::default() });
        self.shares.push(Share::default());
        self.held.push(LimitedUsers::default());
        self.bundles.push(AffectedConstraints::default());
        self.levels.add();
        ConstraintIndex(self.constraints.len() as u32 - 1)
    }

    pub fn set_capacity(&mut self, constraint: ConstraintIndex, capacity: f64) {
        self.constraints[constraint.0 as usize].capacity = capacity;
        self.touch(constraint.0);
    }

    /// Adds a variable that uses the given weights of these constraints per unit of its value. A `bound` that is not
    /// positive means no bound. If a constraint is named twice, the weights are added if it is shared, and the greater
    /// one is used if it is a fat pipe.
    pub fn add_variable(
        &mut self,
        penalty: f64,
        bound: f64,
        elements: impl IntoIterator<Item = (ConstraintIndex, f64)>,
    ) -> VariableIndex {
        let constraints = &self.constraints;
        self.pool.open();
        for (constraint, weight) in elements {
            assert!(weight > 0.0, "an element must have a positive weight, not {weight}");
            match constraints[constraint.0 as usize].policy {
                Policy::Shared => self.pool.push(constraint.0, weight, |before| before + weight),
                Policy::FatPipe => self.pool.push(constraint.0, weight, |before| before.max(weight)),
            }
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.variables.push(Variable::default());
            VariableIndex(self.variables.len() as u32 - 1)
        });
        let (start, length) = self.pool.close();
        let variable = Variable { penalty, bound, start, length, bottleneck: NO_BOTTLENECK, ..Variable::default() };
        self.variables[index.0 as usize] = variable;
        if penalty > 0.0 {
            self.dirty.push(index);
        }
        for element in self.variables[index.0 as usize].elements() {
            match penalty > 0.0 {
                true => self.add_user(index, element),
                false => self.wait(index, element),
            }
            self.touch(self.pool[element].constraint);
        }
        index
    }

    /// Changes a penalty. Setting it to 0 disables the variable; setting it from 0 to a positive value enables it.
    pub fn set_penalty(&mut self, variable: VariableIndex, penalty: f64) {
        let state = &mut self.variables[variable.0 as usize];
        if state.penalty == penalty {
            return;
        }
        let (before, elements) = (state.penalty, state.elements());
        if penalty <= 0.0 {
            self.touch_variable(variable);
            let state = &mut self.variables[variable.0 as usize];
            (state.value, state.bottleneck) = (0.0, NO_BOTTLENECK);
        }
        self.variables[variable.0 as usize].penalty = penalty;
        for element in elements {
            match (before > 0.0, penalty > 0.0) {
                (false, true) => {
                    self.unwait(element);
                    self.add_user(variable, element);
                }
                (true, false) => {
                    self.unlist(element);
                    self.wait(variable, element);
                }
                (true, true) => self.update_user(variable, element),
                (false, false) => {}
            }
        }
        if penalty > 0.0 {
            self.dirty.push(variable);
            self.touch_variable(variable);
        }
    }

    /// Changes a bound; no bound if not positive.
    pub fn set_bound(&mut self, variable: VariableIndex, bound: f64) {
        self.variables[variable.0 as usize].bound = bound;
        self.dirty.push(variable);
        let enabled = self.variables[variable.0 as usize].penalty > 0.0;
        for element in self.variables[variable.0 as usize].elements() {
            if enabled {
                self.update_user(variable, element);
            }
            self.touch(self.pool[element].constraint);
        }
    }

    /// Removes a variable. Its index may be reused.
    pub fn remove_variable(&mut self, variable: VariableIndex) {
        let state = self.variables[variable.0 as usize];
        if state.penalty > 0.0 {
            self.touch_variable(variable);
        }
        for element in state.elements() {
            match state.penalty > 0.0 {
                true => self.unlist(element),
                false => self.unwait(element),
            }
        }
        self.pool.free_block(state.start, state.length);
        self.variables[variable.0 as usize] = Variable::default();
        self.free.push(variable);
    }

    /// Returns a variable's value in the last solution.
    pub fn value(&self, variable: VariableIndex) -> f64 {
        let state = &self.variables[variable.0 as usize];
        match self.bottleneck(variable) {
            Some(holder) => self.level(holder) / state.penalty,
            None => state.value,
        }
    }

    /// Returns the constraint that limits a variable in the last solution, to `level / penalty`, or `None` if the
    /// variable has a value of its own. With [`Reach::AsReference`] it is `None` for all variables.
    pub fn bottleneck(&self, variable: VariableIndex) -> Option<ConstraintIndex> {
        let holder = self.variables[variable.0 as usize].bottleneck;
        (holder != NO_BOTTLENECK && self.reach == Reach::Connected).then_some(ConstraintIndex(holder))
    }

    /// Returns the level p·x of the variables that a constraint limits in the last solution.
    pub fn level(&self, constraint: ConstraintIndex) -> f64 {
        self.levels.of(constraint.0)
    }

    /// Returns a variable's penalty; 0 if it is disabled.
    pub fn penalty(&self, variable: VariableIndex) -> f64 {
        self.variables[variable.0 as usize].penalty
    }

    /// Appends the variables that have an element on a constraint, disabled ones last.
    pub fn variables_on(&self, constraint: ConstraintIndex, variables: &mut Vec<VariableIndex>) {
        let Constraint { users, disabled_elements: waiting, .. } = &self.constraints[constraint.0 as usize];
        variables.extend(users.with_terms().map(|(user, _)| VariableIndex(user.variable)));
        variables.extend(waiting.iter().map(|(_, variable)| *variable));
    }

    /// Reports whether something has changed since the last solution.
    pub fn is_stale(&self) -> bool {
        !self.touched_constraints.is_empty()
    }

    /// Returns the enabled variables that changed in the last solution: those with a new penalty, bound or limiting
    /// constraint, or whose own value differs. Other variables' values change only with the levels of the constraints
    /// that limit them.
    pub fn changed(&self) -> &[VariableIndex] {
        &self.scratch.changed
    }

    /// Returns the constraints whose level the last solution may have changed. It may contain duplicates.
    pub fn releveled(&self) -> &[u32] {
        &self.scratch.releveled
    }

    /// Adds an element of an enabled variable to the users of its constraint.
    fn add_user(&mut self, variable: VariableIndex, element: usize) {
        let (terms, state) = (&self.variables[variable.0 as usize], &mut self.pool[element]);
        let users = &mut self.constraints[state.constraint as usize].users;
        state.place = users.len() as u32;
        self.shares[state.constraint as usize].invalidate();
        self.user_count += 1;
        users.push(User::new(terms, variable, element), Demand::new(terms, state.weight));
    }

    fn unlist(&mut self, element: usize) {
        let (constraint, place) = (self.pool[element].constraint, self.pool[element].place);
        let users = &mut self.constraints[constraint as usize].users;
        self.shares[constraint as usize].invalidate();
        if users.holder(place as usize) == constraint && self.held[constraint as usize].counts_bundle_change() {
            let (user, terms) = users.get(place as usize);
            // The user's quota is its weight / penalty.
            let share = terms.quota / self.pool[element].weight;
            self.bundles[constraint as usize].remove_user(constraint, &self.pool[user.elements()], share);
        }
        self.user_count -= 1;
        if let Some(moved) = users.swap_remove(place as usize) {
            self.pool[moved.element as usize].place = place;
        }
    }

    /// Updates an enabled variable's penalty and bound in its constraint's users.
    fn update_user(&mut self, variable: VariableIndex, element: usize) {
        let (terms, state) = (&self.variables[variable.0 as usize], &self.pool[element]);
        let users = &mut self.constraints[state.constraint as usize].users;
        self.shares[state.constraint as usize].invalidate();
        self.held[state.constraint as usize].bundle_changes_left = 0;
        users.set_terms(state.place as usize, Demand::new(terms, state.weight));
    }

    fn wait(&mut self, variable: VariableIndex, element: usize) {
        let waiting = &mut self.constraints[self.pool[element].constraint as usize].disabled_elements;
        self.pool[element].place = waiting.len() as u32;
        waiting.push((element as u32, variable));
    }

    fn unwait(&mut self, element: usize) {
        let (constraint, place) = (self.pool[element].constraint, self.pool[element].place);
        let waiting = &mut self.constraints[constraint as usize].disabled_elements;
        waiting.swap_remove(place as usize);
        if let Some(moved) = waiting.get(place as usize) {
            self.pool[moved.0 as usize].place = place;
        }
    }
}

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
