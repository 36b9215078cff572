//! What the program puts under names.

use crate::node::message::ClientToCatalog;
use gridloom_base::{DatumId, GroupId, Maker, Meta, Method, Named, NodeId, TaskId, Time};

/// A datum that the program puts under a name.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) name: String,
    pub(super) datum: DatumId,
    pub(super) meta: Meta,
    pub(super) replaces: bool,
    pub(super) replicas: u16,
    pub(super) is_durable: bool,
    pub(super) method: Method,
    pub(super) made_by: Option<Maker>,
    pub(super) task: TaskId,
    pub(super) group: GroupId,
    pub(super) stage: Stage,
    /// As what it was to be put last.
    pub(super) tried: Option<DatumId>,
    pub(super) attempts: u32,
    /// Servers that could not take it, and why not.
    pub(super) refused: Vec<(NodeId, String)>,
}

/// How far a put has come.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Stage {
    /// The call that makes the datum has not ended: where the datum will be is not known.
    Unmade,
    /// The catalog was asked for a place.
    Asked,
    /// It failed, and is tried again at the next heartbeat.
    Failed,
    /// The copy goes to its server.
    Going { named: Named, server: NodeId },
    /// It is there since then; the catalog has not said so.
    There { named: Named, server: NodeId, since: Time },
}

impl Put {
    /// What the catalog is asked. Servers have copies `at` those.
    pub(super) fn message(&self, ask: u64, at: Vec<NodeId>) -> ClientToCatalog {
        let Put { replaces, replicas, is_durable, method, made_by, tried, .. } = *self;
        let (name, meta, before, refused) = (self.name.clone(), self.meta.clone(), tried, self.refused.clone());
        ClientToCatalog::Put { ask, name, meta, replaces, replicas, is_durable, method, made_by, at, before, refused }
    }
}
