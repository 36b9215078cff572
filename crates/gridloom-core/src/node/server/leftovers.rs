//! What a server remembers of its clients: counted for invariants, which want it to be nothing when nothing is under way,
//! and in words for whoever looks why nothing goes on.

use super::*;

impl Server {
    /// What it remembers of tasks and data, by kind: all 0 once every client has released everything, or is gone.
    pub fn leftovers(&self) -> [(&'static str, usize); 8] {
        [
            ("tasks", self.executor.len()),
            ("objects", self.objects.len()),
            ("data", self.replicas.len()),
            ("bytes", self.replicas.used_bytes() as usize),
            ("requests for unknown data", self.replicas.unknown()),
            ("data waited for", self.awaited.len()),
            ("addresses dialled for data", self.dialling.len()),
            ("clients with transfers to report", self.transfers.len()),
        ]
    }

    /// Where its tasks stand and what they wait for, a line each, after a line on its store.
    pub fn situation(&self) -> Vec<String> {
        let (used, limit) = (self.replicas.used_bytes(), self.replicas.limit_bytes());
        let store = format!("{}: holds {used} of {limit} bytes in {} data", self.config.name, self.replicas.len());
        let input = |datum: DatumId| match (self.replicas.is_here(datum), self.awaited.get(&datum)) {
            (true, _) => format!("{datum} (here)"),
            (false, Some(awaited)) if awaited.from == self.config.id => format!("{datum} (evicted)"),
            (false, Some(awaited)) if awaited.asked => format!("{datum} (asked of {})", awaited.from),
            (false, Some(awaited)) => format!("{datum} (to come from {})", awaited.from),
            (false, None) if self.executor.makes(datum) => format!("{datum} (made here)"),
            (false, None) => format!("{datum} (from nobody known)"),
        };
        let tasks = self.executor.tasks().map(|entry| {
            let reads: Vec<String> = entry.task.inputs().collect::<BTreeSet<_>>().into_iter().map(input).collect();
            let makes: Vec<String> = entry.task.outputs.iter().map(|output| output.datum.to_string()).collect();
            format!("  {} {:?}: reads {}; makes {}", entry.task.id, entry.state, reads.join(", "), makes.join(", "))
        });
        std::iter::once(store).chain(tasks).collect()
    }
}
