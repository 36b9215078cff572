//! Each request about a shared name has one answer. An error has a cause known to the run.
//!
//! docs/shared-data.md.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{NameError, Time};
use gridloom_core::node::Event;
use gridloom_core::node::message::CatalogAnswer;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use crate::shared::{NameRequest, RequestId};
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "names are answered",
    about: "each request about a shared name has one answer; an error has a cause known to the run",
    new_check: || Box::<Answers>::default(),
};

#[derive(Default)]
struct Answers {
    answered: BTreeSet<RequestId>,
    /// Number of answers of each kind.
    kinds: BTreeMap<&'static str, u64>,
}

impl Answers {
    /// Reports whether another client may have put the name, because the agent has assigned it a server.
    fn may_exist(&self, ledger: &Ledger, id: RequestId, name: &str) -> bool {
        ledger.shared.other_puts(id, name).any(|other| ledger.shared.is_placed(other))
    }
}

/// Maximum delay after which the agent, like the client before it, learns that a put has failed.
const LATE_NS: u64 = 4 * HEARTBEAT_NS;

/// Reports whether another client may have been about to put the name. With faults, this holds until the agent knows
/// that the put will not complete.
fn is_being_put(ledger: &Ledger, id: RequestId, asked_at: Time, name: &str) -> bool {
    let is_over = |other: &RequestId| {
        let ended = ledger.shared.answered.get(other).map(|(at, _)| *at + LATE_NS);
        ended.is_some_and(|ended| ended < asked_at) && ledger.damage.is_none_by(asked_at)
    };
    ledger.shared.other_puts(id, name).any(|other| !is_over(&other))
}

impl InvariantCheck for Answers {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, now: Time, event: &SimEvent) -> Result<(), String> {
        let SimEvent::Reported { node, event: Event::NameResult { request: ask, answer } } = event else {
            return Ok(());
        };
        let id = (*node, *ask);
        let Some((asked_at, asked)) = ledger.shared.requests.get(&id) else { return Ok(()) };
        if !self.answered.insert(id) {
            return Err(format!("{node} requested {asked:?} and got a second answer: {answer:?}"));
        }
        let damage = &ledger.damage;
        let is_broken = damage.losses() > 0 || damage.was_full() || damage.agent_is_away(now);
        let is_independent = sim.is_independent(*node);
        let is_crowded = !ledger.malicious_clients.is_empty();
        let lacks_room = ledger.is_tight || !ledger.plain.is_empty() || damage.disk_was_full();
        let (kind, is_right) = match (asked, answer) {
            (NameRequest::Put { .. }, Ok(CatalogAnswer::Put)) => ("a name was put", true),
            (NameRequest::Find { .. }, Ok(CatalogAnswer::Found { .. })) => ("a name was found", true),
            (NameRequest::Delete { .. }, Ok(CatalogAnswer::Deleted)) => ("a name was deleted", true),
            (NameRequest::List, Ok(CatalogAnswer::Listed { .. })) => ("names were listed", true),
            (NameRequest::Put { name, replaces, .. }, Err(NameError::Exists { .. })) => {
                let has_other = is_crowded || self.may_exist(ledger, id, name);
                ("a name existed", !replaces && has_other)
            }
            (NameRequest::Put { name, replaces, .. }, Err(NameError::BeingPut { .. })) => {
                let has_other = is_crowded || is_being_put(ledger, id, *asked_at, name);
                ("a name was being put", !replaces && has_other)
            }
            (NameRequest::Put { .. }, Err(NameError::NoRoom { .. })) => {
                ("no server had room for a name", is_broken || is_crowded || lacks_room)
            }
            (NameRequest::Put { .. }, Err(NameError::NotStored { .. })) => {
                let may_fail = !ledger.cancelled.is_empty() || ledger.has_erased;
                ("a put failed", is_broken || ledger.is_tight || may_fail)
            }
            (NameRequest::Find { waits: true, .. }, Err(NameError::Unknown { .. })) => {
                ("a find that waited was ended", ledger.shared.forgotten.contains(&id))
            }
            (NameRequest::Find { .. } | NameRequest::Delete { .. }, Err(NameError::Unknown { .. })) => {
                ("a name was unknown", true)
            }
            (NameRequest::Find { .. }, Err(NameError::Lost { .. })) => ("a name was lost", is_broken),
            (_, Err(NameError::NoAgent { .. } | NameError::AgentDisconnects { .. })) => {
                ("there was no agent for a name", is_independent || damage.agent_is_away(now))
            }
            _ => ("another answer", false),
        };
        *self.kinds.entry(kind).or_default() += 1;
        is_right.then_some(()).ok_or_else(|| format!("{node} requested {asked:?} and got {answer:?}"))
    }

    fn end(&mut self, _: &Simulation, ledger: &Ledger) -> Result<(), String> {
        let asked = ledger.shared.requests.iter().filter(|((node, _), _)| !ledger.killed.contains(node));
        match asked.into_iter().find(|(id, _)| !self.answered.contains(id)) {
            None => Ok(()),
            Some(((node, _), (at, asked))) => Err(format!("{node} requested {asked:?} at {at} and got no answer")),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        self.kinds.iter().map(|(kind, times)| (*kind, *times)).collect()
    }
}
