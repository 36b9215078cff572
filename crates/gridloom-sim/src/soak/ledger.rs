//! What is known of a run from outside: what must come of its work, what its programs did, and what faults broke.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::{HEARTBEAT_NS, SILENCE_NS_MAX};
use gridloom_base::{DatumId, NodeId, TaskId, Time};

use super::shared::Shared;
use crate::faults::{Fault, Kind};

/// Faults of one server each that may leave a client without any: one for each of the three that may be lost, and one that
/// breaks its connection to the spared one.
pub(super) const LOSSES_OF_ALL: u32 = 4;

/// What is known of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What every datum must be.
    pub(super) expected: BTreeMap<DatumId, f64>,
    /// Plain calls and their results.
    pub(super) calls: BTreeMap<TaskId, Vec<DatumId>>,
    /// Results of plain calls.
    pub(super) call_results: BTreeSet<DatumId>,
    /// Calls of methods of objects.
    pub(super) methods: BTreeSet<TaskId>,
    /// Calls with a time limit.
    pub(super) limited: BTreeSet<TaskId>,
    /// Tasks that only take data to a server.
    pub(super) placements: BTreeSet<TaskId>,
    /// A program had a result erased, that others may have been made of.
    pub(super) has_erased: bool,
    /// Tasks that the program cancelled.
    pub(super) cancelled: BTreeSet<TaskId>,
    /// Some server may be too small for all that is held.
    pub(super) is_tight: bool,
    /// Names of servers that keep nothing.
    pub(super) plain: BTreeSet<String>,
    /// Bounds of the servers' stores.
    pub(super) bounds: BTreeMap<String, u64>,
    /// When it must be over.
    pub(super) deadline: Time,
    /// Clients that mean ill: what they have in their stores is of no account.
    pub(super) insiders: BTreeSet<NodeId>,
    /// Clients that were killed.
    pub(super) killed: BTreeSet<NodeId>,
    /// Data with shared names.
    pub(super) shared: Shared,
    /// What faults broke.
    pub(super) damage: Damage,
}

/// What faults broke, as far as it may cause errors.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Faults that have struck.
    struck: Vec<Kind>,
    /// The agent was gone, or could not be heard by a client.
    agent_was_away: bool,
    /// For longer than clients wait for it to come back.
    agent_was_gone: bool,
    /// Nodes and pairs of hosts that cannot be heard, and since when.
    silent: BTreeMap<String, Time>,
    /// Faults that may each lose a client or the agent a server.
    losses: u32,
    /// A store was full for a while.
    was_full: bool,
    /// A server could write nothing durable for a while.
    disk_was_full: bool,
    /// Large data that changed on their way.
    changed: u32,
    /// Nodes and hosts that were lost, or could not be heard.
    hit: BTreeSet<String>,
    /// When the first fault struck, and the last.
    first: Option<Time>,
    last: Time,
}

impl Damage {
    /// Faults that have struck.
    pub(super) fn struck(&self) -> &[Kind] {
        &self.struck
    }

    /// How many faults may each have lost a client or the agent a server.
    pub(super) fn losses(&self) -> u32 {
        self.losses
    }

    /// Whether a store was full for a while.
    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Whether a server could write nothing durable for a while.
    pub(super) fn disk_was_full(&self) -> bool {
        self.disk_was_full
    }

    /// Whether a node, or its host, was lost or could not be heard at some time.
    pub(super) fn has_hit(&self, node: &str, host: &str) -> bool {
        self.hit.contains(node) || self.hit.contains(host)
    }

    /// Whether no fault had struck by then.
    pub(super) fn is_none_by(&self, at: Time) -> bool {
        self.first.is_none_or(|first| first > at)
    }

    /// When the last fault struck.
    pub(super) fn last(&self) -> Time {
        self.last
    }

    /// A fault is about to strike.
    pub(super) fn note(&mut self, now: Time, fault: &Fault) {
        self.note_silence(now, fault);
        self.first.get_or_insert(now);
        self.last = now;
        self.struck.push(fault.kind());
        let is_agents = |host: &&str| super::places::is_agents_host(host);
        let names_agent = fault.nodes().contains(&super::places::AGENT) || fault.hosts().iter().any(is_agents);
        if !matches!(fault.kind(), Kind::Slow | Kind::SlowDisk | Kind::Full | Kind::FullDisk) {
            self.hit.extend(fault.nodes().iter().chain(&fault.hosts()).map(ToString::to_string));
        }
        match fault.kind() {
            // What pauses is told by its silence.
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
            // Each connection that it breaks is counted then.
            Kind::Corrupt => {}
            Kind::Resume | Kind::Heal | Kind::Slow | Kind::SlowDisk | Kind::On => {}
        }
    }

    /// A connection broke, as a datum on it changed.
    pub(super) fn connection_lost(&mut self) {
        self.losses += 1;
    }

    /// A large datum changed on its way.
    pub(super) fn datum_changed(&mut self) {
        self.changed += 1;
    }

    /// How many large data changed on their way.
    pub(super) fn changed(&self) -> u32 {
        self.changed
    }

    /// Notes which nodes fall silent, and which are heard again.
    fn note_silence(&mut self, now: Time, fault: &Fault) {
        let of_two = |a: &str, b: &str| if a < b { format!("{a} {b}") } else { format!("{b} {a}") };
        match fault {
            Fault::Cut(a, b) | Fault::Lose { from: a, to: b } => {
                self.silent.entry(of_two(a, b)).or_insert(now);
            }
            Fault::Pause(node) | Fault::Hang(node) => {
                self.silent.entry(node.clone()).or_insert(now);
            }
            Fault::Heal(a, b) => self.heard(now, &of_two(a, b)),
            Fault::Resume(node) => self.heard(now, node),
            _ => {}
        }
    }

    fn heard(&mut self, now: Time, name: &str) {
        if let Some(since) = self.silent.remove(name) {
            let is_long = is_long(since, now) && names_agent_or_client(name);
            self.agent_was_away |= is_long;
            self.agent_was_gone |= is_long;
        }
    }

    /// Whether a client may have waited in vain for the agent. One that begins anew, or to which a connection breaks, is back
    /// before that.
    pub(super) fn agent_is_gone(&self, now: Time) -> bool {
        self.agent_was_gone || self.has_long_silence(now)
    }

    fn has_long_silence(&self, now: Time) -> bool {
        self.silent.iter().any(|(name, since)| is_long(*since, now) && names_agent_or_client(name))
    }

    /// Whether a client may have lost the agent, or the agent a client: by what was broken, or because one of them could not be
    /// heard for so long that its peers gave it up, as they do.
    pub(super) fn agent_is_away(&self, now: Time) -> bool {
        self.agent_was_away || self.has_long_silence(now)
    }
}

/// Whether peers may have given up a node that was silent so long: it was heard last up to a heartbeat before.
fn is_long(since: Time, now: Time) -> bool {
    now.0.saturating_sub(since.0) + 2 * HEARTBEAT_NS >= SILENCE_NS_MAX
}

/// Clients lose each other only by losing what both talk to.
fn names_agent_or_client(names: &str) -> bool {
    names.split(' ').any(|name| match name.rsplit_once('-') {
        Some(("host", number)) => number.parse().is_ok_and(super::places::is_host_of_agent_or_client),
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
        damage.note(at(1), &cut("host-0", "host-5"));
        assert!(!damage.agent_is_away(at(5)));
        assert!(damage.agent_is_away(at(11)));
        damage.note(at(5), &Fault::Heal("host-5".into(), "host-0".into()));
        assert!(!damage.agent_is_away(at(100)));
        damage.note(at(100), &cut("host-1", "host-2"));
        assert!(!damage.agent_is_away(at(200)));
        damage.note(at(200), &Fault::Pause("client-1".into()));
        damage.note(at(300), &Fault::Resume("client-1".into()));
        assert!(damage.agent_is_away(at(300)));
    }
}
