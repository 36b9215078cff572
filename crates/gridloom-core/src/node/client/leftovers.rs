//! What a client still remembers when nothing is under way: for invariants, which want it to be nothing.

use super::Client;

impl Client {
    /// What it remembers of its program's tasks and data, by kind: all 0 once every task has ended and every handle is
    /// released.
    pub fn leftovers(&self) -> [(&'static str, usize); 14] {
        let (waiting, astray) = self.supplies.counts();
        let (asks, found) = self.names.counts();
        [
            ("tasks", self.tasks.len()),
            ("calls", self.calls.len()),
            ("data", self.data.len()),
            ("groups", self.groups.len()),
            ("calls and plans that wait for nodes", self.waiting_calls.len() + self.early_plans.len()),
            ("data to be placed", self.following.early.len()),
            ("servers with messages that wait for a connection", self.contacts.awaited()),
            ("data that a server waits for", waiting),
            ("data that broke off on their way", astray),
            ("data of calls", self.calls.data()),
            ("tasks in queues", self.queues.len()),
            ("questions about names", asks),
            ("shared data that are read", found),
            ("arguments for plain servers", self.supplies.copies.len()),
        ]
    }
}
