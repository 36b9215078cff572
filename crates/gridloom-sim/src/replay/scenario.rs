//! A checked scenario: every name is known, every number is in range, and no activity waits for itself.
//!
//! The format is JSON, as described in `docs/commands/sim.md`. All problems of a file are found in one pass, each with its place.

use std::collections::BTreeMap;
use std::fmt;

use gridloom_flow::timeline::Quantity;
use gridloom_flow::{HostIndex, LinkIndex, NetworkModel};

#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The network model: how transfers share links.
    pub model: NetworkModel,
    /// Speed of a core in flops per second and number of cores, for each host.
    pub hosts: Vec<(f64, u32)>,
    /// Link directions; the first is the link from any host to itself.
    pub links: Vec<Link>,
    /// Routes by source and destination.
    pub routes: BTreeMap<(HostIndex, HostIndex), Route>,
    /// Changes over time.
    pub profiles: Vec<Profile>,
    /// Activities. Those with equal start times start in this order.
    pub activities: Vec<Activity>,
}

/// A link, or one direction of a split-duplex link.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    pub name: String,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Seconds.
    pub latency_s: f64,
    pub policy: LinkPolicy,
}

/// How flows share a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkPolicy {
    /// The flows share its bandwidth.
    Shared,
    /// Each flow can use its whole bandwidth.
    FatPipe,
}

/// The links of a route, in order.
pub type Route = Vec<LinkIndex>;

/// A profile: how a quantity changes over time.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The quantity that changes. A split-duplex link has two directions, with a profile each.
    pub quantity: Quantity,
    /// Dates in seconds, with the new values.
    pub events: Vec<(f64, f64)>,
    /// If set, the profile restarts this long after its last event, seconds.
    pub loop_after_s: Option<f64>,
}

/// A transfer or an execution.
#[derive(Clone, PartialEq, Debug)]
pub struct Activity {
    pub name: String,
    /// Earliest start, seconds.
    pub start_s: f64,
    /// Numbers of the activities that must end first.
    pub after: Vec<usize>,
    pub kind: Kind,
}

/// The kind of an activity, with its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Transfer {
        src: HostIndex,
        dst: HostIndex,
        size_bytes: f64,
        /// Maximum rate, bytes per second.
        rate_max: f64,
    },
    Execution {
        host: HostIndex,
        /// Floating-point operations per thread.
        work_flops: f64,
        /// Weight of its share of the host.
        priority: f64,
        /// Maximum rate, flops per second.
        bound_flops: f64,
        /// Number of cores that it can use.
        threads: u32,
    },
}

/// The problems of a file, each with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}
