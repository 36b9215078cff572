//! External knowledge of shared names: the requests of programs, and the expected value of each version.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, Named, NodeId, TaskId, Time};
use gridloom_idl::UsedName;

use super::declared::value_of;

/// A request of a program about a name.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Asked {
    Put { name: String, value: f64, replaces: bool },
    Find { name: String, waits: bool },
    Delete { name: String },
    List,
}

/// A request: the client and its request number.
pub(super) type AskId = (NodeId, u64);

/// A version that a client was told to put somewhere.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) named: Named,
    pub(super) value: f64,
    pub(super) ask: AskId,
    pub(super) server: NodeId,
}

/// External knowledge of shared names.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// All requests, with their times.
    pub(super) asked: BTreeMap<AskId, (Time, Asked)>,
    pub(super) versions: BTreeMap<DatumId, Version>,
    /// Versions that malicious clients were told to put somewhere, under names that no other client uses.
    pub(super) of_insiders: BTreeSet<DatumId>,
    /// Time of each answer, and whether it was successful.
    pub(super) answered: BTreeMap<AskId, (Time, bool)>,
    /// Finds that a program has cancelled.
    pub(super) forgotten: BTreeSet<AskId>,
    /// Names that calls declare to get and put.
    pub(super) declared: BTreeMap<TaskId, Vec<UsedName>>,
    /// Clients of functions that share data, and their servers.
    pub(super) sessions: BTreeMap<NodeId, NodeId>,
    /// Parts of shared data, and the tasks that create them.
    pub(super) parts: BTreeMap<DatumId, TaskId>,
    /// Number of values so far; each name has a different one.
    values: u64,
    /// Whether all names were deleted and the agent has confirmed that there are none.
    pub(super) are_deleted: bool,
}

/// Above all results of functions.
const VALUES_FROM: u64 = 2_000_000;

impl Shared {
    /// Returns a value that no other name has.
    pub(super) fn new_value(&mut self) -> f64 {
        self.values += 1;
        (VALUES_FROM + self.values) as f64
    }

    /// Reports whether any client has put a name or requested one.
    pub(super) fn is_used(&self) -> bool {
        !self.asked.is_empty() || !self.of_insiders.is_empty() || !self.declared.is_empty()
    }

    /// Records that a client was told where to put its value.
    pub(super) fn placed(&mut self, ask: AskId, named: &Named, server: NodeId) {
        let value = match (self.asked.get(&ask), named.made_by) {
            (Some((_, Asked::Put { value, .. })), _) => *value,
            (None, Some(maker)) if self.sessions.contains_key(&ask.0) => value_of(maker.task),
            _ => {
                self.of_insiders.insert(named.datum);
                return;
            }
        };
        self.versions.insert(named.datum, Version { named: named.clone(), value, ask, server });
    }

    /// Reports whether the client was told where to put its value.
    pub(super) fn is_placed(&self, ask: AskId) -> bool {
        self.versions.values().any(|version| version.ask == ask)
    }

    /// Reports whether a name may have been deleted by a client at that time or later.
    pub(super) fn is_deleted_since(&self, name: &str, since: Time) -> bool {
        let is_it = |asked: &Asked| matches!(asked, Asked::Delete { name: deleted } if deleted == name);
        let is_over = |id: &AskId| self.answered.get(id).is_some_and(|(at, _)| *at < since);
        self.asked.iter().any(|(id, (_, asked))| is_it(asked) && !is_over(id))
    }

    /// Iterates over the other puts of a name.
    pub(super) fn other_puts(&self, but: AskId, name: &str) -> impl Iterator<Item = AskId> {
        let is_it = move |asked: &Asked| matches!(asked, Asked::Put { name: put, .. } if put == name);
        self.asked.iter().filter(move |(id, (_, asked))| **id != but && is_it(asked)).map(|(id, _)| *id)
    }
}
