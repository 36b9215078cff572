//! The processes of a simulation that use its grid: a process and its clients end together.

use gridloom_base::{NodeId, Time};

use super::Simulation;
use crate::kernel::ScheduledEvent;
use crate::process::ProcessId;

impl Simulation {
    /// Describes the processes that have not ended and what each waits for. The list is truncated if there are many.
    pub fn waiting(&self) -> Vec<String> {
        self.programs.waiting(&self.environment)
    }

    /// Starts a client for a process.
    pub(crate) fn add_client_of(&mut self, id: ProcessId, name: &str) -> NodeId {
        let client = self.add_client(self.programs.process(id).host, name);
        self.programs.add_client(id, client);
        client
    }

    /// Kills a process. Its clients die with it, whatever its code still does.
    pub(crate) fn kill_process(&mut self, id: ProcessId, why: &str) {
        if self.programs.process(id).is_over() {
            return;
        }
        self.programs.end(&mut self.environment.kernel, id, why);
        self.end_clients(id, why);
    }

    pub(crate) fn kill_process_at(&mut self, id: ProcessId, at: Time) {
        self.environment.kernel.push(at, ScheduledEvent::ProcessKilled { process: id });
    }

    /// Kills and restarts a process.
    pub(crate) fn restart_process(&mut self, id: ProcessId) {
        self.kill_process(id, "the process was killed");
        self.programs.replace(&mut self.environment.kernel, id);
    }

    /// Handles a process whose code has returned.
    pub(crate) fn on_process_returned(&mut self, id: ProcessId) {
        self.environment.kernel.record(|trace, now| trace.process(b'-', now, id.0));
        self.end_clients(id, "the process has ended");
        self.programs.on_returned(&mut self.environment, id);
    }

    fn end_clients(&mut self, id: ProcessId, why: &str) {
        self.programs.clients_of(id).into_iter().for_each(|client| self.end_node(client, why));
    }
}
