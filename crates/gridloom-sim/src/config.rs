//! The configuration of a simulation.

use std::collections::BTreeMap;

use gridloom_base::PartSizes;
use gridloom_base::limits::{EVENTS_AT_ONE_TIME_MAX, PARTS};
use gridloom_flow::NetworkModel;
use gridloom_platform::HostId;

use crate::memory::HostMemory;

/// The configuration of a simulation besides the platform.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Seed of all random draws. Part of the trace's hash.
    pub seed: u64,
    /// The network model: how flows share links.
    pub network: NetworkModel,
    /// Bytes added to each message and each small datum: headers of the frame and of the network.
    pub message_overhead_bytes: u64,
    /// Speed of the machine on which blocks of processes are measured, floating-point operations per second.
    pub reference_flops: f64,
    /// Disk rates, bytes per second; other hosts have 1 GB/s.
    pub disks: BTreeMap<HostId, f64>,
    /// The memories of hosts that page. Other hosts never page.
    pub memories: BTreeMap<HostId, HostMemory>,
    /// Start times of programs on hosts, seconds; other hosts have 2 ms.
    pub program_starts_s: BTreeMap<HostId, f64>,
    /// Upload limits, bytes per second: total rate at which a host sends bulk data to other hosts.
    pub upload_limits: BTreeMap<HostId, f64>,
    /// Shared storage: for each host, the host on which its servers share files.
    pub storages: BTreeMap<HostId, HostId>,
    /// Parts in which large data are sent. A server can forward the parts that it has received.
    pub parts: PartSizes,
    /// One in this many mappings takes seconds of virtual time; none if 0.
    pub slow_mappings_of: u64,
    /// Fraction of the host's speed that a function uses, by function name; others use all of it.
    pub efficiencies: BTreeMap<String, f64>,
    /// Events at one instant after which virtual time is considered to stand still.
    pub events_at_one_time_max: u64,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            seed: 0,
            network: NetworkModel::default(),
            message_overhead_bytes: 64,
            reference_flops: 1e9,
            disks: BTreeMap::new(),
            memories: BTreeMap::new(),
            program_starts_s: BTreeMap::new(),
            upload_limits: BTreeMap::new(),
            storages: BTreeMap::new(),
            parts: PARTS,
            slow_mappings_of: 0,
            efficiencies: BTreeMap::new(),
            events_at_one_time_max: EVENTS_AT_ONE_TIME_MAX,
        }
    }
}
