//! External knowledge of a run: the expected results, the actions of its programs, and the effects of faults.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::{HEARTBEAT_NS, SILENCE_NS_MAX};
use gridloom_base::{DatumId, NodeId, TaskId, Time};

use super::shared::Shared;
use gridloom_sim::faults::{Fault, Kind};

/// Number of single-server faults that may leave a client without any server: one for each of the three that may be
/// lost, and one that breaks its connection to the spared server.
pub(crate) const LOSSES_OF_ALL: u32 = 4;

/// External knowledge of a run.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The expected value of each datum.
    pub(crate) expected: BTreeMap<DatumId, f64>,
    /// Plain calls and their results.
    pub(crate) calls: BTreeMap<TaskId, Vec<DatumId>>,
    /// Results of plain calls.
    pub(crate) call_results: BTreeSet<DatumId>,
    /// Calls of methods of objects.
    pub(crate) methods: BTreeSet<TaskId>,
    /// Calls with a time limit.
    pub(crate) limited: BTreeSet<TaskId>,
    /// Tasks that only send data to a server.
    pub(crate) placements: BTreeSet<TaskId>,
    /// True if a program erased a result from which others may have been computed.
    pub(crate) has_erased: bool,
    /// Tasks that the program cancelled.
    pub(crate) cancelled: BTreeSet<TaskId>,
    /// True if some server may be too small for all data.
    pub(crate) is_tight: bool,
    /// Names of stateless servers.
    pub(crate) plain: BTreeSet<String>,
    /// Store limits of the servers.
    pub(crate) bounds: BTreeMap<String, u64>,
    /// Time by which the run must be over.
    pub(crate) deadline: Time,
    /// Malicious clients. Their stores are not checked.
    pub(crate) malicious_clients: BTreeSet<NodeId>,
    /// Clients that were killed.
    pub(crate) killed: BTreeSet<NodeId>,
    /// Knowledge of shared names.
    pub(crate) shared: Shared,
    /// The effects of faults.
    pub(crate) damage: Damage,
}

/// The effects of faults that may cause errors.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// Faults that were applied.
    applied: Vec<Kind>,
    /// True if the agent was gone, or a client could not reach it.
    agent_was_away: bool,
    /// The same, for longer than clients wait for it to return.
    agent_was_gone: bool,
    /// Nodes and pairs of hosts that cannot be reached, and since when.
    unreachable: BTreeMap<String, Time>,
    /// Number of faults that may each cost a client or the agent a server.
    losses: u32,
    /// True if a store was full for a while.
    was_full: bool,
    /// True if a server could write no durable data for a while.
    disk_was_full: bool,
    /// Number of large data corrupted in transit.
    changed: u32,
    /// Nodes and hosts that were lost or could not be reached.
    affected: BTreeSet<String>,
    /// Times of the first and the last fault.
    first: Option<Time>,
    last: Time,
}

impl Damage {
    /// Returns the faults that were applied.
    pub(crate) fn struck(&self) -> &[Kind] {
        &self.applied
    }

    /// Returns the number of faults that may each have cost a client or the agent a server.
    pub(crate) fn losses(&self) -> u32 {
        self.losses
    }

    /// Reports whether a store was full for a while.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Reports whether a server could write no durable data for a while.
    pub(crate) fn disk_was_full(&self) -> bool {
        self.disk_was_full
    }

    /// Reports whether a node, or its host, was ever lost or could not be reached.
    pub(crate) fn has_hit(&self, node: &str, host: &str) -> bool {
        self.affected.contains(node) || self.affected.contains(host)
    }

    /// Reports whether no fault was applied until then.
    pub(crate) fn is_none_by(&self, at: Time) -> bool {
        self.first.is_none_or(|first| first > at)
    }

    /// Returns the time of the last fault.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Records a fault that is about to be applied.
    pub(crate) fn record_fault(&mut self, now: Time, fault: &Fault) {
        self.note_silence(now, fault);
        self.first.get_or_insert(now);
        self.last = now;
        self.applied.push(fault.kind());
        let is_agents = |host: &&str| super::layout::is_agents_host(host);
        let names_agent = fault.named_nodes().contains(&super::layout::AGENT) || fault.hosts().iter().any(is_agents);
        if !matches!(fault.kind(), Kind::Slow | Kind::SlowDisk | Kind::Full | Kind::FullDisk) {
            self.affected.extend(fault.named_nodes().iter().chain(&fault.hosts()).map(ToString::to_string));
        }
        match fault.kind() {
            // The length of a pause is tracked by `note_silence`.
            Kind::Restart | Kind::Pause | Kind::Reset | Kind::HalfOpen if names_agent => self.agent_was_away = true,
            Kind::Kill | Kind::Hang | Kind::Off if names_agent => {
                self.agent_was_away = true;
                self.agent_was_gone = true;
            }
            Kind::Kill
            | Kind::Restart
            | Kind::Hang
            | Kind::Pause
            | Kind::Cut
            | Kind::Lose
            | Kind::Reset
            | Kind::HalfOpen
            | Kind::Off => self.losses += 1,
            Kind::Full => self.was_full = true,
            Kind::FullDisk => self.disk_was_full = true,
            // Each connection that it breaks is counted when that happens.
            Kind::Corrupt => {}
            Kind::Resume | Kind::Heal | Kind::Slow | Kind::SlowDisk | Kind::On => {}
        }
    }

    /// Records that a connection was closed because a datum on it was corrupted.
    pub(crate) fn connection_lost(&mut self) {
        self.losses += 1;
    }

    /// Records that a large datum was corrupted in transit.
    pub(crate) fn datum_changed(&mut self) {
        self.changed += 1;
    }

    /// Returns the number of large data that were corrupted in transit.
    pub(crate) fn changed(&self) -> u32 {
        self.changed
    }

    /// Records which nodes become silent, and which can be reached again.
    fn note_silence(&mut self, now: Time, fault: &Fault) {
        let of_two = |a: &str, b: &str| if a < b { format!("{a} {b}") } else { format!("{b} {a}") };
        match fault {
            Fault::Cut(a, b) | Fault::Lose { from: a, to: b } => {
                self.unreachable.entry(of_two(a, b)).or_insert(now);
            }
            Fault::Pause(node) | Fault::Hang(node) => {
                self.unreachable.entry(node.clone()).or_insert(now);
            }
            Fault::Heal(a, b) => self.heard(now, &of_two(a, b)),
            Fault::Resume(node) => self.heard(now, node),
            _ => {}
        }
    }

    fn heard(&mut self, now: Time, name: &str) {
        if let Some(since) = self.unreachable.remove(name) {
            let is_long = is_long(since, now) && names_agent_or_client(name);
            self.agent_was_away |= is_long;
            self.agent_was_gone |= is_long;
        }
    }

    /// Reports whether a client may have given up waiting for the agent. An agent that restarts, or to which a
    /// connection breaks, is back before a client gives up.
    pub(crate) fn agent_is_gone(&self, now: Time) -> bool {
        self.agent_was_gone || self.has_long_silence(now)
    }

    fn has_long_silence(&self, now: Time) -> bool {
        self.unreachable.iter().any(|(name, since)| is_long(*since, now) && names_agent_or_client(name))
    }

    /// Reports whether a client may have lost the agent, or the agent a client: by a fault, or because one of them was
    /// unreachable for so long that its peers gave it up.
    pub(crate) fn agent_is_away(&self, now: Time) -> bool {
        self.agent_was_away || self.has_long_silence(now)
    }
}

/// Reports whether peers may have given up a node that was silent for that time. They last received something up to a
/// heartbeat earlier.
fn is_long(since: Time, now: Time) -> bool {
    now.0.saturating_sub(since.0) + 2 * HEARTBEAT_NS >= SILENCE_NS_MAX
}

/// Clients lose each other only by losing a node that both talk to.
fn names_agent_or_client(names: &str) -> bool {
    names.split(' ').any(|name| match name.rsplit_once('-') {
        Some(("host", number)) => number.parse().is_ok_and(super::layout::is_host_of_agent_or_client),
        Some(("server", _)) => false,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use gridloom_base::time::SECOND_NS;

    use super::*;

    #[test]
    fn a_long_silence_is_a_cause_and_a_short_one_is_none() {
        let at = |seconds: u64| Time(seconds * SECOND_NS);
        let cut = |a: &str, b: &str| Fault::Cut(a.into(), b.into());
        let mut damage = Damage::default();
        damage.record_fault(at(1), &cut("host-0", "host-5"));
        assert!(!damage.agent_is_away(at(5)));
        assert!(damage.agent_is_away(at(11)));
        damage.record_fault(at(5), &Fault::Heal("host-5".into(), "host-0".into()));
        assert!(!damage.agent_is_away(at(100)));
        damage.record_fault(at(100), &cut("host-1", "host-2"));
        assert!(!damage.agent_is_away(at(200)));
        damage.record_fault(at(200), &Fault::Pause("client-1".into()));
        damage.record_fault(at(300), &Fault::Resume("client-1".into()));
        assert!(damage.agent_is_away(at(300)));
    }
}
