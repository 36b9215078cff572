//! Leak check: counts the state that a client holds when nothing is in progress. Invariants require it to be empty.

use super::Client;

impl Client {
    /// Returns the numbers of remembered tasks, data and other records of its program, by kind. All are 0 once every
    /// task has ended and every handle is released.
    pub fn leftovers(&self) -> [(&'static str, usize); 14] {
        let (waiting, astray) = self.supplies.counts();
        let (asks, found) = self.names.counts();
        [
            ("tasks", self.tasks.len()),
            ("calls", self.calls.len()),
            ("data", self.data.len()),
            ("groups", self.groups.len()),
            ("calls and plans that wait for nodes", self.waiting_calls.len() + self.early_plans.len()),
            ("data that wait to be placed", self.following.early.len()),
            ("servers with messages that wait for a connection", self.contacts.awaited()),
            ("data that a server waits for", waiting),
            ("data with interrupted transfers", astray),
            ("data of calls", self.calls.data()),
            ("tasks in queues", self.queues.len()),
            ("requests about names", asks),
            ("shared data that are read", found),
            ("arguments for plain servers", self.supplies.copies.len()),
        ]
    }
}
