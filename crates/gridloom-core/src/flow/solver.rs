//! Weighted max-min fair sharing by progressive filling.
//!
//! A *constraint* c has a capacity C_c; a *variable* i has a penalty p_i, an optional bound b_i and a value x_i; an
//! *element* (i, c) has a weight w_ic, the units of c that one unit of i takes. The solution maximises, in
//! lexicographic order, the sorted vector of p_i·x_i subject to
//!
//! ```text
//! shared:   sum over i of w_ic x_i <= C_c        fat pipe:  max over i of w_ic x_i <= C_c        x_i <= b_i
//! ```
//!
//! A variable of penalty 0 is *disabled*: it takes no part and has the value 0.
//!
//! **Invariants.** A constraint lists exactly the elements of enabled variables, each element knowing its place in that
//! list. After [`Solver::solve`] every value is that of the whole system, though only the variables connected to a
//! change, through constraints and enabled variables, were computed anew; the others' values do not depend on it.
//!
//! **Not done.** A bound on the number of variables of a constraint; capacities that depend on their number.
//!
//! Source: SimGrid 4.1's max-min solver, operation for operation, because equal levels are told apart by rounding.

/// Below this, a capacity (relative to itself), a usage or a difference of bounds is nothing.
const PRECISION: f64 = 1e-5;
/// Place of an element that is on no constraint's list.
const NOWHERE: u32 = u32::MAX;

/// How the users of a constraint share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Their sum is bounded.
    #[default]
    Shared,
    /// Each is bounded by itself.
    FatPipe,
}

/// A constraint, by order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConstraintIndex(pub u32);

/// A variable. The index of a removed variable is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VariableIndex(pub u32);

/// The system.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    constraints: Vec<Constraint>,
    variables: Vec<Variable>,
    free: Vec<VariableIndex>,
    /// Constraints touched since the last solution, each once.
    touched: Vec<u32>,
    solution: u32,
    round: u32,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct Constraint {
    capacity: f64,
    policy: Policy,
    /// Elements of enabled variables.
    users: Vec<User>,
    touched: bool,
    /// The solution and the round that reached it last.
    solution: u32,
    round: u32,
    /// Capacity left, and what one more unit of level takes of it.
    remaining: f64,
    usage: f64,
    level: f64,
    live: bool,
}

#[derive(Clone, Copy, Debug)]
struct User {
    variable: u32,
    /// Number of the element among the variable's.
    element: u32,
    weight: f64,
}

#[derive(Clone, Debug, Default)]
struct Variable {
    penalty: f64,
    /// None if not positive.
    bound: f64,
    value: f64,
    elements: Vec<Element>,
    solution: u32,
    round: u32,
    fixed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Element {
    constraint: u32,
    weight: f64,
    /// Place on the constraint's list while the variable is enabled.
    place: u32,
}

/// Kept between solutions so that solving does not allocate.
#[derive(Clone, Debug, Default)]
struct Scratch {
    /// Constraints and variables connected to a change.
    component: Vec<u32>,
    changed: Vec<VariableIndex>,
    live: Vec<u32>,
    candidates: Vec<u32>,
    /// Fat pipes that lost a user in this round.
    pipes: Vec<u32>,
}

impl Solver {
    /// An empty system.
    pub fn new() -> Solver {
        Solver::default()
    }

    /// Adds a constraint.
    pub fn add_constraint(&mut self, capacity: f64, policy: Policy) -> ConstraintIndex {
        self.constraints.push(Constraint { capacity, policy, ..Constraint::default() });
        ConstraintIndex(self.constraints.len() as u32 - 1)
    }

    /// Changes a capacity.
    pub fn set_capacity(&mut self, constraint: ConstraintIndex, capacity: f64) {
        self.constraints[constraint.0 as usize].capacity = capacity;
        self.touch(constraint.0);
    }

    /// Adds a variable without elements; `bound` is none if not positive.
    pub fn add_variable(&mut self, penalty: f64, bound: f64) -> VariableIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.variables.push(Variable::default());
            VariableIndex(self.variables.len() as u32 - 1)
        });
        let variable = &mut self.variables[index.0 as usize];
        assert!(variable.elements.is_empty(), "a removed variable has no elements");
        (variable.penalty, variable.bound, variable.value) = (penalty, bound, 0.0);
        index
    }

    /// Lets a variable take `weight` units of a constraint for each of its own. Meeting the same constraint again adds
    /// the weight if it is shared and takes the greater one if it is a fat pipe.
    pub fn attach(&mut self, variable: VariableIndex, constraint: ConstraintIndex, weight: f64) {
        assert!(weight > 0.0, "an element of weight {weight} uses nothing");
        let policy = self.constraints[constraint.0 as usize].policy;
        let elements = &mut self.variables[variable.0 as usize].elements;
        if let Some(at) = elements.iter().position(|element| element.constraint == constraint.0) {
            let element = &mut elements[at];
            element.weight = match policy {
                Policy::Shared => element.weight + weight,
                Policy::FatPipe => element.weight.max(weight),
            };
            let Element { place, weight, .. } = *element;
            if place != NOWHERE {
                self.constraints[constraint.0 as usize].users[place as usize].weight = weight;
                self.touch(constraint.0);
            }
            return;
        }
        elements.push(Element { constraint: constraint.0, weight, place: NOWHERE });
        if self.variables[variable.0 as usize].penalty > 0.0 {
            self.list(variable.0, self.variables[variable.0 as usize].elements.len() - 1);
        }
    }

    /// Changes a penalty: to 0 disables the variable, from 0 enables it.
    pub fn set_penalty(&mut self, variable: VariableIndex, penalty: f64) {
        let before = std::mem::replace(&mut self.variables[variable.0 as usize].penalty, penalty);
        for element in 0..self.variables[variable.0 as usize].elements.len() {
            match (before > 0.0, penalty > 0.0) {
                (false, true) => self.list(variable.0, element),
                (true, false) => self.unlist(variable.0, element),
                (true, true) => self.touch(self.variables[variable.0 as usize].elements[element].constraint),
                (false, false) => {}
            }
        }
        if penalty <= 0.0 {
            self.variables[variable.0 as usize].value = 0.0;
        }
    }

    /// Removes a variable; its index may be given again.
    pub fn remove_variable(&mut self, variable: VariableIndex) {
        self.set_penalty(variable, 0.0);
        self.variables[variable.0 as usize].elements.clear();
        self.free.push(variable);
    }

    /// A variable's value as of the last solution.
    pub fn value(&self, variable: VariableIndex) -> f64 {
        self.variables[variable.0 as usize].value
    }

    /// Whether something changed since the last solution.
    pub fn is_stale(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The enabled variables whose values the last solution computed anew.
    pub fn changed(&self) -> &[VariableIndex] {
        &self.scratch.changed
    }

    /// Brings all values up to date.
    pub fn solve(&mut self) {
        self.collect_component();
        self.open_constraints();
        while let Some(level) = self.lowest_level() {
            self.collect_candidates(level);
            match self.lowest_bound(level) {
                Some(bound) => self.fix_bounded(bound),
                None => self.fix_all(level),
            }
            self.refill_pipes();
            let constraints = &self.constraints;
            self.scratch.live.retain(|constraint| constraints[*constraint as usize].live);
        }
    }

    fn touch(&mut self, constraint: u32) {
        let state = &mut self.constraints[constraint as usize];
        if !state.touched {
            state.touched = true;
            self.touched.push(constraint);
        }
    }

    fn list(&mut self, variable: u32, element: usize) {
        let Element { constraint, weight, place } = self.variables[variable as usize].elements[element];
        assert!(place == NOWHERE, "an element is listed once");
        let users = &mut self.constraints[constraint as usize].users;
        self.variables[variable as usize].elements[element].place = users.len() as u32;
        users.push(User { variable, element: element as u32, weight });
        self.touch(constraint);
    }

    fn unlist(&mut self, variable: u32, element: usize) {
        let state = &mut self.variables[variable as usize].elements[element];
        let (constraint, place) = (state.constraint, std::mem::replace(&mut state.place, NOWHERE));
        let users = &mut self.constraints[constraint as usize].users;
        users.swap_remove(place as usize);
        if let Some(moved) = users.get(place as usize) {
            self.variables[moved.variable as usize].elements[moved.element as usize].place = place;
        }
        self.touch(constraint);
    }

    /// Everything that a change can reach.
    fn collect_component(&mut self) {
        self.solution = self.solution.wrapping_add(1);
        let Scratch { component, changed, .. } = &mut self.scratch;
        component.clear();
        changed.clear();
        component.append(&mut self.touched);
        for constraint in component.iter() {
            self.constraints[*constraint as usize].solution = self.solution;
        }
        let mut next = 0;
        while next < component.len() {
            let constraint = component[next] as usize;
            self.constraints[constraint].touched = false;
            for at in 0..self.constraints[constraint].users.len() {
                let user = self.constraints[constraint].users[at].variable;
                let variable = &mut self.variables[user as usize];
                if variable.solution == self.solution {
                    continue;
                }
                variable.solution = self.solution;
                (variable.value, variable.fixed) = (0.0, false);
                changed.push(VariableIndex(user));
                for element in &variable.elements {
                    let neighbour = &mut self.constraints[element.constraint as usize];
                    if neighbour.solution != self.solution {
                        neighbour.solution = self.solution;
                        component.push(element.constraint);
                    }
                }
            }
            next += 1;
        }
    }

    fn open_constraints(&mut self) {
        self.scratch.live.clear();
        for index in &self.scratch.component {
            let constraint = &mut self.constraints[*index as usize];
            constraint.remaining = constraint.capacity;
            constraint.usage = 0.0;
            for user in &constraint.users {
                let share = user.weight / self.variables[user.variable as usize].penalty;
                constraint.usage = match constraint.policy {
                    Policy::Shared => constraint.usage + share,
                    Policy::FatPipe => constraint.usage.max(share),
                };
            }
            constraint.live = constraint.capacity > 0.0 && constraint.usage > 0.0;
            if constraint.live {
                constraint.level = constraint.remaining / constraint.usage;
                self.scratch.live.push(*index);
            }
        }
    }

    fn lowest_level(&self) -> Option<f64> {
        self.scratch.live.iter().map(|at| self.constraints[*at as usize].level).min_by(f64::total_cmp)
    }

    /// The variables, not yet fixed, on the constraints that are saturated at `level`.
    fn collect_candidates(&mut self, level: f64) {
        self.round = self.round.wrapping_add(1);
        let Scratch { live, candidates, .. } = &mut self.scratch;
        candidates.clear();
        for index in live.iter() {
            let constraint = &self.constraints[*index as usize];
            if constraint.level != level {
                continue;
            }
            for user in &constraint.users {
                let variable = &mut self.variables[user.variable as usize];
                if !variable.fixed && variable.round != self.round {
                    variable.round = self.round;
                    candidates.push(user.variable);
                }
            }
        }
    }

    /// The lowest bound, as a level, that a candidate meets before `level`.
    fn lowest_bound(&self, level: f64) -> Option<f64> {
        let variables = self.scratch.candidates.iter().map(|at| &self.variables[*at as usize]);
        let bounds =
            variables.filter(|variable| variable.bound > 0.0).map(|variable| variable.bound * variable.penalty);
        bounds.filter(|bound| *bound < level).min_by(f64::total_cmp)
    }

    fn fix_bounded(&mut self, lowest: f64) {
        for at in 0..self.scratch.candidates.len() {
            let index = self.scratch.candidates[at];
            let Variable { bound, penalty, .. } = self.variables[index as usize];
            if bound > 0.0 && (bound * penalty - lowest).abs() < PRECISION {
                self.fix(index, bound);
            }
        }
    }

    fn fix_all(&mut self, level: f64) {
        for at in 0..self.scratch.candidates.len() {
            let index = self.scratch.candidates[at];
            self.fix(index, level / self.variables[index as usize].penalty);
        }
    }

    /// Gives a variable its value and takes that from its constraints.
    fn fix(&mut self, index: u32, value: f64) {
        let variable = &mut self.variables[index as usize];
        (variable.value, variable.fixed) = (value, true);
        for element in &variable.elements {
            let constraint = &mut self.constraints[element.constraint as usize];
            match constraint.policy {
                Policy::Shared => {
                    let room = constraint.remaining - element.weight * value;
                    constraint.remaining = if room < PRECISION * constraint.capacity { 0.0 } else { room };
                    let usage = constraint.usage - element.weight / variable.penalty;
                    constraint.usage = if usage < PRECISION { 0.0 } else { usage };
                    constraint.settle();
                }
                Policy::FatPipe if constraint.round != self.round => {
                    constraint.round = self.round;
                    self.scratch.pipes.push(element.constraint);
                }
                Policy::FatPipe => {}
            }
        }
    }

    /// A fat pipe's usage is that of its greediest user that is not yet fixed.
    fn refill_pipes(&mut self) {
        for index in self.scratch.pipes.drain(..) {
            let constraint = &mut self.constraints[index as usize];
            constraint.usage = 0.0;
            for user in &constraint.users {
                let variable = &self.variables[user.variable as usize];
                if !variable.fixed {
                    constraint.usage = constraint.usage.max(user.weight / variable.penalty);
                }
            }
            constraint.settle();
        }
    }
}

impl Constraint {
    /// The level after a change of what remains, or the end of its part in this solution.
    fn settle(&mut self) {
        if self.usage <= PRECISION || self.remaining <= PRECISION * self.capacity {
            self.live = false;
        } else {
            self.level = self.remaining / self.usage;
        }
    }
}

#[cfg(test)]
mod tests;
