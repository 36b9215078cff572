//! The current state of links and hosts: their capacities, and whether they are on.

use super::solver::{ConstraintIndex, Policy, Solver};

/// A link's index, in the order of calls to [`Resources::add_link`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkIndex(pub u32);

/// A host's index, in the order of calls to [`Resources::add_host`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostIndex(pub u32);

/// The links and hosts, with the solver that shares them.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    pub(super) solver: Solver,
    pub(super) links: Vec<Link>,
    pub(super) hosts: Vec<Host>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) constraint: ConstraintIndex,
    /// The last bandwidth that was positive.
    pub(super) bandwidth: f64,
    pub(super) latency_s: f64,
    pub(super) on: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) constraint: ConstraintIndex,
    /// Speed of one core at full speed, flops per second.
    pub(super) nominal_flops: f64,
    pub(super) cores: u32,
    /// Current factor that multiplies the nominal speed.
    pub(super) scale: f64,
    pub(super) on: bool,
}

impl Host {
    /// Returns the total speed of all cores, floating-point operations per second.
    pub(super) fn capacity(&self) -> f64 {
        f64::from(self.cores) * self.scale * self.nominal_flops
    }
}

impl Resources {
    pub fn new() -> Resources {
        Resources::default()
    }

    /// Adds one direction of a link; bytes per second and seconds.
    pub fn add_link(&mut self, bandwidth: f64, latency_s: f64, policy: Policy) -> LinkIndex {
        let constraint = self.solver.add_constraint(bandwidth, policy);
        self.links.push(Link { constraint, bandwidth, latency_s, on: true });
        LinkIndex(self.links.len() as u32 - 1)
    }

    /// Adds a host; floating-point operations per second per core.
    pub fn add_host(&mut self, speed_flops: f64, cores: u32) -> HostIndex {
        let constraint = self.solver.add_constraint(f64::from(cores) * speed_flops, Policy::Shared);
        self.hosts.push(Host { constraint, nominal_flops: speed_flops, cores, scale: 1.0, on: true });
        HostIndex(self.hosts.len() as u32 - 1)
    }

    pub(super) fn link(&self, link: LinkIndex) -> &Link {
        &self.links[link.0 as usize]
    }

    pub(super) fn host(&self, host: HostIndex) -> &Host {
        &self.hosts[host.0 as usize]
    }
}
