//! A value put under a name is found by every client from the answer to the put until it is replaced or deleted.
//!
//! Its server may have been lost. A new agent, or one that has lost servers or clients, learns the names when they
//! register again. So nothing is checked for a while after a fault.
//!
//! docs/shared-data.md.

use std::collections::BTreeMap;

use gridloom_base::limits::{HEARTBEAT_NS, RECONNECT_NS_MAX, SILENCE_NS_MAX};
use gridloom_base::{NameError, NodeId, Time};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Event, Role};

use super::{Invariant, InvariantCheck};
use crate::grid::SoakGrid;
use crate::ledger::Ledger;
use crate::shared::{NameRequest, RequestId, Version};
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "what was put is found",
    about: "an answered put is found by every client until it is replaced or deleted, or its server is lost",
    new_check: || Box::<Found>::default(),
};

/// Time after a fault in which names may be unknown.
const UNSURE_NS: u64 = SILENCE_NS_MAX + RECONNECT_NS_MAX + 3 * HEARTBEAT_NS;

#[derive(Default)]
struct Found {
    /// Answered puts, with the time of the answer.
    put: BTreeMap<RequestId, Time>,
    judged: u64,
    judged_after_faults: u64,
    judged_kept: u64,
    waited: u64,
}

impl InvariantCheck for Found {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, now: Time, event: &SimEvent) -> Result<(), String> {
        let SimEvent::Reported { node, event: Event::NameResult { request: ask, answer } } = event else {
            return Ok(());
        };
        let Some((asked_at, asked)) = ledger.shared.requests.get(&(*node, *ask)) else { return Ok(()) };
        match (asked, answer) {
            (NameRequest::Put { .. }, Ok(_)) => {
                self.put.insert((*node, *ask), now);
                Ok(())
            }
            (NameRequest::Find { name, waits }, answer) => {
                let is_found = answer.is_ok();
                self.waited += u64::from(*waits && is_found && now > *asked_at);
                self.judge(sim, ledger, now, (*node, *asked_at, name), answer)
            }
            // A failed deletion reports the same missing name as a find.
            (NameRequest::Delete { name }, answer @ Err(_)) => {
                self.judge(sim, ledger, now, (*node, *asked_at, name), answer)
            }
            _ => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("a find that had to find was judged", self.judged),
            ("a find that had to find was judged after a fault", self.judged_after_faults),
            ("a find whose first server was hit was judged", self.judged_kept),
            ("a find waited for a put", self.waited),
        ]
    }
}

impl Found {
    fn judge(
        &mut self,
        sim: &Simulation,
        ledger: &Ledger,
        now: Time,
        (node, asked_at, name): (NodeId, Time, &str),
        answer: &Result<CatalogAnswer, NameError>,
    ) -> Result<(), String> {
        let Some((version, since)) = self.last_put(ledger, asked_at, name) else { return Ok(()) };
        let damage = &ledger.damage;
        let is_unsure = !damage.struck().is_empty() && damage.last() + UNSURE_NS > asked_at;
        let is_hit = |server: NodeId| damage.has_hit(sim.name(server), sim.host_name(server));
        // If faults have hit one server, one of two keepers is still there.
        let hit = SoakGrid::all(sim, Role::Server).filter(|server| is_hit(*server)).count();
        let is_kept = hit < usize::from(version.named.replicas);
        self.judged_kept += u64::from(is_kept && is_hit(version.server));
        let is_lost = !is_kept && is_hit(version.server) || damage.agent_is_gone(now);
        if is_unsure || is_lost || ledger.shared.is_deleted_since(name, since) {
            return Ok(());
        }
        let found = match answer {
            Ok(CatalogAnswer::Found { named, .. }) => ledger.shared.versions.get(&named.datum),
            Err(NameError::NoAgent { .. } | NameError::AgentDisconnects { .. }) => return Ok(()),
            other => return Err(format!("{node} requested '{name}', which was put, and got {other:?}")),
        };
        self.judged += 1;
        self.judged_after_faults += u64::from(!damage.struck().is_empty());
        // The find must not return a version that was replaced before it was requested.
        let is_old = found.is_some_and(|found| self.put.get(&found.ask).is_some_and(|put| *put < since));
        match is_old {
            false => Ok(()),
            true => Err(format!("{node} requested '{name}' and got a version that {:?} has replaced", version.named)),
        }
    }

    /// Returns the last put of a name that was answered by a given time, and the time of its request.
    fn last_put<'a>(&self, ledger: &'a Ledger, by: Time, name: &str) -> Option<(&'a Version, Time)> {
        let puts = self.put.iter().filter(|(_, answered)| **answered < by);
        let of_name = puts.filter_map(|(id, _)| match &ledger.shared.requests[id] {
            (at, NameRequest::Put { name: put, .. }) if put == name => Some((*at, *id)),
            _ => None,
        });
        let (at, id) = of_name.max()?;
        // If it was placed more than once, the value was sent to the last place.
        let version = ledger.shared.versions.values().filter(|version| version.ask == id);
        Some((version.max_by_key(|version| version.named.version)?, at))
    }
}
