//! `local`: local search from the plan of another heuristic. Tasks move to another server, one by one, together with their
//! neighbours, or all of a server; a task moves earlier or later in the order; two tasks exchange servers. A change is kept if
//! the plan then ends earlier. The search ends when no change helps or the budget is spent.
//!
//! Moves of single tasks are tried first, then those of several, then changes of the order, then exchanges, which are the most
//! numerous. After a change that helps, the search starts over. The budget is in steps (a step visits a task or one of its
//! arguments): the same problem gives the same plan.
//!
//! Source: the neighbourhoods are the usual ones; Aarts, Lenstra, *Local search in combinatorial optimization*, 1997.

use super::error::MapError;
use super::improve::{Trial, improve};
use super::order::Followers;
use super::pairs::{Evaluate, Line};
use super::plan::Plan;
use super::problem::Problem;
use super::spec::Parameter;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "local",
    about: "improves another heuristic's plan by small changes, as long as they help",
    source: "Aarts, Lenstra, Local search in combinatorial optimization, 1997",
    parameters: &[
        Parameter { name: "from", about: "the heuristic whose plan it starts from", default: "heft" },
        Parameter { name: "steps", about: "whole number, the step budget", default: "1000000" },
    ],
    make: |values| {
        let (from, steps) = (values.heuristic("from")?, values.whole("steps")?);
        Ok(Box::new(Local { from, steps }))
    },
};

pub struct Local {
    /// The heuristic that makes the initial plan.
    pub from: Box<dyn Heuristic>,
    /// Step budget.
    pub steps: u64,
}

/// Minimum gain, as a fraction of the makespan, that counts as earlier. Without it, rounding would keep the search going.
const EARLIER: f64 = 1e-9;

impl Heuristic for Local {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let start = self.from.map(problem)?;
        Ok(improve(problem, start, |trial, line| {
            let best_s = trial.makespan(&line, f64::INFINITY);
            let followers = Followers::new(problem);
            let mut search = Search { problem, trial, budget: self.steps, followers, line, best_s };
            while search.moves() || search.joint_moves() || search.turns() || search.exchanges() {}
            search.line
        }))
    }
}

struct Search<'a, 'p> {
    problem: &'p Problem,
    trial: &'a mut Trial<'p>,
    budget: u64,
    followers: Followers,
    line: Line,
    best_s: f64,
}

impl Search<'_, '_> {
    /// Tries every task on every server. Returns true if that helped and budget is left.
    fn moves(&mut self) -> bool {
        let mut helped = false;
        for task in 0..self.problem.task_count() {
            for server in 0..self.problem.client() as u32 {
                let before = self.line.servers[task];
                if server == before || self.problem.seconds(task, server as usize).is_none() {
                    continue;
                }
                self.line.servers[task] = server;
                if self.is_better() {
                    helped = true;
                } else {
                    self.line.servers[task] = before;
                }
                if self.is_spent() {
                    return false;
                }
            }
        }
        helped
    }

    /// Tries all tasks of a server, and every task with its neighbours, on every server. Returns true if that helped and budget is
    /// left.
    fn joint_moves(&mut self) -> bool {
        let mut helped = false;
        for server in 0..self.problem.client() as u32 {
            for to in 0..self.problem.client() as u32 {
                let here = |task: &u32| self.line.servers[*task as usize] == server;
                let moved = (0..self.problem.task_count() as u32).filter(here).collect();
                helped |= self.move_all(moved, to);
                if self.is_spent() {
                    return false;
                }
            }
        }
        for task in 0..self.problem.task_count() {
            let maker = |datum: &u32| self.problem.data()[*datum as usize].producer;
            let makers: Vec<u32> = self.problem.inputs(task).iter().filter_map(maker).collect();
            let near: Vec<u32> = makers.into_iter().chain(self.followers.of(task).iter().copied()).collect();
            for to in (0..self.problem.client() as u32).filter(|_| !near.is_empty()) {
                helped |= self.move_all(near.iter().copied().chain([task as u32]).collect(), to);
                if self.is_spent() {
                    return false;
                }
            }
        }
        helped
    }

    /// Moves those of the tasks to a server that it can run, if that helps; returns whether it did.
    fn move_all(&mut self, mut tasks: Vec<u32>, to: u32) -> bool {
        let is_able = |task: &u32| self.problem.seconds(*task as usize, to as usize).is_some();
        tasks.retain(|task| self.line.servers[*task as usize] != to && is_able(task));
        tasks.sort_unstable();
        tasks.dedup();
        let before: Vec<u32> = tasks.iter().map(|task| self.line.servers[*task as usize]).collect();
        tasks.iter().for_each(|task| self.line.servers[*task as usize] = to);
        let is_better = !tasks.is_empty() && self.is_better();
        if !is_better {
            tasks.iter().zip(before).for_each(|(task, server)| self.line.servers[*task as usize] = server);
        }
        is_better
    }

    /// Tries every task as early and as late as its predecessors and successors allow, and next to the other tasks of its server.
    fn turns(&mut self) -> bool {
        let mut helped = false;
        for task in 0..self.problem.task_count() as u32 {
            let at = self.line.order.iter().position(|other| *other == task).expect("all tasks are in order");
            let (first, last) = self.room(at);
            let server = self.line.servers[task as usize];
            let is_here = |other: &u32| self.line.servers[*other as usize] == server;
            let before = self.line.order[first..at].iter().rposition(is_here).map(|before| first + before);
            let after = self.line.order[at + 1..=last].iter().position(is_here).map(|after| at + 1 + after);
            for to in [before, after, Some(first), Some(last)].into_iter().flatten() {
                if to == at {
                    continue;
                }
                turn(&mut self.line.order, at, to);
                if self.is_better() {
                    helped = true;
                    break;
                }
                turn(&mut self.line.order, to, at);
                if self.is_spent() {
                    return false;
                }
            }
            if self.is_spent() {
                return false;
            }
        }
        helped
    }

    /// Tries to exchange the servers of every two tasks. Returns true if that helped and budget is left.
    fn exchanges(&mut self) -> bool {
        let mut helped = false;
        for task in 0..self.problem.task_count() {
            if self.is_spent() {
                return false;
            }
            for other in task + 1..self.problem.task_count() {
                let (mine, theirs) = (self.line.servers[task], self.line.servers[other]);
                let is_able = |task: usize, server: u32| self.problem.seconds(task, server as usize).is_some();
                if mine == theirs || !is_able(task, theirs) || !is_able(other, mine) {
                    continue;
                }
                self.line.servers.swap(task, other);
                if self.is_better() {
                    helped = true;
                } else {
                    self.line.servers.swap(task, other);
                }
                if self.is_spent() {
                    return false;
                }
            }
        }
        helped
    }

    fn is_better(&mut self) -> bool {
        let limit_s = self.best_s * (1.0 - EARLIER);
        let found_s = self.trial.makespan(&self.line, limit_s);
        let is_better = found_s < limit_s;
        if is_better {
            self.best_s = found_s;
        }
        is_better
    }

    fn is_spent(&self) -> bool {
        self.trial.steps() >= self.budget || self.problem.is_stopped()
    }

    /// Returns the first and last position in the order that a task could have.
    fn room(&self, at: usize) -> (usize, usize) {
        let order = &self.line.order;
        let task = order[at];
        let makes = |maker: u32, reader: u32| {
            let is_made = |datum: &u32| self.problem.data()[*datum as usize].producer == Some(maker);
            self.problem.inputs(reader as usize).iter().any(is_made)
        };
        let first = order[..at].iter().rposition(|other| makes(*other, task)).map_or(0, |before| before + 1);
        let next = order[at + 1..].iter().position(|other| makes(task, *other));
        (first, next.map_or(order.len() - 1, |next| at + next))
    }
}

/// Moves the task at one position to another; those in between shift by one.
fn turn(order: &mut [u32], from: usize, to: usize) {
    if to < from {
        order[to..=from].rotate_right(1);
    } else {
        order[from..=to].rotate_left(1);
    }
}
