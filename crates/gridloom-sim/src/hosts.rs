//! Hosts: the current speed of processors and disks, and the hosts that are off.
//!
//! The engine treats a disk as another processor whose operations are bytes. Disks are numbered after all hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_flow::{HostIndex, Resources};
use gridloom_platform::{HostId, Platform};

use crate::kernel::Kernel;
use crate::memory::{Memories, PagedMemory};

/// Default rate of a disk, bytes per second.
pub(crate) const DISK_RATE_DEFAULT: f64 = 1e9;
/// Default start time of a called program, seconds: for its process, folder and files. Measured with `true` (`bench/README.md`).
const PROGRAM_START_S_DEFAULT: f64 = 2e-3;

#[derive(Debug)]
pub(crate) struct Hosts {
    /// Described speeds, by host number.
    speeds_flops: Vec<f64>,
    /// Described start times of programs, seconds.
    program_starts_s: BTreeMap<HostId, f64>,
    /// Slowdown factors set by faults.
    fault_factors: BTreeMap<HostId, f64>,
    /// Speed factors set by profiles.
    profile_factors: BTreeMap<HostId, f64>,
    off: BTreeSet<HostId>,
    memories: Arc<Memories>,
}

impl Hosts {
    /// Creates the engine's processors for the hosts of a platform. All hosts are on.
    pub(crate) fn new(
        platform: &Platform,
        disks: &BTreeMap<HostId, f64>,
        program_starts_s: BTreeMap<HostId, f64>,
        resources: &mut Resources,
    ) -> Hosts {
        for host in platform.hosts() {
            resources.add_host(host.speed_flops, host.cores);
        }
        for (number, _) in (0..).zip(platform.hosts()) {
            resources.add_host(disks.get(&HostId(number)).copied().unwrap_or(DISK_RATE_DEFAULT), 1);
        }
        let speeds_flops = platform.hosts().iter().map(|host| host.speed_flops).collect();
        let (fault_factors, profile_factors, off, memories) = Default::default();
        Hosts { speeds_flops, program_starts_s, fault_factors, profile_factors, off, memories }
    }

    /// Adds the memories of the hosts that page.
    pub(crate) fn with_memories(self, memories: Arc<Memories>) -> Hosts {
        Hosts { memories, ..self }
    }

    /// Returns the memory of a host, if it pages.
    pub(crate) fn memory(&self, host: HostId) -> Option<&PagedMemory> {
        self.memories.of(host)
    }

    /// Sets a host's speed to `factor` times its described speed.
    pub(crate) fn slow(&mut self, kernel: &mut Kernel, host: HostId, factor: f64) {
        assert!(factor > 0.0 && factor.is_finite(), "a host's speed is scaled by a positive number, not {factor}");
        kernel.record(|trace, now| trace.scale(now, host.0, factor));
        self.fault_factors.insert(host, factor);
        kernel.set_speed_scale(HostIndex(host.0), self.speed_scale(host));
    }

    /// Sets the factor by which a profile multiplies a host's speed.
    pub(crate) fn profile(&mut self, kernel: &mut Kernel, host: HostId, factor: f64) {
        self.profile_factors.insert(host, factor);
        kernel.set_speed_scale(HostIndex(host.0), self.speed_scale(host));
    }

    /// Sets the rate of a host's disk to `factor` times its described rate.
    pub(crate) fn slow_disk(&mut self, kernel: &mut Kernel, host: HostId, factor: f64) {
        assert!(factor > 0.0 && factor.is_finite(), "a disk's rate is scaled by a positive number, not {factor}");
        kernel.record(|trace, now| trace.scale_disk(now, host.0, factor));
        kernel.set_speed_scale(self.disk(host), factor);
    }

    /// Returns the engine's processor that represents the disk of a host.
    pub(crate) fn disk(&self, host: HostId) -> HostIndex {
        HostIndex(self.speeds_flops.len() as u32 + host.0)
    }

    /// Returns the cost of starting a program on a host, in operations. A slowed host also starts programs slowly.
    pub(crate) fn start_flops(&self, host: HostId) -> f64 {
        let start_s = self.program_starts_s.get(&host).copied().unwrap_or(PROGRAM_START_S_DEFAULT);
        start_s * self.speeds_flops[host.0 as usize]
    }

    /// Returns the speed that a server measures for its host.
    pub(crate) fn measured_flops(&self, host: HostId) -> f64 {
        // While the host has speed 0, its described speed is used.
        let scale = Some(self.speed_scale(host)).filter(|scale| *scale > 0.0).unwrap_or(1.0);
        scale * self.speeds_flops[host.0 as usize]
    }

    /// Returns the current factor of a host's described speed.
    fn speed_scale(&self, host: HostId) -> f64 {
        let of = |scales: &BTreeMap<HostId, f64>| scales.get(&host).copied().unwrap_or(1.0);
        of(&self.fault_factors) * of(&self.profile_factors)
    }

    /// Turns a host off. Returns true if it was on.
    pub(crate) fn turn_off(&mut self, host: HostId) -> bool {
        self.off.insert(host)
    }

    /// Turns a host on. Returns true if it was off.
    pub(crate) fn turn_on(&mut self, host: HostId) -> bool {
        self.off.remove(&host)
    }

    pub(crate) fn is_off(&self, host: HostId) -> bool {
        self.off.contains(&host)
    }

    /// Reports whether all hosts are on.
    pub(crate) fn are_on(&self) -> bool {
        self.off.is_empty()
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        let hosts = self.fault_factors.keys().chain(self.profile_factors.keys()).chain(&self.off);
        let last = hosts.max().map_or(0, |host| host.0 as usize + 1);
        assert!(last <= self.speeds_flops.len(), "a host of number {} is none of the platform's", last - 1);
        assert!(
            self.fault_factors.values().all(|factor| *factor > 0.0),
            "a fault slows a host down but does not stop it"
        );
    }
}

#[cfg(test)]
mod tests {
    use gridloom_flow::{FlowEngine, NetworkModel, Timeline};

    use super::*;
    use crate::instruments::Instruments;

    #[test]
    fn what_slows_a_host_down_multiplies_and_a_host_that_stands_measures_its_description() {
        let text = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '2Gf'\n";
        let platform = Platform::parse(text, "two.toml", &mut |_| Err("no files".into())).unwrap();
        let mut resources = Resources::new();
        let mut hosts = Hosts::new(&platform, &BTreeMap::new(), BTreeMap::new(), &mut resources);
        let engine = FlowEngine::new(resources, NetworkModel::default());
        let mut kernel = Kernel::new(engine, Timeline::new(), Instruments::new(0, 0));
        let b = HostId(1);
        hosts.slow(&mut kernel, b, 0.5);
        hosts.profile(&mut kernel, b, 0.5);
        assert_eq!((hosts.measured_flops(b), hosts.measured_flops(HostId(0))), (5e8, 1e9));
        hosts.profile(&mut kernel, b, 0.0);
        assert_eq!((hosts.measured_flops(b), hosts.disk(b)), (2e9, HostIndex(3)));
        assert!(hosts.turn_off(b) && hosts.is_off(b) && !hosts.are_on() && hosts.turn_on(b));
        hosts.check();
    }
}
