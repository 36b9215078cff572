//! Links and hosts as they are now: their capacities, and whether they are on.

use super::solver::{ConstraintIndex, Policy, Solver};

/// A link, by order of [`Resources::add_link`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkIndex(pub u32);

/// A host, by order of [`Resources::add_host`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostIndex(pub u32);

/// What there is to share.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    pub(super) solver: Solver,
    pub(super) links: Vec<Link>,
    pub(super) hosts: Vec<Host>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) constraint: ConstraintIndex,
    /// The last that was positive.
    pub(super) bandwidth: f64,
    pub(super) latency_s: f64,
    pub(super) on: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) constraint: ConstraintIndex,
    /// Of one core, at full speed.
    pub(super) nominal_flops: f64,
    pub(super) cores: u32,
    /// What the nominal speed is multiplied by.
    pub(super) scale: f64,
    pub(super) on: bool,
}

impl Host {
    /// What all its cores can do, floating-point operations per second.
    pub(super) fn capacity(&self) -> f64 {
        f64::from(self.cores) * self.scale * self.nominal_flops
    }
}

impl Resources {
    pub fn new() -> Resources {
        Resources::default()
    }

    /// Adds a link direction; bytes per second and seconds.
    pub fn add_link(&mut self, bandwidth: f64, latency_s: f64, policy: Policy) -> LinkIndex {
        let constraint = self.solver.add_constraint(bandwidth, policy);
        self.links.push(Link { constraint, bandwidth, latency_s, on: true });
        LinkIndex(self.links.len() as u32 - 1)
    }

    /// Adds a host; floating-point operations per second of one core.
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
