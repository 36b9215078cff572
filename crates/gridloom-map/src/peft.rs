//! `peft`: predict earliest finish time. The choice of a task's server also counts the tasks after it: the longest path
//! from the task to the end, if every later task had the server that is best for it.
//!
//! ```text
//! o(t, p) = max( max over d wanted from t of h(d, p),
//!                max over d made by t, u reading d, of min over q of  c(d, p, q) + w(u, q) + o(u, q) )
//! w(u, q)    seconds of u on server q;  c(d, p, q) seconds to move d from p to q;  h(d, p) from p to the client
//! ```
//!
//! The ready task with the largest mean of o over the servers that can run it is placed next, on the server with the least sum
//! of its end and o, including in gaps. The table is the largest thing in memory: 8 bytes for each task and server.
//!
//! Source: Arabnejad, Barbosa, *List scheduling algorithm for heterogeneous systems by an optimistic cost table*, IEEE TPDS
//! 25(3), 2014. There c is a mean over links; here both servers are known, so it is that of their link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::MapError;
use super::order::{Followers, Readers, ReadyTracker, breadth_first};
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "peft",
    about: "each task where the sum of its end and of the best remaining path is smallest",
    source: "Arabnejad, Barbosa, IEEE TPDS 25(3), 2014",
    parameters: &[],
    make: |_| Ok(Box::new(Peft)),
};

#[derive(Clone, Copy, Debug)]
pub struct Peft;

impl Heuristic for Peft {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let servers = problem.client();
        let followers = Followers::new(problem);
        let mut position = vec![0u32; problem.task_count()];
        breadth_first(problem, &followers)
            .iter()
            .enumerate()
            .for_each(|(at, task)| position[*task as usize] = at as u32);
        let table = optimistic_costs(problem)?;
        let row = |task: usize| &table[task * servers..][..servers];
        let mean = |task: usize| {
            let able = (0..servers).filter(|server| problem.seconds(task, *server).is_some());
            let (sum, count) = able.fold((0.0, 0u32), |(sum, count), server| (sum + row(task)[server], count + 1));
            sum / f64::from(count)
        };
        // Means are not negative, so their bits are ordered like their values.
        let key = |task: u32| (mean(task as usize).to_bits(), Reverse(position[task as usize]), task);
        let mut waiting = ReadyTracker::new(problem, &followers);
        let mut ready: BinaryHeap<_> = waiting.ready().into_iter().map(key).collect();
        let mut schedule = Schedule::new(problem);
        while let Some((_, _, task)) = ready.pop() {
            problem.check_stopped()?;
            let task = task as usize;
            let server = schedule.best_with(task, row(task));
            schedule.place(task, server);
            waiting.done(task, |next| ready.push(key(next)));
        }
        Ok(schedule.finish())
    }
}

/// The table o, by task × server.
fn optimistic_costs(problem: &Problem) -> Result<Vec<f64>, MapError> {
    let servers = problem.client();
    let mut table = vec![0.0f64; problem.task_count() * servers];
    let readers = Readers::new(problem);
    let mut seconds = vec![0.0; servers];
    for task in (0..problem.task_count()).rev() {
        problem.check_stopped()?;
        for datum in problem.outputs(task) {
            let facts = &problem.data()[*datum as usize];
            if facts.wanted {
                for (from, cost) in table[task * servers..][..servers].iter_mut().enumerate() {
                    *cost = cost.max(problem.link_seconds(from, servers, facts.size_bytes));
                }
            }
            for reader in readers.of(*datum) {
                let reader = *reader as usize;
                problem.seconds_by_server(reader, &mut seconds);
                let (rows, later) = table.split_at_mut(reader * servers);
                let row = &mut rows[task * servers..][..servers];
                for (from, cost) in row.iter_mut().enumerate() {
                    let ways = (0..servers)
                        .filter(|to| seconds[*to].is_finite())
                        .map(|to| problem.route_seconds(from, to, facts.size_bytes) + seconds[to] + later[to]);
                    *cost = cost.max(ways.fold(f64::INFINITY, f64::min));
                }
            }
        }
    }
    Ok(table)
}
