//! Ends and restarts of processes: with their hosts, by faults, at the end of the run, or when their code returns.

use gridloom_base::Time;
use gridloom_platform::HostId;

use super::id::ProcessId;

use crate::faults::Fault;
use crate::kernel::ScheduledEvent;
use crate::simulation::Simulation;

impl Simulation {
    /// Kills a process. Its clients die with it, whatever its code still does.
    pub(crate) fn kill_process(&mut self, id: ProcessId, why: &str) {
        if self.process(id).is_over() {
            return;
        }
        self.processes.end(&mut self.kernel, id, why);
        self.end_clients(id, why);
    }

    pub(crate) fn kill_process_at(&mut self, id: ProcessId, at: Time) {
        self.kernel.push(at, ScheduledEvent::ProcessKilled { process: id });
    }

    /// Tells a process to return. Its clients stay until it does.
    pub(crate) fn end_process(&mut self, id: ProcessId, why: &str) {
        self.processes.end(&mut self.kernel, id, why);
    }

    fn end_clients(&mut self, id: ProcessId, why: &str) {
        self.processes.clients_of(id).into_iter().for_each(|client| self.end_node(client, why));
    }

    /// Kills and restarts a process.
    pub(crate) fn restart_process(&mut self, id: ProcessId) {
        let process = self.process(id);
        let (host, spec) = (process.host, process.spec.clone());
        self.kill_process(id, "the process was killed");
        let anew = self.add_process(host, spec, self.now());
        self.processes.set_restarts(anew, self.processes.restarts(id));
        self.processes.replace(id, anew);
    }

    /// Handles a process whose host is on again: starts it if it was due meanwhile, or restarts it.
    pub(crate) fn start_with_host(&mut self, id: ProcessId, host: HostId) {
        if self.process(id).host != host {
            return;
        }
        if let Some(spec) = self.processes.start_with_host(&mut self.kernel, id) {
            let anew = self.add_process(host, spec, self.now());
            self.processes.set_restarts(anew, true);
            self.processes.replace(id, anew);
        }
    }

    /// Reports whether any process may restart, by a future fault or with its host.
    pub(super) fn may_restart_process(&self) -> bool {
        let is_due = |is_it: fn(&Fault) -> bool| {
            self.kernel.queued().any(|occurrence| matches!(occurrence, ScheduledEvent::Strike(fault) if is_it(fault)))
        };
        let turns_on = is_due(|fault| matches!(fault, Fault::On(_)));
        is_due(Fault::restarts_process)
            || self.processes.restart_with_host(|host| turns_on || self.kernel.will_turn_on(host))
    }

    /// Handles a process whose code has returned.
    pub(crate) fn on_process_returned(&mut self, id: ProcessId) {
        self.kernel.record(|trace, now| trace.process(b'-', now, id.0));
        self.end_clients(id, "the process has ended");
        self.processes.on_returned(id);
        self.sockets.close_all(&mut self.kernel, &mut self.routes, id);
    }
}
