//! `heft`: heterogeneous earliest finish time. It takes tasks by descending **upward rank** and places each where it ends
//! earliest. With `insertion`, a task may use a gap between tasks placed before. The upward rank is the length of the longest
//! path from the task to the end, by mean costs:
//!
//! ```text
//! rank(t) = w(t) + max( max over d wanted from t of h(d),  max over d made by t, u reading d, of c(d) + rank(u) )
//! w(t)    mean seconds of t over the servers that can run it
//! c(d)    mean seconds to move d over all unordered pairs of servers, the free pairs of a server with itself included
//!         (pairs that cannot talk: through the client)
//! h(d)    mean seconds to move d from a server to the client
//! ```
//!
//! Source: Topcuoglu, Hariri, Wu, *Performance-effective and low-complexity task scheduling for heterogeneous
//! computing*, IEEE TPDS 13(3), 2002. Tasks of equal rank are taken in the order of [`super::order`]. Servers with equal ends
//! are taken in the order of their names. This implementation adds three things to the source:
//! - Several data between two tasks travel at the same time, each to a server once.
//! - Inputs that the client holds are sent by the client.
//! - Results that only the client awaits have to reach it. Their arrival counts when a server is chosen.
//!
//! Two parameters depart from the published rule:
//! - With `slack`, ends that differ by less than that fraction of the task's duration count as equal. Among such servers, the
//!   one with the fewest bytes to move wins: cost models are not more exact, and a byte that is not moved cannot be late.
//! - With `polish`, local moves improve the plan of a small group ([`super::polish`]).
//!
//! Measured on 20 recorded workflows × 4 grids of 8 or 16 servers: the makespan equals that of an independent HEFT in 80 of
//! 80 cases. `slack=0.05` adds 0.05 % to the makespan on average and 2.3 % at most, and moves 1 % fewer bytes.

use super::error::MapError;
use super::mean::{MeanLink, MeanSeconds};
use super::order::by_rank;
use super::plan::Plan;
use super::polish::polish;
use super::problem::Problem;
use super::schedule::Schedule;
use super::spec::Parameter;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "heft",
    about: "longest remaining path first, each task where it ends earliest",
    source: "Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002",
    parameters: &[
        Parameter { name: "insertion", about: "yes or no: use gaps between tasks placed before", default: "yes" },
        Parameter {
            name: "slack",
            about: "ends that differ by less than this fraction of the task's duration count as equal",
            default: "0",
        },
        Parameter {
            name: "polish",
            about: "whole number, the step budget for polishing the plan of a small group; 0 for none",
            default: "0",
        },
    ],
    make: |values| {
        let (insertion, slack) = (values.yes("insertion")?, values.fraction("slack")?);
        Ok(Box::new(Heft { insertion, slack, polish: values.whole("polish")? }))
    },
};

#[derive(Clone, Copy, Debug)]
pub struct Heft {
    /// True to use gaps between tasks placed before.
    pub insertion: bool,
    /// Ends that differ by less than this fraction of the task's duration count as equal.
    pub slack: f64,
    /// Step budget for polishing the plan.
    pub polish: u64,
}

impl Heft {
    /// The published rule.
    pub const PUBLISHED: Heft = Heft { insertion: true, slack: 0.0, polish: 0 };
}

impl Heuristic for Heft {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let mut schedule = Schedule::new(problem).with_insertion(self.insertion);
        let order: Vec<usize> =
            by_rank(problem, &upward_ranks(problem)).into_iter().map(|task| task as usize).collect();
        let mut chosen = vec![0; order.len()];
        for task in &order {
            problem.check_stopped()?;
            chosen[*task] = schedule.best(*task, self.slack);
            schedule.place(*task, chosen[*task]);
        }
        let polished = polish(problem, &order, &chosen, self.insertion, self.polish);
        if polished == chosen {
            return Ok(schedule.finish());
        }
        let mut schedule = Schedule::new(problem).with_insertion(self.insertion);
        order.iter().for_each(|task| schedule.place(*task, polished[*task]));
        Ok(schedule.finish())
    }
}

/// Returns the upward rank of each task, seconds. It is no less than the ranks of the tasks that depend on it.
pub fn upward_ranks(problem: &Problem) -> Vec<f64> {
    let between = MeanLink::between_servers(problem);
    let home = MeanLink::to_client(problem);
    // The longest path from the completion of each datum to the end.
    let mut after_s: Vec<f64> =
        problem.data().iter().map(|datum| if datum.wanted { home.seconds(datum.size_bytes) } else { 0.0 }).collect();
    let mut rank = vec![0.0; problem.task_count()];
    let mean = MeanSeconds::new(problem);
    for task in (0..problem.task_count()).rev() {
        let longest =
            problem.outputs(task).iter().fold(0.0f64, |longest, output| longest.max(after_s[*output as usize]));
        rank[task] = mean.of(task) + longest;
        for input in problem.inputs(task) {
            let through_s = between.seconds(problem.data()[*input as usize].size_bytes) + rank[task];
            let after_s = &mut after_s[*input as usize];
            *after_s = after_s.max(through_s);
        }
    }
    rank
}
