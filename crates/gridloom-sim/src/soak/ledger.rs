//! What is known of a run from outside: what must come of its work, what its programs did, and what was broken.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_core::base::{DatumId, NodeId, TaskId, Time};

use crate::faults::{Fault, Kind};

/// Faults of one server each that may leave a client without any: one for each of the three that may be lost, and one that
/// breaks its connection to the spared one.
pub(super) const LOSSES_OF_ALL: u32 = 4;

/// The book of a run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What every datum must be.
    pub(super) expected: BTreeMap<DatumId, f64>,
    /// Plain calls and their results.
    pub(super) calls: BTreeMap<TaskId, Vec<DatumId>>,
    /// Results of plain calls.
    pub(super) call_results: BTreeSet<DatumId>,
    /// Calls with a time limit.
    pub(super) limited: BTreeSet<TaskId>,
    /// Tasks that the program cancelled.
    pub(super) cancelled: BTreeSet<TaskId>,
    /// Some server may be too small for all that is held.
    pub(super) is_tight: bool,
    /// Some server talks to clients only.
    pub(super) has_plain: bool,
    /// Bounds of the servers' stores.
    pub(super) bounds: BTreeMap<String, u64>,
    /// When it must be over.
    pub(super) deadline: Time,
    /// Clients that were killed.
    pub(super) killed: BTreeSet<NodeId>,
    /// Faults that have struck.
    pub(super) struck: Vec<Kind>,
    /// The agent was gone, or could not be heard by a client.
    pub(super) agent_was_away: bool,
    /// Faults that may each lose a client or the agent a server.
    pub(super) losses: u32,
    /// A store was full for a while.
    pub(super) was_full: bool,
}

impl Ledger {
    /// A fault is about to strike.
    pub(super) fn note(&mut self, fault: &Fault) {
        self.struck.push(fault.kind());
        let names_agent = fault.nodes().contains(&super::stage::AGENT);
        match fault.kind() {
            Kind::Kill | Kind::Restart | Kind::Hang | Kind::Pause if names_agent => self.agent_was_away = true,
            Kind::Reset | Kind::HalfOpen if names_agent => self.agent_was_away = true,
            Kind::Kill
            | Kind::Restart
            | Kind::Hang
            | Kind::Pause
            | Kind::Cut
            | Kind::Lose
            | Kind::Reset
            | Kind::HalfOpen => self.losses += 1,
            Kind::Full => self.was_full = true,
            Kind::Resume | Kind::Heal | Kind::Slow => {}
        }
    }
}
