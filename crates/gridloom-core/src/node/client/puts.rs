//! Puts: data that the program puts under names.

use crate::node::message::ClientToCatalog;
use gridloom_base::{DatumId, GroupId, Meta, Method, NamedDatum, NodeId, PutOrigin, TaskId, Time};

/// A put in progress.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) name: String,
    pub(super) datum: DatumId,
    pub(super) meta: Meta,
    pub(super) replaces: bool,
    pub(super) replicas: u16,
    pub(super) is_durable: bool,
    pub(super) method: Method,
    pub(super) made_by: Option<PutOrigin>,
    pub(super) task: TaskId,
    pub(super) group: GroupId,
    pub(super) stage: PutStage,
    /// The shared datum of the last attempt.
    pub(super) tried: Option<DatumId>,
    pub(super) attempts: u32,
    /// Servers that could not store it, with the reasons.
    pub(super) refused: Vec<(NodeId, String)>,
    /// The server that refused it for a quota last, with the reason.
    pub(super) over_quota: Option<(String, String)>,
}

/// The stage of a put.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum PutStage {
    /// The call that produces the datum has not ended, so the datum's location is unknown.
    NotProduced,
    /// The catalog was asked for a location.
    Asked,
    /// The attempt failed and is repeated at the next heartbeat.
    Failed,
    /// The copy is being sent to its server.
    Sending { named: NamedDatum, server: NodeId },
    /// The copy arrived at that time; the catalog has not confirmed it.
    Stored { named: NamedDatum, server: NodeId, since: Time },
}

impl Put {
    /// Returns the request to the catalog. `at` lists the servers that have copies.
    pub(super) fn message(&self, request: u64, at: Vec<NodeId>) -> ClientToCatalog {
        let Put { replaces, replicas, is_durable, method, made_by, tried, .. } = *self;
        let (name, meta, before, refused) = (self.name.clone(), self.meta.clone(), tried, self.refused.clone());
        ClientToCatalog::Put {
            request,
            name,
            meta,
            replaces,
            replicas,
            is_durable,
            method,
            made_by,
            holders: at,
            earlier_attempt: before,
            refused,
        }
    }
}
