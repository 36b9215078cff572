//! What a server still remembers of its clients when nothing is under way: for invariants, which want it to be nothing.

use super::*;

impl Server {
    /// What it remembers of tasks and data, by kind: all 0 once every client has released everything, or is gone.
    pub fn leftovers(&self) -> [(&'static str, usize); 7] {
        [
            ("tasks", self.executor.len()),
            ("data", self.replicas.len()),
            ("bytes", self.replicas.used_bytes() as usize),
            ("requests for unknown data", self.replicas.unknown()),
            ("data waited for", self.awaited.len()),
            ("addresses dialled for data", self.dialling.len()),
            ("clients with transfers to report", self.transfers.len()),
        ]
    }
}
