//! Calls of processes, and events that resume them. Connects the process table and the sockets with the rest of a simulation.

use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{NodeId, Time};
use gridloom_platform::HostId;
use gridloom_process::{PeerId, ProcessError, ProcessMessage, ProcessSpec};

use super::id::ProcessId;
use super::table::{Process, Wait};
use crate::network::{MessageFlow, Wake};
use crate::observe::Lane;
use crate::simulation::Simulation;

/// Maximum number of waiting processes that are listed.
const WAITING_LISTED_MAX: usize = 8;

impl Simulation {
    /// Adds a process on a host. It waits to be started.
    pub(crate) fn add_process(&mut self, host: HostId, spec: ProcessSpec, start: Time) -> ProcessId {
        self.sockets.add(host, &spec);
        self.processes.add(&mut self.kernel, host, spec, start)
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        self.processes.process(id)
    }

    /// Blocks a process, at most until `until`.
    pub(crate) fn process_waits(&mut self, id: ProcessId, wait: Wait, until: Option<Time>) {
        let comes_from_outside =
            matches!(wait, Wait::Incoming | Wait::Room { .. } | Wait::Connection { .. } | Wait::Event { .. });
        let what = match comes_from_outside && self.kernel.instruments().watch.is_on() {
            true => self.wait_text(id, &wait),
            false => String::new(),
        };
        self.processes.wait(&mut self.kernel, id, wait, &what);
        if let Some(until) = until {
            self.processes.limit_wait(&mut self.kernel, id, until);
        }
    }

    /// Describes what a process waits for.
    fn wait_text(&self, id: ProcessId, wait: &Wait) -> String {
        let process = self.process(id);
        match wait {
            _ if process.is_stopped() => "being resumed: it was paused or hangs".into(),
            Wait::Incoming => match process.expected() {
                (None, _) => "a message".into(),
                (Some(kind), None) => format!("a message '{kind}'"),
                (Some(kind), Some(peer)) => format!("a message '{kind}' of {}", self.sockets.describe(id, peer)),
            },
            Wait::Room { peer } => format!("{} to receive what was sent to it", self.sockets.describe(id, *peer)),
            Wait::Connection { host, port } => format!("a connection to {host}:{port}"),
            Wait::Event { .. } => "a result of the grid".into(),
            Wait::Computation { .. } => "the end of its computation".into(),
            Wait::Start if self.hosts.is_off(process.host) => "its host to be on".into(),
            Wait::Start | Wait::Time => "its time".into(),
        }
    }

    /// Describes what a process currently waits for.
    pub(super) fn process_wait_text(&self, id: ProcessId) -> String {
        let wait = self.process(id).wait.as_ref();
        wait.map_or_else(|| "its turn".into(), |wait| self.wait_text(id, wait))
    }

    /// Describes the processes that have not ended and what each waits for. The list is truncated if there are many.
    pub fn waiting(&self) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        for (id, process) in self.processes.unfinished() {
            if told.len() == WAITING_LISTED_MAX {
                told.push("others".into());
                break;
            }
            let what = self.process_wait_text(id);
            told.push(format!("{}@{} (waits for {what})", process.spec.function, process.spec.host));
        }
        told
    }

    /// Reports whether a waiting process may ever resume, as far as this is known without inspecting the grid's machines.
    pub(crate) fn may_wake(&self) -> bool {
        let comes_on = |host| self.hosts.is_off(host) && self.kernel.will_turn_on(host);
        self.kernel.has_something_for_processes()
            || self.processes.wait_for_events()
            || !self.hosts.are_on() && self.processes.wait_for_host(comes_on)
            || self.sockets.has_stopped()
            || self.routes.holds_process_event()
    }

    /// Resumes a process if it waits for this event.
    fn wake(&mut self, wake: Wake) {
        let (kernel, processes) = (&mut self.kernel, &mut self.processes);
        match wake {
            Wake::Incoming(id) => processes.wake_if(kernel, id, |wait| matches!(wait, Wait::Incoming)),
            Wake::Room(id, to) => {
                processes.wake_if(kernel, id, |wait| matches!(wait, Wait::Room { peer } if *peer == to));
            }
            Wake::Connected(id) => processes.wake_if(kernel, id, |wait| matches!(wait, Wait::Connection { .. })),
        }
    }

    /// Begins to connect. The process waits for the result.
    pub(crate) fn begin_process_dial(&mut self, id: ProcessId, name: &str, port: u16) -> Result<(), ProcessError> {
        self.sockets.dial(&mut self.kernel, &mut self.routes, &self.platform, id, name, port)?;
        self.process_waits(id, Wait::Connection { host: name.into(), port }, None);
        Ok(())
    }

    pub(crate) fn on_process_dialled(&mut self, id: ProcessId, host: HostId, name: String, port: u16) {
        match self.sockets.dialled(&self.routes, id, host, name, port) {
            Some(wake) => self.wake(wake),
            None => {
                let at = self.now() + DIAL_NS_MAX;
                self.processes.limit_wait(&mut self.kernel, id, at);
            }
        }
    }

    /// Sends a message for a process. Returns it if the process has to wait first.
    pub(crate) fn process_send(
        &mut self,
        id: ProcessId,
        peer: PeerId,
        lane: Lane,
        letter: ProcessMessage,
    ) -> Result<Option<ProcessMessage>, ProcessError> {
        let refused = self.sockets.send(&mut self.kernel, &mut self.routes, id, peer, lane, letter)?;
        if refused.is_none() {
            self.processes.note_activity(self.kernel.now());
        }
        Ok(refused)
    }

    pub(crate) fn process_closes(&mut self, id: ProcessId, peer: PeerId) {
        self.sockets.close(&mut self.kernel, &mut self.routes, id, peer);
    }

    pub(crate) fn on_letter(&mut self, flow: MessageFlow) {
        let wakes = self.sockets.message_arrived(&mut self.kernel, flow);
        wakes.into_iter().for_each(|wake| self.wake(wake));
    }

    pub(crate) fn on_process_closed(&mut self, connection: u32, end: u8) {
        let wakes = self.sockets.closed(&mut self.routes, connection, end);
        wakes.into_iter().for_each(|wake| self.wake(wake));
    }

    pub(crate) fn on_process_due(&mut self, id: ProcessId, turn: u64) {
        let is_off = self.hosts.is_off(self.process(id).host);
        self.processes.on_time_limit(&mut self.kernel, id, turn, is_off);
    }

    /// Starts a client for a process.
    pub(crate) fn add_client_of(&mut self, id: ProcessId, name: &str) -> NodeId {
        let client = self.add_client(self.process(id).host, name);
        self.processes.add_client(id, client);
        client
    }

    /// Makes a process compute some floating-point operations; `block` names the measured block, if it is one.
    pub(crate) fn begin_process_computation(&mut self, id: ProcessId, block: Option<&str>, flops: f64) {
        self.processes.compute(&mut self.kernel, id, block, flops);
    }

    /// Returns the charge for a measured block that a process has run; `None` if it is not known, in which case the
    /// simulation has failed.
    pub(crate) fn process_charge(&mut self, id: ProcessId, block: &str, real_ns: u64) -> Option<f64> {
        self.processes.charge(id, block, real_ns).map_err(|why| self.fail(why)).ok()
    }

    /// Fails the simulation: every process must return.
    fn fail(&mut self, why: String) {
        self.processes.fail(&mut self.kernel, why);
    }

    /// Fails the simulation if its observer could not continue.
    pub(crate) fn fail_with_observer(&mut self) {
        if let Some(why) = self.kernel.instruments_mut().watch.take_failure() {
            self.fail(why);
        }
    }

    /// Handles the time limit of the run.
    pub(crate) fn on_time_limit(&mut self) {
        let left = self.waiting();
        if !left.is_empty() {
            let seconds = self.now().seconds();
            self.fail(format!(
                "the run was to end at {seconds} s, but processes are still running: {}",
                left.join(", ")
            ));
        }
    }
}
