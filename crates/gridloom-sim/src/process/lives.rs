//! How processes end and start anew: with their hosts, by faults, at the end of the run, or as their code returns.

use gridloom_core::base::{NodeId, Time};
use gridloom_core::flow::HostIndex;
use gridloom_core::platform::HostId;
use gridloom_core::process::PeerId;

use super::kernel::{Process, ProcessId, Wait};
use crate::profiles::HOST_IS_OFF;
use crate::simulation::{Occurrence, Purpose, Simulation};

impl Simulation {
    /// The processes of a host that is off end.
    pub(crate) fn fell_processes(&mut self, host: HostId) {
        for index in 0..self.processes.all.len() {
            let process = &self.processes.all[index];
            if process.host == host && !process.is_over && !matches!(process.wait, Some(Wait::Start)) {
                let process = ProcessId(index as u32);
                self.process_mut(process).is_felled = true;
                self.kill_process(process, HOST_IS_OFF);
            }
        }
    }

    /// Whether a process may start anew: by a fault to come, or with its host.
    pub(super) fn may_restart_process(&self) -> bool {
        let comes_on = |process: &Process| {
            self.processes.hosts_on_due > 0 || self.timeline.will_turn_on(HostIndex(process.host.0))
        };
        let may = |process: &Process| process.waits_for_host() && comes_on(process);
        self.processes.restarts_due > 0 || self.processes.all.iter().any(may)
    }

    /// A host is on again: those that were to start meanwhile do, and others start anew.
    pub(crate) fn raise_processes(&mut self, host: HostId) {
        for index in 0..self.processes.all.len() {
            let now = self.now;
            let process = &mut self.processes.all[index];
            if process.host != host {
                continue;
            }
            let starts = process.waits_for_host();
            process.is_felled = false;
            if starts {
                let spec = process.spec.clone();
                let anew = self.add_process(host, spec, now);
                self.process_mut(anew).restarts = true;
                self.process_mut(ProcessId(index as u32)).is_replaced = true;
                self.processes.reborn.push((anew, ProcessId(index as u32)));
            } else if process.start <= now {
                self.wake_if(ProcessId(index as u32), |wait| matches!(wait, Wait::Start));
            }
        }
    }

    /// The clients of a process that is gone are gone too.
    fn end_clients(&mut self, id: ProcessId, why: &str) {
        let own = self.processes.clients.iter().filter(|(_, owner)| **owner == id);
        let own: Vec<NodeId> = own.map(|(client, _)| *client).collect();
        own.into_iter().for_each(|client| self.end(client, why));
    }

    /// A process is killed: its clients die with it, whatever its code still does.
    pub(crate) fn kill_process(&mut self, id: ProcessId, why: &str) {
        if self.process(id).is_over {
            return;
        }
        self.end_process(id, why);
        self.end_clients(id, why);
    }

    /// A process does nothing until it may go on; what comes waits. A computation that is under way goes on to its end.
    pub(crate) fn stop_process(&mut self, id: ProcessId) {
        self.process_mut(id).is_stopped = true;
    }

    /// It goes on.
    pub(crate) fn resume_process(&mut self, id: ProcessId) {
        let process = self.process_mut(id);
        process.is_stopped = false;
        if std::mem::take(&mut process.is_due) {
            self.wake_if(id, |_| true);
        }
    }

    /// Whether a fault has stopped it, for ever as nothing can happen any more.
    pub(crate) fn is_stopped(&self, id: ProcessId) -> bool {
        self.process(id).is_stopped
    }

    /// A process is killed and starts anew.
    pub(crate) fn restart_process(&mut self, id: ProcessId) {
        let process = self.process(id);
        let (host, spec, restarts, now) = (process.host, process.spec.clone(), process.restarts, self.now);
        self.kill_process(id, "the process was killed");
        let anew = self.add_process(host, spec, now);
        self.process_mut(anew).restarts = restarts;
        self.process_mut(id).is_replaced = true;
        self.processes.reborn.push((anew, id));
    }

    /// It must return: whatever it calls fails from now on.
    pub(crate) fn end_process(&mut self, id: ProcessId, why: &str) {
        self.trace.process(b'x', self.now, id.0);
        self.process_mut(id).is_stopped = false;
        if matches!(self.process(id).wait, Some(Wait::Computation { .. })) {
            self.stop_computing(id);
        }
        self.process_mut(id).end.get_or_insert_with(|| why.to_string());
        self.wake_if(id, |_| true);
    }

    fn stop_computing(&mut self, id: ProcessId) {
        let is_its = |purpose: &Purpose| matches!(purpose, Purpose::Computation { process, .. } if *process == id);
        let own = self.purposes.iter().find(|(_, purpose)| is_its(purpose)).map(|(action, _)| *action);
        if let Some(action) = own {
            self.synchronise();
            self.engine.cancel(action);
            self.purposes.remove(&action);
            self.processes.pending -= 1;
        }
    }

    /// The simulation cannot go on as it should: every process must return.
    pub(crate) fn fail(&mut self, why: String) {
        for index in 0..self.processes.all.len() as u32 {
            self.end_process(ProcessId(index), "the simulation has failed");
        }
        self.failure.get_or_insert(why);
    }

    /// What nobody can watch must not go on.
    pub(crate) fn fail_if_unseen(&mut self) {
        if let Some(why) = self.watch.failure.take() {
            self.fail(why);
        }
    }

    pub(crate) fn kill_process_at(&mut self, id: ProcessId, at: Time) {
        self.push_process(at, Occurrence::ProcessKilled { process: id });
    }

    /// Its code has returned.
    pub(crate) fn process_over(&mut self, id: ProcessId) {
        self.trace.process(b'-', self.now, id.0);
        let process = self.process_mut(id);
        process.is_over = true;
        process.inbox.clear();
        self.processes.listening.retain(|_, listener| *listener != id);
        self.end_clients(id, "the process has ended");
        self.processes.clients.retain(|_, owner| *owner != id);
        let peers = 0..self.process(id).peers.len() as u64;
        for peer in peers {
            self.process_close(id, PeerId(peer));
        }
    }

    /// The time is over that the run was given.
    pub(crate) fn on_until(&mut self) {
        let left = self.waiting();
        if !left.is_empty() {
            let seconds = self.now.seconds();
            self.fail(format!("the run was to end at {seconds} s, and processes still ran: {}", left.join(", ")));
        }
    }
}
