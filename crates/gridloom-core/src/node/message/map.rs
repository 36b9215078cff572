//! Plans of groups: a client asks, the agent answers, and says when a plan has become stale.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Message;
use gridloom_base::{GroupId, NodeId};
use gridloom_map::{MapBy, Outline, Plan, Seen};
use gridloom_perf::LinkEstimate;

/// What concerns plans.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MapMessage {
    ToAgent(MapToAgent),
    ToClient(MapToClient),
}

/// From a client to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MapToAgent {
    /// Map this group.
    MapGroup(Box<MapRequest>),
    /// The group has ended: what it was promised is free again.
    GroupEnded { group: GroupId },
}

/// From the agent to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MapToClient {
    GroupMapped {
        group: GroupId,
        /// From the request.
        round: u64,
        plan: Plan,
        /// Where its servers can be dialled.
        addresses: Vec<(NodeId, String)>,
        /// What the agent saw of the grid, if the group was only to be planned.
        seen: Option<Box<Seen>>,
    },
    /// The group cannot be mapped.
    GroupNotMapped {
        group: GroupId,
        /// From the request.
        round: u64,
        why: String,
    },
    /// What the group's plan rests on has changed much: it may pay to map again what is left.
    Stale { group: GroupId, why: String },
}

/// What a plan is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Its tasks run: their servers are promised to the group.
    Run,
    /// It will not run: nothing is promised, and what was seen comes with the plan.
    Look,
    /// Its tasks will be called one by one: their servers are promised until the group ends, and what was seen comes with
    /// the plan.
    Follow,
}

/// A request for a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MapRequest {
    pub group: GroupId,
    /// Number of this request among the client's: returned in the answer, so that a late one is told from the last.
    pub round: u64,
    pub outline: Outline,
    /// By what it is to be mapped.
    pub heuristic: MapBy,
    pub purpose: Purpose,
    /// What the client knows of its own links: server, link.
    pub client_links: Vec<(NodeId, LinkEstimate)>,
    /// Those of the servers to which links are guessed: they are not measured yet.
    pub guessed: BTreeSet<NodeId>,
    /// Servers not to be used.
    pub without: Vec<NodeId>,
    /// Seconds for which tasks of the group that are not mapped now keep servers busy, an entry a task.
    pub busy: Vec<(NodeId, f64)>,
}

impl From<MapToAgent> for Message {
    fn from(message: MapToAgent) -> Message {
        Message::Map(MapMessage::ToAgent(message))
    }
}

impl From<MapToClient> for Message {
    fn from(message: MapToClient) -> Message {
        Message::Map(MapMessage::ToClient(message))
    }
}
