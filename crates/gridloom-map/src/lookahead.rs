//! `lookahead`: `heft` that looks one step ahead. Each task is tried on every server. For each server, the tasks that
//! read its results get the servers on which they would then end earliest. The task is placed on the server for which the last
//! of them ends earliest.
//!
//! A reader's other inputs are taken into account if they are known: they are stored somewhere, or a task that is already
//! placed produces them. Readers that would run on the same server run one after another, in order of rank; only the first
//! of them can use gaps in the server's schedule.
//!
//! Source: Bittencourt, Sakellariou, Madeira, *DAG scheduling using a lookahead variant of the heterogeneous earliest finish
//! time algorithm*, PDP 2010.

use super::error::MapError;
use super::heft::upward_ranks;
use super::order::{Readers, by_rank};
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "lookahead",
    about: "heft that places each task so that the last task that reads its results ends earliest",
    source: "Bittencourt, Sakellariou, Madeira, PDP 2010",
    parameters: &[],
    make: |_| Ok(Box::new(Lookahead)),
};

#[derive(Clone, Copy, Debug)]
pub struct Lookahead;

impl Heuristic for Lookahead {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let rank = upward_ranks(problem);
        let readers = Readers::new(problem);
        let mut schedule = Schedule::new(problem);
        let mut ahead = Ahead { problem, rank: &rank, readers: &readers, children: Vec::new(), free_s: Vec::new() };
        for task in by_rank(problem, &rank) {
            problem.check_stopped()?;
            let server = ahead.best(&mut schedule, task as usize);
            schedule.place(task as usize, server);
        }
        Ok(schedule.finish())
    }
}

struct Ahead<'a> {
    problem: &'a Problem,
    rank: &'a [f64],
    readers: &'a Readers,
    /// The tasks that read the results of the task being placed.
    children: Vec<Child>,
    /// Time at which the last child tried on each server ends, s.
    free_s: Vec<f64>,
}

/// A task that reads the results of the task being placed.
struct Child {
    task: u32,
    /// Sizes of the data that it reads from that task, bytes.
    bytes: Vec<u64>,
    /// Times at which its other inputs arrive at each server, as far as known, s.
    ready_s: Vec<f64>,
    seconds: Vec<f64>,
}

impl Ahead<'_> {
    /// Returns the server for a task. If several servers are equally good for its readers, returns the one on which the
    /// task ends earliest; if these are several, the first of them.
    fn best(&mut self, schedule: &mut Schedule, task: usize) -> usize {
        self.find_children(schedule, task);
        if self.children.is_empty() {
            return schedule.best(task, 0.0);
        }
        let mut best = (f64::INFINITY, f64::INFINITY, 0);
        for server in 0..self.problem.client() {
            let Some((_, end_s)) = schedule.earliest(task, server) else { continue };
            if end_s > best.0 {
                continue;
            }
            let last_s = self.last_child_s(schedule, server, end_s, best.0);
            if (last_s, end_s) < (best.0, best.1) {
                best = (last_s, end_s, server);
            }
        }
        best.2
    }

    fn find_children(&mut self, schedule: &mut Schedule, task: usize) {
        let problem = self.problem;
        self.children.clear();
        let mut reads: Vec<(u32, u64)> = Vec::new();
        for datum in problem.outputs(task) {
            let size_bytes = problem.data()[*datum as usize].size_bytes;
            reads.extend(self.readers.of(*datum).iter().map(|reader| (*reader, size_bytes)));
        }
        reads.sort_unstable();
        for (reader, size_bytes) in reads {
            match self.children.last_mut().filter(|last| last.task == reader) {
                Some(child) => child.bytes.push(size_bytes),
                None => {
                    let mut seconds = vec![0.0; problem.client()];
                    problem.seconds_by_server(reader as usize, &mut seconds);
                    let ready_s = schedule.ready_so_far(reader as usize).to_vec();
                    self.children.push(Child { task: reader, bytes: vec![size_bytes], ready_s, seconds });
                }
            }
        }
        let rank = self.rank;
        self.children.sort_by(|a, b| rank[b.task as usize].total_cmp(&rank[a.task as usize]));
    }

    /// Returns the end of the last child if the task ends on server `from` at `end_s`. If that is after `limit_s`, any
    /// value above `limit_s` may be returned.
    fn last_child_s(&mut self, schedule: &Schedule, from: usize, end_s: f64, limit_s: f64) -> f64 {
        let problem = self.problem;
        self.free_s.clear();
        self.free_s.resize(problem.client(), 0.0);
        self.free_s[from] = end_s;
        let mut last_s = end_s;
        for child in &self.children {
            let mut best = (f64::INFINITY, 0);
            for to in 0..problem.client() {
                // This lower bound already rules the server out, so its schedule need not be searched.
                if child.ready_s[to].max(end_s) + child.seconds[to] >= best.0 {
                    continue;
                }
                let way_s = child.bytes.iter().map(|bytes| problem.route_seconds(from, to, *bytes)).fold(0.0, f64::max);
                let ready_s = child.ready_s[to].max(end_s + way_s).max(self.free_s[to]);
                let child_end_s = schedule.fit(to, ready_s, child.seconds[to]) + child.seconds[to];
                if child_end_s < best.0 {
                    best = (child_end_s, to);
                }
            }
            self.free_s[best.1] = best.0;
            last_s = last_s.max(best.0);
            if last_s > limit_s {
                return last_s;
            }
        }
        last_s
    }
}
