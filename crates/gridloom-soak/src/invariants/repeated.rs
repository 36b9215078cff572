//! A failed task runs again as often as its options allow, and no more; a successful one runs once. Exceptions: if
//! servers are lost, or stores are so small that results are evicted, tasks run again to recompute the results.

use std::collections::BTreeMap;

use gridloom_base::{TaskId, Time};

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use crate::workload::failing_runs;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "tasks run once",
    about: "a task runs once, and once more for each run that failed, unless servers or data are lost",
    new_check: || Box::<Repeated>::default(),
};

#[derive(Default)]
struct Repeated {
    runs: BTreeMap<TaskId, u32>,
    again: u64,
}

impl InvariantCheck for Repeated {
    fn observe(&mut self, _: &Simulation, ledger: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        let SimEvent::Started { task, .. } = event else { return Ok(()) };
        let runs = self.runs.entry(task.id).or_default();
        *runs += 1;
        let may_fail = failing_runs(task);
        self.again += u64::from(*runs > 1 && may_fail > 0);
        let nothing_is_lost = ledger.damage.struck().is_empty() && !ledger.is_tight && !ledger.has_erased;
        match nothing_is_lost && *runs > may_fail + 1 {
            true => Err(format!("{} of {} runs {runs} times, and failed {may_fail} times", task.id, task.name())),
            false => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("tasks that failed ran again", self.again)]
    }
}
