//! What a scenario says, checked: every name is known, every number has its sign, and nothing waits for itself.
//!
//! The format is JSON, as `docs/commands/sim.md` describes it. All problems of a file are found in one reading, each
//! with its place.

use std::collections::BTreeMap;
use std::fmt;

use gridloom_flow::timeline::Quantity;
use gridloom_flow::{HostIndex, LinkIndex, NetworkModel};

#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// How transfers share links.
    pub model: NetworkModel,
    /// Speed of a core in flops per second and the number of cores, of each host.
    pub hosts: Vec<(f64, u32)>,
    /// Link directions; the first is that from any host to itself.
    pub links: Vec<Link>,
    /// By source and destination.
    pub routes: BTreeMap<(HostIndex, HostIndex), Route>,
    /// What changes in time.
    pub profiles: Vec<Profile>,
    /// In order of their starts, where these are the same.
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
    /// Together.
    Shared,
    /// Not at all.
    FatPipe,
}

/// Links in order.
pub type Route = Vec<LinkIndex>;

/// The course of a quantity.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// What changes. A split-duplex link has two directions, with a profile each.
    pub quantity: Quantity,
    /// Dates in seconds, and values.
    pub events: Vec<(f64, f64)>,
    /// Starts again, so long after its last event.
    pub loop_after_s: Option<f64>,
}

/// Something that takes time.
#[derive(Clone, PartialEq, Debug)]
pub struct Activity {
    pub name: String,
    /// Not before that date, seconds.
    pub start_s: f64,
    /// Not before these have ended, by number.
    pub after: Vec<usize>,
    pub kind: Kind,
}

/// What an activity does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Transfer {
        src: HostIndex,
        dst: HostIndex,
        size_bytes: f64,
        /// Never faster than that, bytes per second.
        rate_max: f64,
    },
    Execution {
        host: HostIndex,
        /// Floating-point operations of each thread.
        work_flops: f64,
        /// Weight of its share.
        priority: f64,
        /// Never faster than that, flops per second.
        bound_flops: f64,
        /// Cores that it can use.
        threads: u32,
    },
}

/// What is wrong with a file: each with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}
