//! Every error has a cause known to the run: a store that is too small or was full, a time limit, a cancellation, a
//! lost agent, or the loss of all servers. Any other error violates the invariant.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::TASK_ATTEMPTS_MAX;
use gridloom_base::{NodeId, TaskError, TaskId, Time};
use gridloom_core::node::Event;

use super::{Invariant, InvariantCheck};
use crate::layout::SERVERS;
use crate::ledger::{LOSSES_OF_ALL, Ledger};
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "errors have causes",
    about: "a task or datum fails only for a cause known to the run: small store, limit, cancellation, lost agent ...",
    new_check: || Box::<Causes>::default(),
};

#[derive(Default)]
struct Causes {
    failed: BTreeSet<TaskId>,
    /// Clients that have had an agent. They wait for it to return.
    connected: BTreeSet<NodeId>,
    /// Number of errors of each kind.
    errors: BTreeMap<&'static str, u64>,
}

impl InvariantCheck for Causes {
    fn observe(&mut self, _: &Simulation, ledger: &Ledger, now: Time, event: &SimEvent) -> Result<(), String> {
        let SimEvent::Reported { node, event } = event else { return Ok(()) };
        // If sessions of functions cannot get their data, the calls that declare it fail. Their servers may be cut off
        // from the agent.
        if ledger.shared.sessions.contains_key(node) {
            return Ok(());
        }
        match event {
            Event::TaskEnded { report, .. } => match &report.outcome {
                Ok(_) => Ok(()),
                Err(error) => {
                    self.failed.insert(report.task);
                    self.judge(ledger, now, *node, Some(report.task), error)
                }
            },
            Event::DatumLost { datum, error } => {
                let maker = ledger.shared.parts.get(datum).copied();
                self.judge(ledger, now, *node, maker, error).map_err(|why| format!("{datum}: {why}"))
            }
            Event::ServerLost { .. } => {
                *self.errors.entry("a client lost a server that ran tasks").or_default() += 1;
                Ok(())
            }
            Event::AgentLost { .. } if !ledger.damage.agent_is_away(now) => {
                Err(format!("{node} lost the agent, which was running"))
            }
            Event::Directory { .. } => {
                self.connected.insert(*node);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        self.errors.iter().map(|(what, times)| (*what, *times)).collect()
    }
}

impl Causes {
    fn judge(
        &mut self,
        ledger: &Ledger,
        now: Time,
        node: NodeId,
        task: Option<TaskId>,
        error: &TaskError,
    ) -> Result<(), String> {
        let is_new = !self.connected.contains(&node);
        let no_agent = ledger.damage.agent_is_gone(now) || is_new && ledger.damage.agent_is_away(now);
        let no_server = no_agent || ledger.damage.losses() >= LOSSES_OF_ALL;
        let (what, has_cause) = match error {
            TaskError::StoreFull { needed, limit, .. } => {
                // A task that fits by itself finds room, unless others fill the store or data were placed there permanently.
                let is_kept = !ledger.placements.is_empty() || !ledger.shared.declared.is_empty();
                let is_taken = !ledger.malicious_clients.is_empty() || is_kept;
                let has_cause = ledger.is_tight && (needed > limit || is_taken || ledger.damage.was_full());
                ("a store was too small", has_cause)
            }
            TaskError::Cancelled => {
                // Or its input was to be produced by a cancelled task that was forgotten since.
                ("a task was cancelled", ledger.cancelled.iter().any(|cancelled| cancelled.client == node))
            }
            TaskError::DeadlineExceeded { .. } | TaskError::TransferTimedOut { .. } => {
                ("a call exceeded its limit", task.is_some_and(|task| ledger.limited.contains(&task)))
            }
            TaskError::AgentLost { .. } => ("an agent was lost when it was needed", no_agent),
            // An object is lost with its server, or when a method call on it is cancelled.
            TaskError::ObjectMissing { .. }
            | TaskError::ServerLost { .. }
            | TaskError::DatumLost { .. }
            | TaskError::OutOfMemory { .. }
                if task.is_some_and(|task| ledger.methods.contains(&task)) =>
            {
                let is_given_up = |task: &TaskId| task.client == node && ledger.methods.contains(task);
                let given_up = ledger.limited.iter().chain(&ledger.cancelled).any(is_given_up);
                // A corrupted result is not sent again, because the method may not run twice.
                let has_changed = ledger.damage.changed() > 0;
                (
                    "an object was lost",
                    given_up
                        || has_changed
                        || ledger.damage.losses() > 0
                        || ledger.damage.was_full()
                        || no_server
                        || ledger.is_tight,
                )
            }
            TaskError::NotMapped { .. } | TaskError::ServerLost { .. }
                if task.is_some_and(|task| ledger.placements.contains(&task)) =>
            {
                ("the server of a placement was lost", ledger.damage.losses() > 0 || ledger.damage.agent_is_away(now))
            }
            TaskError::Refused { server, .. }
                if task.is_some_and(|task| ledger.placements.contains(&task) || ledger.methods.contains(&task)) =>
            {
                ("a plain server was to keep something", ledger.plain.contains(server))
            }
            TaskError::NoSuchFunction { .. } if task.is_some_and(|task| ledger.methods.contains(&task)) => {
                let keepers = (SERVERS as u32).saturating_sub(ledger.plain.len() as u32);
                let are_lost = !ledger.plain.is_empty() && ledger.damage.losses() >= keepers;
                ("no server that keeps objects was left", are_lost || no_server)
            }
            TaskError::NotMapped { .. } | TaskError::NoSuchFunction { .. } | TaskError::ServerLost { .. } => {
                ("no server was left", no_server)
            }
            TaskError::Raised { kind, .. } if task.is_some_and(|task| ledger.shared.declared.contains_key(&task)) => {
                let damage = &ledger.damage;
                let is_broken = damage.losses() > 0 || damage.was_full() || damage.agent_is_away(now);
                let is_crowded =
                    !ledger.malicious_clients.is_empty() || !ledger.plain.is_empty() || damage.disk_was_full();
                let has_cause = match kind.as_str() {
                    "NoRoomToShare" => is_broken || ledger.is_tight || is_crowded,
                    "SharedDataError" => is_broken || ledger.is_tight,
                    "SharedDataLost" => damage.losses() > 0,
                    // Only one call puts a name that is never replaced, and it may repeat the put.
                    _ => false,
                };
                ("a call could not share what it declares", has_cause)
            }
            TaskError::StoreFailed { .. } => ("a server could not keep durable data", ledger.damage.disk_was_full()),
            TaskError::OutOfMemory { .. } => ("a node had no memory for a datum", ledger.damage.was_full()),
            TaskError::DatumLost { datum, .. } if datum.is_shared() => {
                ("shared data were lost", ledger.damage.losses() > 0 || ledger.damage.agent_is_away(now))
            }
            TaskError::DatumLost { .. } => {
                // A call runs up to this many times if its result is corrupted each time.
                let has_changed = ledger.damage.changed() >= TASK_ATTEMPTS_MAX;
                ("a datum could not be taken in", ledger.damage.was_full() || ledger.has_erased || has_changed)
            }
            TaskError::DependencyFailed { task, .. } => {
                ("a dependency failed", self.failed.contains(task) || ledger.damage.was_full() || ledger.has_erased)
            }
            _ => ("another error", false),
        };
        *self.errors.entry(what).or_default() += 1;
        let whose = task.map(|task| format!("{task}: ")).unwrap_or_default();
        has_cause.then_some(()).ok_or_else(|| format!("{whose}{error}"))
    }
}
