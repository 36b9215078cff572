//! Dependencies between tasks, and the order of tasks that breaks ties between them.

use super::problem::Problem;

/// The tasks that read the results of each task.
pub struct Followers {
    /// Start of each task's followers, and one past the last.
    first: Vec<u32>,
    tasks: Vec<u32>,
}

impl Followers {
    /// Builds the table.
    pub fn new(problem: &Problem) -> Followers {
        let tasks = problem.task_count();
        let makers =
            |task: usize| problem.inputs(task).iter().filter_map(|datum| problem.data()[*datum as usize].producer);
        let mut first = vec![0u32; tasks + 1];
        (0..tasks).flat_map(makers).for_each(|maker| first[maker as usize + 1] += 1);
        for task in 0..tasks {
            first[task + 1] += first[task];
        }
        let mut next = first.clone();
        let mut followers = vec![0u32; first[tasks] as usize];
        for task in 0..tasks {
            for maker in makers(task) {
                followers[next[maker as usize] as usize] = task as u32;
                next[maker as usize] += 1;
            }
        }
        Followers { first, tasks: followers }
    }

    /// Returns the tasks that read a result of a task, ascending. A task that reads two of its data is listed twice.
    pub fn of(&self, task: usize) -> &[u32] {
        &self.tasks[self.first[task] as usize..self.first[task + 1] as usize]
    }
}

/// The tasks that read each datum.
pub struct Readers {
    /// Start of each datum's readers, and one past the last.
    first: Vec<u32>,
    tasks: Vec<u32>,
}

impl Readers {
    /// Builds the table.
    pub fn new(problem: &Problem) -> Readers {
        let mut first = Vec::with_capacity(problem.data().len() + 1);
        let mut count = 0;
        first.push(count);
        for datum in problem.data() {
            count += datum.readers;
            first.push(count);
        }
        let mut next = first.clone();
        let mut tasks = vec![0u32; count as usize];
        for task in 0..problem.task_count() {
            for datum in problem.inputs(task) {
                let next = &mut next[*datum as usize];
                tasks[*next as usize] = task as u32;
                *next += 1;
            }
        }
        Readers { first, tasks }
    }

    /// Returns the tasks that read a datum, ascending.
    pub fn of(&self, datum: u32) -> &[u32] {
        &self.tasks[self.first[datum as usize] as usize..self.first[datum as usize + 1] as usize]
    }
}

/// Tracks which tasks become ready when others are done.
pub struct ReadyTracker<'f> {
    followers: &'f Followers,
    /// Number of each task's inputs that have yet to be made.
    inputs: Vec<u32>,
}

impl<'f> ReadyTracker<'f> {
    /// Starts with no task done.
    pub fn new(problem: &Problem, followers: &'f Followers) -> ReadyTracker<'f> {
        let made = |datum: &&u32| problem.data()[**datum as usize].producer.is_some();
        let waits = |task| problem.inputs(task).iter().filter(made).count() as u32;
        ReadyTracker { followers, inputs: (0..problem.task_count()).map(waits).collect() }
    }

    /// Returns the tasks that depend on no other, ascending.
    pub fn ready(&self) -> Vec<u32> {
        (0..self.inputs.len() as u32).filter(|task| self.inputs[*task as usize] == 0).collect()
    }

    /// Records that a task is done and passes the tasks that waited only for it to `ready`, ascending.
    pub fn done(&mut self, task: usize, mut ready: impl FnMut(u32)) {
        for follower in self.followers.of(task) {
            let inputs = &mut self.inputs[*follower as usize];
            *inputs -= 1;
            if *inputs == 0 {
                ready(*follower);
            }
        }
    }
}

/// Returns all tasks in Kahn's order, first in first out: tasks that depend on no other, then those that become ready when these
/// are done, and so on. Among tasks that a heuristic finds equal, the first in this order is taken.
///
/// Source: Kahn, *Topological sorting of large networks*, CACM 5(11), 1962.
pub fn breadth_first(problem: &Problem, followers: &Followers) -> Vec<u32> {
    let mut waiting = ReadyTracker::new(problem, followers);
    let mut order = waiting.ready();
    order.reserve(problem.task_count() - order.len());
    let mut at = 0;
    while let Some(task) = order.get(at).copied() {
        waiting.done(task as usize, |ready| order.push(ready));
        at += 1;
    }
    order
}

/// Returns all tasks by descending rank, ties in [`breadth_first`] order.
pub fn by_rank(problem: &Problem, rank: &[f64]) -> Vec<u32> {
    let mut order = breadth_first(problem, &Followers::new(problem));
    // The sort is stable, so ties keep their order.
    order.sort_by(|a, b| rank[*b as usize].total_cmp(&rank[*a as usize]));
    order
}
