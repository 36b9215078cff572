//! `mct`: the mapping of plain GridRPC. Each call, in the order in which the program makes it, is sent to the server that is
//! expected to complete it first (minimum completion time). It is atomic: all arguments travel from the client, all results
//! travel back to it, and nothing stays at the server. Calls are issued asynchronously, each as soon as the
//! results that it needs are back at the client.
//!
//! It is the baseline for the mapping of groups. It does not use links between servers, so a datum that a
//! server needs for three calls is sent to it three times; the plan lists all three transfers.
//!
//! Source: NetSolve's agent, and the GridRPC model as described by Brady et al., *SmartGridRPC*, CCPE 2010.

use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "mct",
    about: "plain GridRPC: each call by itself to the server that completes it first, all data through the client",
    source: "Brady et al., SmartGridRPC, CCPE 2010, section on the GridRPC model",
    parameters: &[],
    make: |_| Ok(Box::new(Mct)),
};

#[derive(Clone, Copy, Debug)]
pub struct Mct;

impl Heuristic for Mct {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let mut schedule = Schedule::plain(problem);
        for task in 0..problem.task_count() {
            problem.check_stopped()?;
            let server = schedule.best(task, 0.0);
            schedule.place(task, server);
        }
        Ok(schedule.finish())
    }
}
