//! Every value is the one that its task computes from its inputs, and no result is committed more often than its task
//! ran. A plain call ends once. A task of a group ends with a result no more often than it was started.
//!
//! DESIGN.md, 1.

use std::collections::BTreeMap;

use gridloom_base::{TaskId, Time};
use gridloom_core::node::Event;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use crate::workload::first;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "results are right and committed once",
    about: "every value is the one that its task computes; a call ends once, a task no more often than it was started",
    new_check: || Box::<Results>::default(),
};

#[derive(Default)]
struct Results {
    /// Number of starts and ends of each task.
    runs: BTreeMap<TaskId, (u64, u64)>,
}

impl InvariantCheck for Results {
    fn observe(&mut self, _: &Simulation, ledger: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Stored { node, datum, value } => {
                let Some(expected) = ledger.expected.get(datum) else { return Ok(()) };
                let bytes = value.bytes.as_ref().ok_or_else(|| format!("{datum} at {node} has no bytes"))?;
                let (got, last) = (first(bytes), first(&bytes[bytes.len() - 8..]));
                let is_right = got == *expected && last == got && bytes.len() as u64 == value.meta.size_bytes();
                is_right.then_some(()).ok_or_else(|| format!("{datum} at {node} is {got}, expected {expected}"))
            }
            SimEvent::Started { task, .. } => {
                self.runs.entry(task.id).or_default().0 += 1;
                Ok(())
            }
            SimEvent::Reported { event: Event::TaskEnded { report, .. }, .. } => {
                let is_of_session = ledger.shared.sessions.contains_key(&report.task.client);
                if is_of_session || ledger.placements.contains(&report.task) {
                    return Ok(());
                }
                let (starts, ends) = self.runs.entry(report.task).or_default();
                *ends += 1;
                let is_call = ledger.calls.contains_key(&report.task);
                if is_call && *ends > 1 {
                    return Err(format!("the call {} ended {ends} times", report.task));
                }
                if report.outcome.is_ok() && !is_call && *ends > (*starts).max(1) {
                    return Err(format!("{} ended {ends} times and was started {starts} times", report.task));
                }
                if report.outcome.is_ok() && *starts == 0 {
                    return Err(format!("{} has a result and was never started", report.task));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        let again = self.runs.values().filter(|(starts, _)| *starts > 1).count();
        let twice = self.runs.values().filter(|(_, ends)| *ends > 1).count();
        vec![("a task ran again", again as u64), ("a result was made again after it was reported", twice as u64)]
    }
}
