//! Plans of groups. A client requests a plan, and the agent answers and reports later when the plan has become stale.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Message;
use gridloom_base::{GroupId, NodeId};
use gridloom_map::{MapperInput, MappingMethod, Outline, Plan};
use gridloom_perf::LinkEstimate;

/// Messages about plans.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MapMessage {
    ToAgent(MapToAgent),
    ToClient(MapToClient),
}

/// Messages from a client to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MapToAgent {
    /// Map this group.
    MapGroup(Box<MapRequest>),
    /// The group has ended: its reserved capacity is free again.
    GroupEnded { group: GroupId },
}

/// Messages from the agent to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MapToClient {
    GroupMapped {
        group: GroupId,
        /// The round of the request.
        round: u64,
        plan: Plan,
        /// Addresses of the plan's servers.
        addresses: Vec<(NodeId, String)>,
        /// The agent's view of the grid, unless the group runs from this plan directly.
        seen: Option<Box<MapperInput>>,
    },
    /// The group cannot be mapped.
    GroupNotMapped {
        group: GroupId,
        /// The round of the request.
        round: u64,
        why: String,
    },
    /// The assumptions behind the group's plan have changed much: mapping the remaining tasks again may pay off.
    Stale { group: GroupId, why: String },
}

/// The use of a requested plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// The group's tasks run: their servers are reserved for the group.
    Run,
    /// The group will not run: nothing is reserved, and the answer contains the agent's view of the grid.
    PlanOnly,
    /// The group's tasks will be called one by one: their servers are reserved until the group ends, and the answer
    /// contains the agent's view of the grid.
    Reserve,
}

/// A request for a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MapRequest {
    pub group: GroupId,
    /// Number of this request among the client's. The answer repeats it, so that the client can distinguish a late
    /// answer from the current one.
    pub round: u64,
    pub outline: Outline,
    /// The heuristic to use.
    pub heuristic: MappingMethod,
    pub purpose: Purpose,
    /// The client's estimates of its own links: server and link.
    pub client_links: Vec<(NodeId, LinkEstimate)>,
    /// Servers for which the client's estimate is a guess, because the link is not measured yet.
    pub unmeasured: BTreeSet<NodeId>,
    /// Servers that must not be used.
    pub excluded_servers: Vec<NodeId>,
    /// Seconds for which tasks of the group that are not part of this request keep servers busy, one entry for each task.
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
