//! What a server remembers of its clients. It is counted for invariants, as nothing may be left when nothing is under
//! way. It is told in words to a reader that looks why nothing goes on. Also what must hold of it at all times.

use super::Server;

impl Server {
    /// What it remembers of tasks and data, by kind: all 0 once every client has released everything, or is gone.
    pub fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let own = [
            ("objects", self.objects.len()),
            ("clients with transfers to report", self.reports.clients()),
            ("tasks called off", self.called_off.len()),
            ("tasks that wait for others", self.pauses.len()),
            ("shared data", self.shared.len()),
            ("shared data that are to be put", self.shared.expected()),
            ("shared data that are being written", self.shared.durable.len()),
        ];
        self.admission.leftovers().into_iter().chain(own).collect()
    }

    /// Where its tasks stand and what they wait for, a line each, after a line on its store.
    pub fn situation(&self) -> Vec<String> {
        self.admission.situation()
    }

    /// What must hold between handlings, of each of its parts.
    ///
    /// # Errors
    /// The sentence that does not hold.
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
