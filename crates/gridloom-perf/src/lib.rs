//! What is known of servers and links, and the models of time built on it.
//!
//! ```text
//! calls as they end ──Learner──▶ FunctionModel ──server's report──▶ agent: one for each host ──▶ ServerView ──▶ Problem
//! transfers, probes ──report──▶ agent: Traffic, LinkModel of each pair, Bottlenecks ──▶ LinkEstimate, Bottleneck ──▶ Problem
//! ```

#![forbid(unsafe_code)]

mod bottlenecks;
mod calibration;
mod forecast;
mod learner;
mod link;
mod links;
mod model;
mod perturbation;
mod sites;
#[cfg(test)]
mod tests;
mod traffic;
mod tree;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gridloom_base::NodeId;

pub use bottlenecks::Bottleneck;
pub use calibration::{Calibration, Goal, Piece, Reached};
pub use forecast::{PREDICTORS, Predictor, Series};
pub use learner::Learner;
pub use link::LinkModel;
pub use links::Links;
pub use model::{Accuracy, Curve, FunctionModel, Point, Prediction, Size, first_guess_s, is_work};
pub use perturbation::{Beside, Perturbation};
pub use sites::{Shared, Way};
pub use traffic::Seen;
pub use tree::Tree;

/// The largest window of TCP without its option to scale (RFC 7323), bytes.
const WINDOW_BYTES: f64 = 65_535.0;

/// Latency and bandwidth of one ordered pair of hosts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkEstimate {
    /// One-way latency, seconds.
    pub latency_s: f64,
    /// Bandwidth, bytes per second.
    pub bandwidth: f64,
}

impl LinkEstimate {
    /// Assumed before anything is measured: a local network.
    pub const UNMEASURED: LinkEstimate = LinkEstimate { latency_s: 100e-6, bandwidth: 1e9 };

    /// What is expected of a link of which only the round trip is known: a window of TCP for each. Rather too slow than too
    /// fast, as a plan that trusts in a fast link loses more than one that keeps data where they are.
    pub fn of_round_trip(rtt_s: f64) -> LinkEstimate {
        let bandwidth = (WINDOW_BYTES / rtt_s).min(LinkEstimate::UNMEASURED.bandwidth);
        LinkEstimate { latency_s: rtt_s / 2.0, bandwidth }
    }

    /// Whether times can be reckoned with it: what a peer says may be anything.
    pub fn is_sane(&self) -> bool {
        let is_latency = self.latency_s.is_finite() && self.latency_s >= 0.0;
        is_latency && self.bandwidth.is_finite() && self.bandwidth > 0.0
    }

    /// Time to move `size_bytes`, seconds: latency + bytes / bandwidth.
    pub fn seconds(&self, size_bytes: u64) -> f64 {
        self.latency_s + size_bytes as f64 / self.bandwidth
    }
}

/// What is known of a link, for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// The sender: a host, or a client's name.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// What is expected of it.
    pub link: LinkEstimate,
    /// The predictor that said so, of those that run side by side.
    pub predictor: String,
    /// Mean error of its forecasts of bandwidth, as a part.
    pub forecast_error: f64,
    /// Measurements of the bandwidth, probes and transfers.
    pub measurements: u64,
    /// Seconds since the last.
    pub age_s: f64,
    /// Times of transfers as predicted and as measured.
    pub accuracy: Accuracy,
    /// What it shares with other links, as far as that was seen.
    pub shared: Vec<Bottleneck<String>>,
}

/// A server as known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerView {
    pub node: NodeId,
    /// Its name, unique in the grid; ties between servers are broken by it.
    pub name: String,
    /// Where it can be dialled.
    pub address: String,
    /// Tasks it runs at a time.
    pub slots: u32,
    /// It talks to clients only, and keeps nothing: each call's arguments come from the client, and its results go there.
    pub plain: bool,
    /// Bound on its store, bytes.
    pub memory_bytes: u64,
    /// Measured speed of one slot, floating-point operations per second; `None` before it was measured.
    pub speed_flops: Option<f64>,
    /// How much longer calls take of late than the models say: 1 if as long, 4 if other work leaves it a quarter of its
    /// processors.
    pub pace: f64,
    /// Functions offered (`module/function`), with what is known of their times here.
    pub functions: BTreeMap<String, FunctionModel>,
    /// Work already promised to other groups: seconds from now until each slot is free, ascending, `slots` long.
    pub busy_s: Vec<f64>,
    /// The release of Gridloom that it runs; empty if it, or its agent, does not say.
    #[serde(default)]
    pub release: String,
    /// Version of the protocol in which it and its agent talk; 0 if the agent does not say.
    #[serde(default)]
    pub protocol: u16,
}

/// The grid as known, seen from one client. Servers are in order of name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GridView {
    pub servers: Vec<ServerView>,
    /// Links between the client and each server, both ways alike.
    pub client_links: Vec<LinkEstimate>,
    /// `links[i][j]`: from server i to server j; `None` if they cannot talk and data go through the client.
    pub links: Vec<Vec<Option<LinkEstimate>>>,
    /// What several of these links share, by indices of servers; the client's is one past the last.
    pub bottlenecks: Vec<Bottleneck<usize>>,
}

impl GridView {
    /// Index of that server.
    pub fn server(&self, node: NodeId) -> Option<usize> {
        self.servers.iter().position(|server| server.node == node)
    }
}

/// The host in an address: what stands before the last colon.
pub fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

impl ServerView {
    /// Predicted seconds of one call of `function` of that size with nothing beside it, `None` if the server does not offer it.
    pub fn task_seconds(&self, function: &str, size: Size) -> Option<f64> {
        Some(self.functions.get(function)?.seconds(size, self.speed_flops) * self.pace)
    }

    /// Release and version of the protocol, for people: `0.1.0/47`, with `?` for what is not known.
    pub fn runs(&self) -> String {
        let release = if self.release.is_empty() { "?" } else { &self.release };
        let protocol = if self.protocol == 0 { "?".to_string() } else { self.protocol.to_string() };
        format!("{release}/{protocol}")
    }
}
