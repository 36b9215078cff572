//! Measurements of servers and links, and the performance models built on them.
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
pub use calibration::{Calibration, CalibrationGoal, CalibrationResult, MispredictedPiece};
pub use forecast::{PREDICTORS, Predictor, Series};
pub use learner::Learner;
pub use link::LinkModel;
pub use links::{Links, NextSuspects};
pub use model::{Accuracy, Curve, FunctionModel, Point, Prediction, Size, first_guess_s, is_work};
pub use perturbation::{ConcurrencyPoint, Perturbation};
pub use sites::{Path, SharedPaths};
pub use traffic::CompletedTransfer;
pub use tree::NetworkTree;

/// Maximum TCP window without window scaling (RFC 7323), bytes.
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

    /// Estimates a link of which only the round trip is known: one TCP window per round trip. A low estimate is safer than a high
    /// one: a plan that relies on a fast link loses more than one that keeps data where they are.
    pub fn of_round_trip(rtt_s: f64) -> LinkEstimate {
        let bandwidth = (WINDOW_BYTES / rtt_s).min(LinkEstimate::UNMEASURED.bandwidth);
        LinkEstimate { latency_s: rtt_s / 2.0, bandwidth }
    }

    /// True if times can be computed from it: a peer may send any values.
    pub fn is_sane(&self) -> bool {
        let is_latency = self.latency_s.is_finite() && self.latency_s >= 0.0;
        is_latency && self.bandwidth.is_finite() && self.bandwidth > 0.0
    }

    /// Time to move `size_bytes`, seconds: latency + bytes / bandwidth.
    pub fn seconds(&self, size_bytes: u64) -> f64 {
        self.latency_s + size_bytes as f64 / self.bandwidth
    }
}

/// A report on a link, for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// The sender: a host, or a client's name.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Expected latency and bandwidth.
    pub link: LinkEstimate,
    /// The predictor that made the forecast, among those that run side by side.
    pub predictor: String,
    /// Mean relative error of its forecasts of bandwidth.
    pub forecast_error: f64,
    /// Number of measurements of the bandwidth, by probes and transfers.
    pub measurements: u64,
    /// Seconds since the last.
    pub age_s: f64,
    /// Predicted and measured times of transfers.
    pub accuracy: Accuracy,
    /// Bottlenecks that it was observed to share with other links.
    pub shared: Vec<Bottleneck<String>>,
    /// The relay through which its data pass, if they do not take a direct path.
    pub relay: Option<String>,
}

/// A server as the agent knows it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerView {
    pub node: NodeId,
    /// Its name, unique in the grid; ties between servers are broken by it.
    pub name: String,
    /// Address to connect to.
    pub address: String,
    /// Tasks it runs at a time.
    pub slots: u32,
    /// True if it is stateless and talks to clients only: each call's arguments are sent by the client, and its results are sent
    /// there.
    pub stateless: bool,
    /// Capacity of its store, bytes.
    pub memory_bytes: u64,
    /// Measured speed of one slot, floating-point operations per second; `None` before it was measured.
    pub speed_flops: Option<f64>,
    /// Recent duration of calls relative to the models: 1 if as predicted, 4 if other work leaves it a quarter of its processors.
    pub pace: f64,
    /// Functions offered (`module/function`), with their performance models on this server.
    pub functions: BTreeMap<String, FunctionModel>,
    /// Work already promised to other groups: seconds from now until each slot is free, ascending, `slots` long.
    pub busy_s: Vec<f64>,
    /// The release of Gridloom that it runs; empty if neither it nor its agent reports one.
    #[serde(default)]
    pub release: String,
    /// Protocol version between it and its agent; 0 if the agent does not report it.
    #[serde(default)]
    pub protocol: u16,
}

/// The known grid, as one client sees it. Servers are in order of name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GridView {
    pub servers: Vec<ServerView>,
    /// Links between the client and each server, the same in both directions.
    pub client_links: Vec<LinkEstimate>,
    /// `links[i][j]`: from server i to server j; `None` if they cannot talk and data go through the client.
    pub links: Vec<Vec<Option<LinkEstimate>>>,
    /// Bottlenecks that several of these links share, by indices of servers; the client's index is one past the last.
    pub bottlenecks: Vec<Bottleneck<usize>>,
}

impl GridView {
    /// Returns the index of a server.
    pub fn server(&self, node: NodeId) -> Option<usize> {
        self.servers.iter().position(|server| server.node == node)
    }
}

pub use gridloom_base::address::host_of;

impl ServerView {
    /// Predicted seconds of one call of `function` of that size that runs alone, `None` if the server does not offer
    /// it.
    pub fn task_seconds(&self, function: &str, size: Size) -> Option<f64> {
        Some(self.functions.get(function)?.seconds(size, self.speed_flops) * self.pace)
    }

    /// Release and protocol version, for people: `0.1.0/47`, with `?` for unknown parts.
    pub fn version_text(&self) -> String {
        let release = if self.release.is_empty() { "?" } else { &self.release };
        let protocol = if self.protocol == 0 { "?".to_string() } else { self.protocol.to_string() };
        format!("{release}/{protocol}")
    }
}
