//! One version of a name.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, NamedDatum, NodeId};

use super::RequestId;

/// The stage of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It is being put by that request.
    BeingPut(RequestId),
    /// Requests for its name find it.
    Current,
    /// It was replaced, or its name was deleted. It is kept for clients that found it before.
    Former,
}

#[derive(Debug)]
pub(super) struct Version {
    pub(super) named: NamedDatum,
    pub(super) stage: Stage,
    /// True if it was put at this agent. For a version that servers reported to a new agent, some readers may not have
    /// reported yet.
    pub(super) is_own: bool,
    /// Servers with a copy.
    pub(super) holders: BTreeSet<NodeId>,
    /// The holders that keep it.
    pub(super) keepers: BTreeSet<NodeId>,
    /// Servers assigned to keep it that do not have it yet.
    pub(super) assigned: BTreeSet<NodeId>,
    /// Servers that could not store it while it was being put, with the reasons.
    pub(super) refused: BTreeMap<NodeId, String>,
    /// Other puts of the call that puts it, which end with it.
    pub(super) joined: Vec<RequestId>,
    /// The server to which the putting client sends it.
    pub(super) place: NodeId,
    /// Clients that read it, with the number of finds that each has not released.
    pub(super) readers: BTreeMap<NodeId, u64>,
    /// Revision of the readers that the first servers were sent with the description.
    pub(super) sent_revision: u64,
    /// How its last copy was lost.
    pub(super) lost: Option<String>,
    /// Servers that have found the file of their copy damaged.
    pub(super) damaged_at: BTreeSet<NodeId>,
}

impl Version {
    /// Returns its rank: the version with the highest rank is the current one of its name. Versions put at this agent
    /// replace those that servers reported.
    pub(super) fn rank(&self) -> (bool, u64, DatumId) {
        (self.is_own, self.named.version, self.named.datum)
    }

    /// Returns how many more keepers it needs.
    pub(super) fn lacks(&self) -> usize {
        usize::from(self.named.replicas).saturating_sub(self.keepers.len() + self.assigned.len())
    }

    pub(super) fn is_kept_by_all(&self) -> bool {
        self.keepers.len() >= usize::from(self.named.replicas)
    }

    /// Returns the servers that have a copy, even a damaged one, or are assigned to keep one.
    pub(super) fn places(&self) -> Vec<NodeId> {
        let places: BTreeSet<&NodeId> = self.holders.iter().chain(&self.assigned).chain(&self.damaged_at).collect();
        places.into_iter().copied().collect()
    }

    pub(super) fn is_being_put(&self) -> bool {
        matches!(self.stage, Stage::BeingPut(_))
    }

    /// Returns the request that puts it, until the put is complete.
    pub(super) fn put_request(&self) -> Option<RequestId> {
        match self.stage {
            Stage::BeingPut(question) => Some(question),
            Stage::Current | Stage::Former => None,
        }
    }

    /// Returns the clients that read or put it.
    pub(super) fn clients(&self) -> impl Iterator<Item = NodeId> {
        self.readers.keys().copied().chain(self.put_request().map(|question| question.client))
    }
}
