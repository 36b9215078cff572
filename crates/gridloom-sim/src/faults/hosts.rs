//! Hosts that compute slowly.

use gridloom_core::platform::HostId;

use crate::simulation::Simulation;

impl Simulation {
    /// From now on a host computes at that factor of its described speed: 0.1 for a tenth. Machines still react at once.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow(&mut self, host: HostId, factor: f64) {
        assert!(factor > 0.0 && factor.is_finite(), "a host's speed is scaled by a positive number, not {factor}");
        self.trace.scale(self.now, host.0, factor);
        self.speed_scales.insert(host, factor);
        self.rescale(host);
    }
}
