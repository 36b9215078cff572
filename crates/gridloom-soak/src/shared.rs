//! External knowledge of shared names: the requests of programs, and the expected value of each version.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, NamedDatum, NodeId, TaskId, Time, name_for};
use gridloom_idl::UsedName;

use super::shared_functions::value_of;
use crate::layout::USER;

/// A request of a program about a name.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum NameRequest {
    Put { name: String, value: f64, replaces: bool },
    Find { name: String, waits: bool },
    Delete { name: String },
    List,
}

/// A request: the client and its request number.
pub(crate) type RequestId = (NodeId, u64);

/// A version that the agent has assigned to a server for a client's put.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) named: NamedDatum,
    pub(crate) value: f64,
    pub(crate) ask: RequestId,
    pub(crate) server: NodeId,
}

/// External knowledge of shared names.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// All requests, with their times.
    pub(crate) requests: BTreeMap<RequestId, (Time, NameRequest)>,
    pub(crate) versions: BTreeMap<DatumId, Version>,
    /// Versions that the agent has assigned for puts of malicious clients, under names that no other client uses.
    pub(crate) malicious_versions: BTreeSet<DatumId>,
    /// Time of each answer, and whether it was successful.
    pub(crate) answered: BTreeMap<RequestId, (Time, bool)>,
    /// Finds that a program has cancelled.
    pub(crate) forgotten: BTreeSet<RequestId>,
    /// Names that calls declare to get and put.
    pub(crate) declared: BTreeMap<TaskId, Vec<UsedName>>,
    /// Clients of functions that share data, and their servers.
    pub(crate) sessions: BTreeMap<NodeId, NodeId>,
    /// Parts of shared data, and the tasks that create them.
    pub(crate) parts: BTreeMap<DatumId, TaskId>,
    /// Number of values so far; each name has a different one.
    values: u64,
    /// True if all names were deleted and the agent has confirmed that there are none.
    pub(crate) are_deleted: bool,
}

/// Above all results of functions.
const VALUES_FROM: u64 = 2_000_000;

impl Shared {
    /// Returns a value that no other name has.
    pub(crate) fn new_value(&mut self) -> f64 {
        self.values += 1;
        (VALUES_FROM + self.values) as f64
    }

    /// Reports whether any client has put a name or requested one.
    pub(crate) fn is_used(&self) -> bool {
        !self.requests.is_empty() || !self.malicious_versions.is_empty() || !self.declared.is_empty()
    }

    /// Records that the agent has assigned a server to a client's put.
    pub(crate) fn placed(&mut self, ask: RequestId, named: &NamedDatum, server: NodeId) {
        let value = match (self.requests.get(&ask), named.put_by) {
            (Some((_, NameRequest::Put { value, .. })), _) => *value,
            (None, Some(maker)) if self.sessions.contains_key(&ask.0) => value_of(maker.task),
            _ => {
                self.malicious_versions.insert(named.datum);
                return;
            }
        };
        self.versions.insert(named.datum, Version { named: as_clients_see(named), value, ask, server });
    }

    /// Reports whether the agent has assigned a server to the client's put.
    pub(crate) fn is_placed(&self, ask: RequestId) -> bool {
        self.versions.values().any(|version| version.ask == ask)
    }

    /// Reports whether a name may have been deleted by a client at that time or later.
    pub(crate) fn is_deleted_since(&self, name: &str, since: Time) -> bool {
        let is_it = |asked: &NameRequest| matches!(asked, NameRequest::Delete { name: deleted } if deleted == name);
        let is_over = |id: &RequestId| self.answered.get(id).is_some_and(|(at, _)| *at < since);
        self.requests.iter().any(|(id, (_, asked))| is_it(asked) && !is_over(id))
    }

    /// Iterates over the other puts of a name.
    pub(crate) fn other_puts(&self, but: RequestId, name: &str) -> impl Iterator<Item = RequestId> {
        let is_it = move |asked: &NameRequest| matches!(asked, NameRequest::Put { name: put, .. } if put == name);
        self.requests.iter().filter(move |(id, (_, asked))| **id != but && is_it(asked)).map(|(id, _)| *id)
    }
}

/// Returns a version with the name that the clients state, which all belong to one user.
pub(crate) fn as_clients_see(named: &NamedDatum) -> NamedDatum {
    NamedDatum { name: name_for(USER, &named.name).to_string(), ..named.clone() }
}
