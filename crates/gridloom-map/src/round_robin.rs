//! `round-robin`: tasks in call order, servers in turn, skipping those that cannot run the task. It is a yardstick.

use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "round-robin",
    about: "servers in turn",
    source: "yardstick",
    parameters: &[],
    make: |_| Ok(Box::new(RoundRobin)),
};

#[derive(Clone, Copy, Debug)]
pub struct RoundRobin;

impl Heuristic for RoundRobin {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let mut schedule = Schedule::new(problem);
        let servers = problem.servers().len();
        let mut turn = 0;
        for task in 0..problem.task_count() {
            problem.check_stopped()?;
            let server = (turn..turn + servers)
                .map(|server| server % servers)
                .find(|server| problem.seconds(task, *server).is_some())
                .expect("some server can run each task of a problem");
            turn = server + 1;
            schedule.place(task, server);
        }
        Ok(schedule.finish())
    }
}
