//! Liveness of peers, and measurement of links: by probes in turns that the agent grants, and from ordinary transfers.

use serde::{Deserialize, Serialize};

use super::Message;
use gridloom_base::NodeId;
use gridloom_perf::LinkEstimate;

/// Pings, and messages about links.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LinkMessage {
    /// Checks liveness and measures latency.
    Ping {
        token: u64,
    },
    /// The answer to `Ping`, with the same token.
    Pong {
        token: u64,
    },
    ToProber(LinkToProber),
    ToAgent(LinkToAgent),
}

/// Messages to a server or client that measures a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LinkToProber {
    /// The receiver of a bandwidth probe has received all of it.
    ProbeArrived { size_bytes: u64 },
    /// The agent grants a turn: no other node measures a link of these two hosts now.
    Turn {
        to: NodeId,
        /// False if another pair of nodes has already measured the link between these hosts.
        is_needed: bool,
    },
}

/// Messages from a server or client to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LinkToAgent {
    /// The sender is connected to that peer and wants to measure the link.
    RequestTurn { to: NodeId },
    /// The turn is over, or the sender no longer wants one.
    TurnOver { to: NodeId },
    /// A server measured its link to another.
    LinkMeasured { to: NodeId, link: LinkEstimate },
    /// A server cannot reach another.
    LinkBroken { to: NodeId },
    /// A server has measured all its links, so the mapper can use them.
    LinksDone,
    /// Transfers to the sender since its last report: at most [`gridloom_base::limits::TRANSFERS_PER_REPORT`], the largest ones.
    TransfersReceived { transfers: Vec<ReceivedTransfer> },
    /// Data from that node reach the sender through this relay, or directly from now on.
    DataPath { from: NodeId, relay: Option<String> },
}

/// A transfer as measured by its receiver, for the models of links.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReceivedTransfer {
    pub from: NodeId,
    pub size_bytes: u64,
    /// Nanoseconds from its first byte to its last.
    pub duration_ns: u64,
    /// Nanoseconds from its arrival until this report was sent.
    pub age_ns: u64,
}

impl From<LinkMessage> for Message {
    fn from(message: LinkMessage) -> Message {
        Message::Link(message)
    }
}

impl From<LinkToProber> for Message {
    fn from(message: LinkToProber) -> Message {
        Message::Link(LinkMessage::ToProber(message))
    }
}

impl From<LinkToAgent> for Message {
    fn from(message: LinkToAgent) -> Message {
        Message::Link(LinkMessage::ToAgent(message))
    }
}
