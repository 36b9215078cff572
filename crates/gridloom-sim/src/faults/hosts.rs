//! Slow hosts and slow disks.

use gridloom_platform::HostId;

use crate::simulation::Simulation;

impl Simulation {
    /// Sets a host's speed to `factor` times its described speed: 0.1 for a tenth. Machines still react without delay.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow(&mut self, host: HostId, factor: f64) {
        self.hosts.slow(&mut self.kernel, host, factor);
    }

    /// Sets the rate of a host's disk to `factor` times its described rate: 0.1 for a tenth.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow_disk(&mut self, host: HostId, factor: f64) {
        self.hosts.slow_disk(&mut self.kernel, host, factor);
    }
}
