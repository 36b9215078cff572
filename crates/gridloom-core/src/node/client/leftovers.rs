//! What a client still remembers when nothing is under way: for invariants, which want it to be nothing.

use super::*;

impl Client {
    /// What it remembers of its program's tasks and data, by kind: all 0 once every task has ended and every handle is
    /// released.
    pub fn leftovers(&self) -> [(&'static str, usize); 10] {
        [
            ("tasks", self.tasks.len()),
            ("calls", self.calls.len()),
            ("data", self.data.len()),
            ("groups", self.groups.len()),
            ("commands before the first directory", self.early_calls.len() + self.early_plans.len()),
            ("data to be placed", self.early_placements.len()),
            ("servers with messages that wait for a connection", self.outbox.len()),
            ("data that a server waits for", self.unsupplied.len()),
            ("data that broke off on their way", self.astray.len()),
            ("data of calls", self.calls.data()),
        ]
    }
}
