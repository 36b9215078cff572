//! A call has got everything that it declares to get before it ends, and everything that it declares to put exists
//! when it has ended.
//!
//! *Got*: since the call began at its server, the server's session has found a version of the name with the declared
//! size. *Exists*: a server has had the value that this very call put under the name, with the declared size. There
//! are no exceptions, whatever is lost: a call that misses one of them fails.
//!
//! docs/shared-data.md.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{NodeId, TaskId, Time};
use gridloom_core::node::Event;
use gridloom_core::node::message::CatalogAnswer;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use crate::shared::as_clients_see;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "calls get and put what they declare",
    about: "a successful call has got everything that it declares to get, and a server has had everything that it \
    declares to put",
    new_check: || Box::<Declared>::default(),
};

/// A shared name, and its size in bytes.
type NameAndSize = (String, u64);

#[derive(Default)]
struct Declared {
    /// When calls with declared data began at each server.
    began: BTreeMap<(NodeId, TaskId), Time>,
    /// When the session of each server last found a version.
    found: BTreeMap<(NodeId, NameAndSize), Time>,
    /// Values put by each call of which a server has had a copy.
    put: BTreeSet<(TaskId, NameAndSize)>,
    gets: u64,
    waited: u64,
    puts: u64,
    came_from_elsewhere: u64,
}

impl InvariantCheck for Declared {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, now: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Started { node, task } if ledger.shared.declared.contains_key(&task.id) => {
                self.began.entry((*node, task.id)).or_insert(now);
            }
            SimEvent::Arrived { node, from, datum } if datum.is_shared() && sim.server(*from).is_some() => {
                let made_by = ledger.shared.versions.get(&datum.whole()).and_then(|version| version.named.put_by);
                self.came_from_elsewhere += u64::from(made_by.is_some() && sim.server(*node).is_some());
            }
            SimEvent::Stored { node, datum, value } if sim.server(*node).is_some() => {
                let named = ledger.shared.versions.get(datum).map(|version| &version.named);
                if let Some((named, maker)) = named.and_then(|named| Some((named, named.put_by?))) {
                    self.put.insert((maker.task, (named.name.clone(), value.meta.size_bytes())));
                }
            }
            SimEvent::Reported {
                node,
                event: Event::NameResult { answer: Ok(CatalogAnswer::Found { named, .. }), .. },
            } => {
                if let Some(server) = ledger.shared.sessions.get(node) {
                    let name = as_clients_see(named).name;
                    self.found.insert((*server, (name, named.meta.size_bytes())), now);
                }
            }
            SimEvent::Reported { event: Event::TaskEnded { report, server: Some(server), .. }, .. }
                if report.outcome.is_ok() =>
            {
                return self.judge(ledger, *server, report.task);
            }
            _ => {}
        }
        Ok(())
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("a call got what it declares", self.gets),
            ("a call waited for what it declares to get", self.waited),
            ("a call put what it declares", self.puts),
            ("what a call put came to another server", self.came_from_elsewhere),
        ]
    }
}

impl Declared {
    /// Checks a call that ended successfully at a server.
    fn judge(&mut self, ledger: &Ledger, server: NodeId, task: TaskId) -> Result<(), String> {
        for used in ledger.shared.declared.get(&task).into_iter().flatten() {
            let what = (used.name.clone(), used.size_bytes);
            if used.kind.puts() {
                self.puts += 1;
                if !self.put.contains(&(task, what)) {
                    return Err(format!(
                        "{task} has ended, but no server has had its '{}', which it declares to put",
                        used.name
                    ));
                }
                continue;
            }
            self.gets += 1;
            let found = self.found.get(&(server, what)).copied();
            match self.began.get(&(server, task)).zip(found).filter(|(began, found)| found >= began) {
                Some((began, found)) => self.waited += u64::from(found.since(*began) > LONG_NS),
                None => {
                    return Err(format!(
                        "{task} has ended at {server} without '{}', which it declares to get",
                        used.name
                    ));
                }
            }
        }
        Ok(())
    }
}

/// An existing name is found sooner than this.
const LONG_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_idl::{UseKind, UsedName};

    #[test]
    fn a_call_lacks_what_it_found_before_it_began_and_what_another_put() {
        let (server, call, other) =
            (NodeId(2), TaskId { client: NodeId(6), serial: 1 }, TaskId { client: NodeId(6), serial: 2 });
        let used = |does| UsedName { kind: does, name: "part/1".into(), size_bytes: 8, retention: Default::default() };
        let mut ledger = Ledger::default();
        let what = ("part/1".to_string(), 8);
        ledger.shared.declared.insert(call, vec![used(UseKind::Get)]);
        let mut seen = Declared::default();
        assert!(seen.judge(&ledger, server, call).is_err(), "nothing was found");
        seen.found.insert((server, what.clone()), Time(4));
        seen.began.insert((server, call), Time(5));
        assert!(seen.judge(&ledger, server, call).is_err(), "it was found for another call");
        seen.found.insert((server, what.clone()), Time(5));
        assert!(seen.judge(&ledger, server, call).is_ok());

        ledger.shared.declared.insert(call, vec![used(UseKind::Replace)]);
        seen.put.insert((other, what.clone()));
        assert!(seen.judge(&ledger, server, call).is_err(), "another has put it");
        seen.put.insert((call, what));
        assert!(seen.judge(&ledger, server, call).is_ok());
    }
}
