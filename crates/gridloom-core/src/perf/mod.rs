//! What is known of servers and links, and the cost models built on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::NodeId;
use crate::base::limits::{SPEED_FLOPS_DEFAULT, WORK_FLOPS_DEFAULT};

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

/// What a server is known to make of one function.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FunctionRate {
    /// Seconds that a call takes whatever its work.
    pub overhead_s: f64,
    /// Work done per second, floating-point operations per second; `None` while no call was measured.
    pub flops: Option<f64>,
    /// Mean seconds of a call of a function that states no work; `None` while no call was measured.
    pub mean_s: Option<f64>,
    /// Calls that went into it.
    pub calls: u64,
}

impl FunctionRate {
    /// Takes in the sum of some calls. Old calls are forgotten exponentially: the newest report weighs a quarter, or
    /// more while there are few calls behind it. `weighing` is how many of the calls count for that: cold ones, 0, are
    /// better than nothing, and forgotten as soon as there is better.
    pub fn learn(&mut self, weighing: u64, calls: u64, work_flops: f64, seconds: f64) {
        let is_known = self.mean_s.is_some();
        if calls == 0 || !seconds.is_finite() || seconds <= 0.0 || (weighing == 0 && is_known) {
            return;
        }
        let weight = (weighing as f64 / weighing.saturating_add(self.calls).max(1) as f64).max(0.25);
        let blend = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + weight * (new - old)));
        self.mean_s = blend(self.mean_s, seconds / calls as f64);
        if work_flops.is_finite() && work_flops > 0.0 {
            self.flops = blend(self.flops, work_flops / seconds);
        }
        self.calls = self.calls.saturating_add(weighing);
    }
}

/// A server as known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerView {
    /// Its identifier.
    pub node: NodeId,
    /// Its name, unique in the grid; ties between servers are broken by it.
    pub name: String,
    /// Where it can be dialled.
    pub address: String,
    /// Tasks it runs at a time.
    pub slots: u32,
    /// It talks to clients only: whatever moves between it and another server goes through the client.
    pub plain: bool,
    /// Bound on its store, bytes.
    pub memory_bytes: u64,
    /// Measured speed of one slot, floating-point operations per second; `None` before it was measured.
    pub speed_flops: Option<f64>,
    /// Functions offered (`module/function`), with what is known of their speed here.
    pub functions: BTreeMap<String, FunctionRate>,
    /// Work already promised to other groups: seconds from now until each slot is free, ascending, `slots` long.
    pub busy_s: Vec<f64>,
}

/// The grid as known, seen from one client. Servers are in order of name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GridView {
    /// The servers.
    pub servers: Vec<ServerView>,
    /// Links between the client and each server, both ways alike.
    pub client_links: Vec<LinkEstimate>,
    /// `links[i][j]`: from server i to server j; `None` if they cannot talk and data go through the client.
    pub links: Vec<Vec<Option<LinkEstimate>>>,
}

impl GridView {
    /// Index of that server.
    pub fn server(&self, node: NodeId) -> Option<usize> {
        self.servers.iter().position(|server| server.node == node)
    }
}

/// Cost model of one function on one server, looked up once so that it can be asked for many tasks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CallCost {
    /// Seconds that a call takes whatever its work.
    pub overhead_s: f64,
    /// Work done per second, floating-point operations per second.
    pub flops: f64,
    /// Seconds of a call that states no work.
    pub unstated_s: f64,
}

impl CallCost {
    /// Predicted seconds of one call: overhead + work / flops.
    pub fn seconds(&self, work_flops: Option<f64>) -> f64 {
        match work_flops {
            Some(work) => self.overhead_s + work / self.flops,
            None => self.unstated_s,
        }
    }
}

impl ServerView {
    /// The cost model of `function` here, `None` if the server does not offer it.
    pub fn call_cost(&self, function: &str) -> Option<CallCost> {
        let rate = self.functions.get(function)?;
        let speed = self.speed_flops.unwrap_or(SPEED_FLOPS_DEFAULT);
        Some(CallCost {
            overhead_s: rate.overhead_s,
            flops: rate.flops.unwrap_or(speed),
            unstated_s: rate.mean_s.unwrap_or(rate.overhead_s + WORK_FLOPS_DEFAULT / speed),
        })
    }

    /// Predicted seconds of one call of `function` with that work, `None` if the server does not offer it.
    pub fn task_seconds(&self, function: &str, work_flops: Option<f64>) -> Option<f64> {
        Some(self.call_cost(function)?.seconds(work_flops))
    }
}
