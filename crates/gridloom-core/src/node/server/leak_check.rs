//! Leak check and diagnostics of a server: counts of the state that it keeps for its clients, which must be 0 when the
//! server is idle; a text report for finding the cause of a stall; and its invariants.

use super::Server;

impl Server {
    /// Returns the number of entries about tasks and data, by kind: all 0 once every client has released everything or is gone.
    pub fn leak_counts(&self) -> Vec<(&'static str, usize)> {
        let own = [
            ("objects", self.objects.len()),
            ("clients with transfers to report", self.reports.clients()),
            ("tasks to end early", self.early_ends.len()),
            ("tasks that wait for others", self.pauses.len()),
            ("shared data", self.shared.len()),
            ("expected puts of shared data", self.shared.expected()),
            ("shared data being written", self.shared.durable.len()),
        ];
        self.admission.leak_counts().into_iter().chain(own).collect()
    }

    /// Returns the state of each task and the data for which it waits, one line per task, after a line about the store.
    pub fn stall_report(&self) -> Vec<String> {
        self.admission.stall_report()
    }

    /// Checks the invariants of all parts, which hold between two inputs.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn check(&self) -> Result<(), String> {
        self.admission.check()?;
        self.registering.check()?;
        self.links.check()?;
        self.learning.check()?;
        self.reports.check()?;
        self.objects.check()?;
        self.shared.check(&self.admission)?;
        self.outputs.check()
    }
}
