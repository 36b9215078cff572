//! Liveness of peers, and the measuring of links: in turns that the agent gives, and from transfers.

use serde::{Deserialize, Serialize};

use super::Message;
use gridloom_base::NodeId;
use gridloom_perf::LinkEstimate;

/// Pings, and what concerns links.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LinkMessage {
    /// Liveness and latency.
    Ping {
        token: u64,
    },
    /// Answer to `Ping`, with its token.
    Pong {
        token: u64,
    },
    ToProber(LinkToProber),
    ToAgent(LinkToAgent),
}

/// To a server or client that measures a link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LinkToProber {
    /// The receiver of a bandwidth probe has it all.
    ProbeArrived { size_bytes: u64 },
    /// From the agent: no other node measures a link of these hosts now.
    Turn {
        to: NodeId,
        /// Whether the link is to be measured: others may have done so between these hosts.
        is_needed: bool,
    },
}

/// From a server or client to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum LinkToAgent {
    /// The sender is connected to that peer and wants to measure the link.
    AskTurn { to: NodeId },
    /// The turn, or the wish for it, is over.
    TurnOver { to: NodeId },
    /// A server measured its link to another.
    LinkMeasured { to: NodeId, link: LinkEstimate },
    /// A server cannot reach another.
    LinkBroken { to: NodeId },
    /// A server has measured its links: it can be mapped onto with knowledge.
    LinksDone,
    /// What came to the sender since its last report: at most [`gridloom_base::limits::SEEN_PER_REPORT`] transfers, the
    /// largest.
    TransfersSeen { transfers: Vec<SeenTransfer> },
}

/// A transfer as its receiver saw it, for the models of links.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeenTransfer {
    pub from: NodeId,
    pub size_bytes: u64,
    /// Nanoseconds from its first byte to its last.
    pub took_ns: u64,
    /// Nanoseconds from its arrival until this report left.
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
