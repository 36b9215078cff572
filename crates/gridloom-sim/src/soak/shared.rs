//! What is known of shared names from outside: what programs asked for, and what each version must be.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, Named, NodeId, TaskId, Time};
use gridloom_idl::UsedName;

use super::declared::value_of;

/// Something that a program asked for about a name.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Asked {
    Put { name: String, value: f64, replaces: bool },
    Find { name: String, waits: bool },
    Delete { name: String },
    List,
}

/// A question: the client and its number.
pub(super) type AskId = (NodeId, u64);

/// A version that a client was told to put somewhere.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) named: Named,
    pub(super) value: f64,
    pub(super) ask: AskId,
    pub(super) server: NodeId,
}

/// What is known of shared names.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// All questions, and when they were asked.
    pub(super) asked: BTreeMap<AskId, (Time, Asked)>,
    pub(super) versions: BTreeMap<DatumId, Version>,
    /// Versions that clients that mean ill were told to put somewhere, under names that no other uses.
    pub(super) of_insiders: BTreeSet<DatumId>,
    /// When questions were answered, and whether not with an error.
    pub(super) answered: BTreeMap<AskId, (Time, bool)>,
    /// Finds that a program said it waits for no longer.
    pub(super) forgotten: BTreeSet<AskId>,
    /// What calls declare that they get and put.
    pub(super) declared: BTreeMap<TaskId, Vec<UsedName>>,
    /// Clients of functions that do so, and their servers.
    pub(super) sessions: BTreeMap<NodeId, NodeId>,
    /// Parts of shared data, and the tasks that make them.
    pub(super) parts: BTreeMap<DatumId, TaskId>,
    /// Values under names so far: each is of another.
    values: u64,
    /// All names were deleted, and the agent has said that there are none.
    pub(super) are_deleted: bool,
}

/// Above all results of functions.
const VALUES_FROM: u64 = 2_000_000;

impl Shared {
    /// A value that no other name has.
    pub(super) fn new_value(&mut self) -> f64 {
        self.values += 1;
        (VALUES_FROM + self.values) as f64
    }

    /// Whether anybody has put a name, or asked about one.
    pub(super) fn is_used(&self) -> bool {
        !self.asked.is_empty() || !self.of_insiders.is_empty() || !self.declared.is_empty()
    }

    /// A client was told where to put what it asked for.
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

    /// Whether the client was told where to put what it asked for.
    pub(super) fn is_placed(&self, ask: AskId) -> bool {
        self.versions.values().any(|version| version.ask == ask)
    }

    /// A name may have been deleted by somebody at that time or later.
    pub(super) fn is_deleted_since(&self, name: &str, since: Time) -> bool {
        let is_it = |asked: &Asked| matches!(asked, Asked::Delete { name: deleted } if deleted == name);
        let is_over = |id: &AskId| self.answered.get(id).is_some_and(|(at, _)| *at < since);
        self.asked.iter().any(|(id, (_, asked))| is_it(asked) && !is_over(id))
    }

    /// A put of that name by another question, of those asked for by then.
    pub(super) fn other_puts(&self, but: AskId, name: &str) -> impl Iterator<Item = AskId> {
        let is_it = move |asked: &Asked| matches!(asked, Asked::Put { name: put, .. } if put == name);
        self.asked.iter().filter(move |(id, (_, asked))| **id != but && is_it(asked)).map(|(id, _)| *id)
    }
}
