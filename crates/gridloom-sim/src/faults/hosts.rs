//! Hosts that compute slowly, and disks that read and write slowly.

use gridloom_platform::HostId;

use crate::simulation::Simulation;

impl Simulation {
    /// From now on a host computes at that factor of its described speed: 0.1 for a tenth. Machines still react at once.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow(&mut self, host: HostId, factor: f64) {
        self.hosts.slow(&mut self.kernel, host, factor);
    }

    /// From now on a host's disk reads and writes at that factor of its described rate: 0.1 for a tenth.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow_disk(&mut self, host: HostId, factor: f64) {
        self.hosts.slow_disk(&mut self.kernel, host, factor);
    }
}
