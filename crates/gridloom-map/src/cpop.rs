//! `cpop`: critical path on a processor. A task's priority is the length of the longest path *through* it. The tasks on
//! the longest path of all share one server, the one that runs them fastest. Each other task is placed where it ends earliest,
//! including in gaps.
//!
//! ```text
//! priority(t) = up(t) + down(t)
//! up(t)       the upward rank of `heft`
//! down(t)     max over d read by t, u making d, of c(d) + down(u) + e(u, t); 0 for the first tasks
//! e(u, t)     down=with:    mean seconds of t by mean speed (the harmonic mean of its seconds)
//!             down=without: mean seconds of u
//! ```
//!
//! Source: Topcuoglu, Hariri, Wu, *Performance-effective and low-complexity task scheduling for heterogeneous
//! computing*, IEEE TPDS 13(3), 2002. `down=without` is that paper's rank. The default follows the published comparisons
//! that we check against, among them SAGA's (Coleman, Krishnamachari, *PISA*, 2024): the task itself counts,
//! not the one before it, and if several tasks wait for nothing they depend on an added entry task without work. Then the
//! longest path is that of the entry task, few other tasks have exactly its length, and nearly all are placed as by `heft` in
//! another order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::MapError;
use super::heft::upward_ranks;
use super::mean::{MeanLink, MeanSeconds};
use super::order::{Followers, ReadyTracker, breadth_first};
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::spec::Parameter;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "cpop",
    about: "tasks on the longest path first, and the critical path on one server",
    source: "Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002",
    parameters: &[Parameter {
        name: "down",
        about: "with or without: whether the path from the start to a task counts the task instead of the one before it",
        default: "with",
    }],
    make: |values| {
        let counts_itself = values.one_of("down", "give with or without", &["without", "with"])? == 1;
        Ok(Box::new(Cpop { counts_itself }))
    },
};

/// Tasks whose priorities differ from the longest path by less than this fraction, or this many seconds, are on that path.
const ON_PATH: (f64, f64) = (1e-5, 1e-8);

#[derive(Clone, Copy, Debug)]
pub struct Cpop {
    /// True if the path from the start to a task includes the task itself.
    pub counts_itself: bool,
}

impl Heuristic for Cpop {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let followers = Followers::new(problem);
        let order = breadth_first(problem, &followers);
        let mut waiting = ReadyTracker::new(problem, &followers);
        let entries = waiting.ready();
        let up = upward_ranks(problem);
        let longest_s = entries.iter().map(|task| up[*task as usize]).fold(0.0, f64::max);
        let down = self.downward_ranks(problem, &order, entries.len() > 1);
        let priority: Vec<f64> = up.iter().zip(down).map(|(up, down)| up + down).collect();
        let is_on_path = |task: usize| (priority[task] - longest_s).abs() <= ON_PATH.1 + ON_PATH.0 * longest_s;
        let path: Vec<usize> = (0..priority.len()).filter(|task| is_on_path(*task)).collect();
        let server = server_of_path(problem, &path);

        let mut position = vec![0u32; order.len()];
        order.iter().enumerate().for_each(|(at, task)| position[*task as usize] = at as u32);
        // Priorities are not negative, so their bits are ordered like their values.
        let key = |task: u32| (priority[task as usize].to_bits(), Reverse(position[task as usize]), task);
        let mut ready: BinaryHeap<_> = entries.into_iter().map(key).collect();
        let mut schedule = Schedule::new(problem);
        while let Some((_, _, task)) = ready.pop() {
            problem.check_stopped()?;
            let task = task as usize;
            let to = match server.filter(|_| is_on_path(task)) {
                Some(server) => server,
                None => schedule.best(task, 0.0),
            };
            schedule.place(task, to);
            waiting.done(task, |next| ready.push(key(next)));
        }
        Ok(schedule.finish())
    }
}

impl Cpop {
    /// Returns the longest path from the start to each task, seconds. `order` must have tasks after those they depend on.
    fn downward_ranks(&self, problem: &Problem, order: &[u32], have_common_entry: bool) -> Vec<f64> {
        let between = MeanLink::between_servers(problem);
        let mean = MeanSeconds::new(problem);
        let mut down = vec![0.0f64; problem.task_count()];
        let mut seconds = vec![0.0; problem.client()];
        for task in order {
            let task = *task as usize;
            let own_s = if self.counts_itself { seconds_by_mean_speed(problem, task, &mut seconds) } else { 0.0 };
            let mut longest_s = if have_common_entry { own_s } else { 0.0 };
            for datum in problem.inputs(task) {
                let facts = &problem.data()[*datum as usize];
                let Some(maker) = facts.producer.map(|maker| maker as usize) else { continue };
                let maker_s = if self.counts_itself { own_s } else { mean.of(maker) };
                longest_s = longest_s.max(down[maker] + between.seconds(facts.size_bytes) + maker_s);
            }
            down[task] = longest_s;
        }
        down
    }
}

/// Work over mean speed, computed from the seconds alone.
fn seconds_by_mean_speed(problem: &Problem, task: usize, seconds: &mut [f64]) -> f64 {
    problem.seconds_by_server(task, seconds);
    let able = seconds.iter().filter(|seconds| seconds.is_finite());
    let (speed, count) = able.fold((0.0, 0u32), |(speed, count), seconds| (speed + 1.0 / seconds, count + 1));
    f64::from(count) / speed
}

/// Returns the server that takes least time for all tasks of the path, the first of several; `None` if no server can run all
/// of them, or the path is empty.
fn server_of_path(problem: &Problem, path: &[usize]) -> Option<usize> {
    let total_s =
        |server: usize| path.iter().map(|task| problem.seconds(*task, server).unwrap_or(f64::INFINITY)).sum::<f64>();
    let totals = (0..problem.client()).map(|server| (total_s(server), server));
    let best = totals.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    best.filter(|(total_s, _)| total_s.is_finite() && !path.is_empty()).map(|(_, server)| server)
}
