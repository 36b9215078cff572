//! One version of a name.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, Named, NodeId};

use super::Question;

/// How far a version is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It is being put, as that client asked.
    Coming(Question),
    /// Requests for its name find it.
    Current,
    /// Another has its place, or the name was deleted. It is there for those that have found it before.
    Former,
}

#[derive(Debug)]
pub(super) struct Version {
    pub(super) named: Named,
    pub(super) stage: Stage,
    /// It was put at this agent. Of those that servers told a new agent of, some readers may not have told theirs yet.
    pub(super) is_own: bool,
    /// Servers with a copy.
    pub(super) holders: BTreeSet<NodeId>,
    /// Those of them that keep it.
    pub(super) keepers: BTreeSet<NodeId>,
    /// Servers that are to keep it, and have it not yet.
    pub(super) coming_to: BTreeSet<NodeId>,
    /// Servers that were to keep it while it was put, and why they could not.
    pub(super) refused: BTreeMap<NodeId, String>,
    /// Other puts of the call that puts it, which end with it.
    pub(super) joined: Vec<Question>,
    /// The server to which the client that puts it takes it.
    pub(super) place: NodeId,
    /// Clients that read it, and how often each has found it and not released it.
    pub(super) readers: BTreeMap<NodeId, u64>,
    /// How its last copy was lost.
    pub(super) lost: Option<String>,
}

impl Version {
    /// Of two versions of a name the greater one is current: what was put at this agent replaces what servers tell it of.
    pub(super) fn rank(&self) -> (bool, u64, DatumId) {
        (self.is_own, self.named.version, self.named.datum)
    }

    /// How many servers are still to be found that keep it.
    pub(super) fn lacks(&self) -> usize {
        usize::from(self.named.replicas).saturating_sub(self.keepers.len() + self.coming_to.len())
    }

    pub(super) fn is_kept_by_all(&self) -> bool {
        self.keepers.len() >= usize::from(self.named.replicas)
    }

    /// Servers that have it, or are to have it.
    pub(super) fn places(&self) -> Vec<NodeId> {
        self.holders.union(&self.coming_to).copied().collect()
    }

    pub(super) fn is_coming(&self) -> bool {
        matches!(self.stage, Stage::Coming(_))
    }

    /// Who puts it, until it is there.
    pub(super) fn coming(&self) -> Option<Question> {
        match self.stage {
            Stage::Coming(question) => Some(question),
            Stage::Current | Stage::Former => None,
        }
    }

    /// Clients that read or put it.
    pub(super) fn clients(&self) -> impl Iterator<Item = NodeId> {
        self.readers.keys().copied().chain(self.coming().map(|question| question.client))
    }
}
