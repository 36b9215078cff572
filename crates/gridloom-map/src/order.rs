//! Which tasks follow which, and the order of tasks that settles ties between them.

use super::problem::Problem;

/// By task: the tasks that read what it makes.
pub struct Followers {
    /// By task, and one past the last: where its followers begin.
    first: Vec<u32>,
    tasks: Vec<u32>,
}

impl Followers {
    /// Lays them out.
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

    /// The tasks that read what a task makes, ascending; one that reads two of its data is there twice.
    pub fn of(&self, task: usize) -> &[u32] {
        &self.tasks[self.first[task] as usize..self.first[task + 1] as usize]
    }
}

/// By datum: the tasks that read it.
pub struct Readers {
    /// By datum, and one past the last: where its readers begin.
    first: Vec<u32>,
    tasks: Vec<u32>,
}

impl Readers {
    /// Lays them out.
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

    /// The tasks that read a datum, ascending.
    pub fn of(&self, datum: u32) -> &[u32] {
        &self.tasks[self.first[datum as usize] as usize..self.first[datum as usize + 1] as usize]
    }
}

/// Tells which tasks have become ready when others are done.
pub struct Waiting<'f> {
    followers: &'f Followers,
    /// By task: inputs that have yet to be made.
    inputs: Vec<u32>,
}

impl<'f> Waiting<'f> {
    /// Nothing is done yet.
    pub fn new(problem: &Problem, followers: &'f Followers) -> Waiting<'f> {
        let made = |datum: &&u32| problem.data()[**datum as usize].producer.is_some();
        let waits = |task| problem.inputs(task).iter().filter(made).count() as u32;
        Waiting { followers, inputs: (0..problem.task_count()).map(waits).collect() }
    }

    /// Tasks that wait for no other, ascending.
    pub fn ready(&self) -> Vec<u32> {
        (0..self.inputs.len() as u32).filter(|task| self.inputs[*task as usize] == 0).collect()
    }

    /// Takes note that a task is done and hands over those that waited only for it, ascending.
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

/// All tasks, those first that wait for no other, then those that these let go, and so on: Kahn's order, first in first
/// out. Of tasks that a heuristic finds equal, the first of these is taken.
///
/// Source: Kahn, *Topological sorting of large networks*, CACM 5(11), 1962.
pub fn breadth_first(problem: &Problem, followers: &Followers) -> Vec<u32> {
    let mut waiting = Waiting::new(problem, followers);
    let mut order = waiting.ready();
    order.reserve(problem.task_count() - order.len());
    let mut at = 0;
    while let Some(task) = order.get(at).copied() {
        waiting.done(task as usize, |ready| order.push(ready));
        at += 1;
    }
    order
}

/// All tasks by descending rank, ties in [`breadth_first`] order.
pub fn by_rank(problem: &Problem, rank: &[f64]) -> Vec<u32> {
    let mut order = breadth_first(problem, &Followers::new(problem));
    // Stable, so that ties stay as they are.
    order.sort_by(|a, b| rank[*b as usize].total_cmp(&rank[*a as usize]));
    order
}
