//! The user processes of a simulation with their sockets: their calls, and the events that resume them.
//!
//! [`Programs`] passes results between the process table and the sockets. Clients of the grid belong to the caller: if
//! a process ends, its caller ends the clients.

use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{NodeId, Time};
use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;
use gridloom_process::{Incoming, PeerId, ProcessError, ProcessMessage, ProcessSpec};

use super::id::ProcessId;
use super::measures::BlockCharges;
use super::table::{IdlePeriod, Process, Processes, Wait};
use crate::environment::Environment;
use crate::faults::Fault;
use crate::kernel::{Kernel, ScheduledEvent};
use crate::network::{MessageFlow, Route, Sockets, Wake};
use crate::observe::Lane;

/// Maximum number of waiting processes that are listed.
const WAITING_LISTED_MAX: usize = 8;

/// All processes and their sockets.
pub(crate) struct Programs {
    processes: Processes,
    sockets: Sockets,
}

impl Programs {
    /// Creates them without a process. `reference_flops` is the speed of the machine on which blocks are measured.
    pub(crate) fn new(reference_flops: f64) -> Programs {
        Programs { processes: Processes::new(reference_flops), sockets: Sockets::default() }
    }

    /// Adds a process on a host. It waits to be started.
    pub(crate) fn add(&mut self, kernel: &mut Kernel, host: HostId, spec: ProcessSpec, start: Time) -> ProcessId {
        self.sockets.add(host, &spec);
        self.processes.add(kernel, host, spec, start)
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        self.processes.process(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ProcessId> + use<> {
        self.processes.ids()
    }

    /// Returns the processes with the name `function@host` that were not replaced.
    pub(crate) fn named(&self, name: &str) -> Vec<ProcessId> {
        self.processes.named(name)
    }

    /// Returns the first ready process.
    pub(crate) fn first_ready(&self) -> Option<ProcessId> {
        self.processes.first_ready()
    }

    /// Removes and returns the first ready process.
    pub(crate) fn take_ready(&mut self) -> Option<ProcessId> {
        self.processes.take_ready()
    }

    /// Returns the period in which nothing but time limits of processes has happened.
    pub(crate) fn idle(&self) -> IdlePeriod {
        self.processes.idle()
    }

    /// Sets who decides the charge for measured blocks.
    pub(crate) fn set_measures(&mut self, measures: Box<dyn BlockCharges>) {
        self.processes.set_measures(measures);
    }

    /// Ends the recording of measured blocks. `watched` is the result of the observer.
    ///
    /// # Errors
    /// The reason why processes had to end early, or the failure of the measures, or else `watched`.
    pub(crate) fn finish(&mut self, watched: Result<(), String>) -> Result<(), String> {
        self.processes.finish(watched)
    }

    /// Counts a call of a process. If it must return, returns the reason and the number of its calls since then.
    pub(crate) fn count_call(&mut self, id: ProcessId) -> Option<(String, u32)> {
        self.processes.call(id)
    }

    /// Blocks a process, at most until `until`.
    pub(crate) fn wait(&mut self, environment: &mut Environment, id: ProcessId, wait: Wait, until: Option<Time>) {
        let comes_from_outside =
            matches!(wait, Wait::Incoming | Wait::Room { .. } | Wait::Connection { .. } | Wait::Event { .. });
        let what = match comes_from_outside && environment.kernel.instruments().watch.is_on() {
            true => self.text_of_wait(environment, id, &wait),
            false => String::new(),
        };
        self.processes.wait(&mut environment.kernel, id, wait, &what);
        if let Some(until) = until {
            self.processes.limit_wait(&mut environment.kernel, id, until);
        }
    }

    /// Describes what a process waits for.
    fn text_of_wait(&self, environment: &Environment, id: ProcessId, wait: &Wait) -> String {
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
            Wait::Start if environment.hosts.is_off(process.host) => "its host to be on".into(),
            Wait::Start | Wait::Time => "its time".into(),
        }
    }

    /// Describes what a process currently waits for.
    pub(crate) fn wait_text(&self, environment: &Environment, id: ProcessId) -> String {
        let wait = self.process(id).wait.as_ref();
        wait.map_or_else(|| "its turn".into(), |wait| self.text_of_wait(environment, id, wait))
    }

    /// Describes the processes that have not ended and what each waits for. The list is truncated if there are many.
    pub(crate) fn waiting(&self, environment: &Environment) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        for (id, process) in self.processes.unfinished() {
            if told.len() == WAITING_LISTED_MAX {
                told.push("others".into());
                break;
            }
            let what = self.wait_text(environment, id);
            told.push(format!("{}@{} (waits for {what})", process.spec.function, process.spec.host));
        }
        told
    }

    /// Reports whether a waiting process may ever resume, as far as this is known without inspecting the grid's machines.
    pub(crate) fn may_wake(&self, environment: &Environment) -> bool {
        let Environment { kernel, hosts, routes, .. } = environment;
        let comes_on = |host| hosts.is_off(host) && kernel.will_turn_on(host);
        kernel.has_something_for_processes()
            || self.processes.wait_for_events()
            || !hosts.are_on() && self.processes.wait_for_host(comes_on)
            || self.sockets.has_stopped()
            || routes.holds_process_event()
    }

    /// Resumes a process if it waits for this event.
    fn wake(&mut self, kernel: &mut Kernel, wake: Wake) {
        let processes = &mut self.processes;
        match wake {
            Wake::Incoming(id) => processes.wake_if(kernel, id, |wait| matches!(wait, Wait::Incoming)),
            Wake::Room(id, to) => {
                processes.wake_if(kernel, id, |wait| matches!(wait, Wait::Room { peer } if *peer == to));
            }
            Wake::Connected(id) => processes.wake_if(kernel, id, |wait| matches!(wait, Wait::Connection { .. })),
        }
    }

    /// Resumes the process that waits for an event of this client of the grid.
    pub(crate) fn wake_for_event(&mut self, kernel: &mut Kernel, client: NodeId) {
        self.processes.wake_for_event(kernel, client);
    }

    /// Makes a process listen on a port; 0 for any.
    pub(crate) fn listen(&mut self, id: ProcessId, port: u16) -> Result<u16, ProcessError> {
        self.sockets.listen(id, port)
    }

    /// Begins to connect. The process waits for the result.
    pub(crate) fn dial(
        &mut self,
        environment: &mut Environment,
        id: ProcessId,
        name: &str,
        port: u16,
    ) -> Result<(), ProcessError> {
        let Environment { kernel, routes, platform, .. } = environment;
        self.sockets.dial(kernel, routes, platform, id, name, port)?;
        self.wait(environment, id, Wait::Connection { host: name.into(), port }, None);
        Ok(())
    }

    /// Handles the result of a dial.
    pub(crate) fn on_dialled(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        id: ProcessId,
        host: HostId,
        name: String,
        port: u16,
    ) {
        match self.sockets.dialled(routes, id, host, name, port) {
            Some(wake) => self.wake(kernel, wake),
            None => {
                let at = kernel.now() + DIAL_NS_MAX;
                self.processes.limit_wait(kernel, id, at);
            }
        }
    }

    /// Takes the result of a dial.
    pub(crate) fn take_connected(&mut self, id: ProcessId) -> Option<Result<PeerId, ProcessError>> {
        self.sockets.take_connected(id)
    }

    /// Sends a message for a process. Returns it if the process has to wait first.
    pub(crate) fn send(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        id: ProcessId,
        peer: PeerId,
        lane: Lane,
        letter: ProcessMessage,
    ) -> Result<Option<ProcessMessage>, ProcessError> {
        let refused = self.sockets.send(kernel, routes, id, peer, lane, letter)?;
        if refused.is_none() {
            self.processes.note_activity(kernel.now());
        }
        Ok(refused)
    }

    /// Sets the messages that a process expects: their type and optionally their sender.
    pub(crate) fn expect(&mut self, id: ProcessId, kind: Option<&str>, from: Option<PeerId>) {
        self.processes.expect(id, kind, from);
    }

    /// Takes the next item that a process reads.
    pub(crate) fn read(&mut self, id: ProcessId) -> Option<Incoming> {
        self.sockets.read(id)
    }

    /// Closes a process's end of a connection.
    pub(crate) fn close(&mut self, Environment { kernel, routes, .. }: &mut Environment, id: ProcessId, peer: PeerId) {
        self.sockets.close(kernel, routes, id, peer);
    }

    /// Reports whether a connection of a process is closed and has nothing left to read.
    pub(crate) fn is_closed(&self, id: ProcessId, peer: PeerId) -> bool {
        self.sockets.is_closed(id, peer)
    }

    /// Returns the reason why a connection of a process is closed, as text.
    pub(crate) fn why_closed(&self, id: ProcessId, peer: PeerId) -> String {
        self.sockets.why_closed(id, peer)
    }

    /// Describes the other end of a connection as text.
    pub(crate) fn describe(&self, id: ProcessId, peer: PeerId) -> String {
        self.sockets.describe(id, peer)
    }

    /// Handles the arrival of a message.
    pub(crate) fn on_letter(&mut self, kernel: &mut Kernel, flow: MessageFlow) {
        let wakes = self.sockets.message_arrived(kernel, flow);
        wakes.into_iter().for_each(|wake| self.wake(kernel, wake));
    }

    /// Handles the notification that the other end of a connection is closed.
    pub(crate) fn on_closed(&mut self, Environment { kernel, routes, .. }: &mut Environment, connection: u32, end: u8) {
        let wakes = self.sockets.closed(routes, connection, end);
        wakes.into_iter().for_each(|wake| self.wake(kernel, wake));
    }

    /// Handles the end of a time limit, a sleep or a computation.
    pub(crate) fn on_due(&mut self, Environment { kernel, hosts, .. }: &mut Environment, id: ProcessId, turn: u64) {
        let is_off = hosts.is_off(self.process(id).host);
        self.processes.on_time_limit(kernel, id, turn, is_off);
    }

    /// Stops the messages on a route that is lost. They start over when the route is open again.
    pub(crate) fn stop_route(&mut self, Environment { kernel, routes, .. }: &mut Environment, route: Route) {
        self.sockets.stop_messages(kernel, routes, |way, _| way == route);
    }

    /// Stops the messages on all routes over a link that is off.
    pub(crate) fn stop_link(&mut self, Environment { kernel, routes, .. }: &mut Environment, link: LinkIndex) {
        self.sockets.stop_messages(kernel, routes, |_, path| path.crossed().any(|crossed| *crossed == link));
    }

    /// Restarts the messages whose route has opened.
    pub(crate) fn start_messages(&mut self, Environment { kernel, routes, .. }: &mut Environment) {
        self.sockets.start_messages(kernel, routes);
    }

    /// Registers a client of the grid that a process uses.
    pub(crate) fn add_client(&mut self, id: ProcessId, client: NodeId) {
        self.processes.add_client(id, client);
    }

    /// Returns the clients of a process.
    pub(crate) fn clients_of(&self, id: ProcessId) -> Vec<NodeId> {
        self.processes.clients_of(id)
    }

    /// Makes a process compute some floating-point operations; `block` names the measured block, if it is one.
    pub(crate) fn compute(&mut self, kernel: &mut Kernel, id: ProcessId, block: Option<&str>, flops: f64) {
        self.processes.compute(kernel, id, block, flops);
    }

    /// Returns the charge for a measured block that a process has run; `None` if it is not known, in which case the
    /// simulation has failed.
    pub(crate) fn charge(&mut self, kernel: &mut Kernel, id: ProcessId, block: &str, real_ns: u64) -> Option<f64> {
        self.processes.charge(id, block, real_ns).map_err(|why| self.fail(kernel, why)).ok()
    }

    /// Fails the simulation: every process must return.
    pub(crate) fn fail(&mut self, kernel: &mut Kernel, why: String) {
        self.processes.fail(kernel, why);
    }

    /// Fails the simulation if its observer could not continue.
    pub(crate) fn fail_with_observer(&mut self, kernel: &mut Kernel) {
        if let Some(why) = kernel.instruments_mut().watch.take_failure() {
            self.fail(kernel, why);
        }
    }

    /// Handles the time limit of the run.
    pub(crate) fn on_time_limit(&mut self, environment: &mut Environment) {
        let left = self.waiting(environment);
        if !left.is_empty() {
            let seconds = environment.kernel.now().seconds();
            let why =
                format!("the run was to end at {seconds} s, but processes are still running: {}", left.join(", "));
            self.fail(&mut environment.kernel, why);
        }
    }

    /// Tells a process to return. Its clients stay until it does.
    pub(crate) fn end(&mut self, kernel: &mut Kernel, id: ProcessId, why: &str) {
        self.processes.end(kernel, id, why);
    }

    /// Stops a process until it is resumed.
    pub(crate) fn stop(&mut self, id: ProcessId) {
        self.processes.stop(id);
    }

    /// Resumes a stopped process.
    pub(crate) fn resume(&mut self, kernel: &mut Kernel, id: ProcessId) {
        self.processes.resume(kernel, id);
    }

    /// Adds a process in place of one that was killed.
    pub(crate) fn replace(&mut self, kernel: &mut Kernel, id: ProcessId) {
        let restarts = self.processes.restarts(id);
        let spec = self.process(id).spec.clone();
        self.add_instead(kernel, id, spec, restarts);
    }

    fn add_instead(&mut self, kernel: &mut Kernel, before: ProcessId, spec: ProcessSpec, restarts: bool) {
        let (host, now) = (self.process(before).host, kernel.now());
        let anew = self.add(kernel, host, spec, now);
        self.processes.set_restarts(anew, restarts);
        self.processes.replace(before, anew);
    }

    /// Sets whether a process restarts with its host.
    pub(crate) fn set_restarts(&mut self, id: ProcessId, restarts: bool) {
        self.processes.set_restarts(id, restarts);
    }

    /// Takes the restarted processes, each with the one that it replaces.
    pub(crate) fn take_restarted(&mut self) -> Vec<(ProcessId, ProcessId)> {
        self.processes.take_restarted()
    }

    /// Handles a host that goes off. Returns the processes that must end with it.
    pub(crate) fn end_with_host(&mut self, host: HostId) -> Vec<ProcessId> {
        self.processes.end_with_host(host)
    }

    /// Handles a host that is on again: starts its processes that were due meanwhile, and restarts those that are
    /// configured to.
    pub(crate) fn start_with_host(&mut self, kernel: &mut Kernel, host: HostId) {
        for id in self.ids() {
            if self.process(id).host == host
                && let Some(spec) = self.processes.start_with_host(kernel, id)
            {
                self.add_instead(kernel, id, spec, true);
            }
        }
    }

    /// Reports whether any process may restart, by a future fault or with its host.
    pub(crate) fn may_restart(&self, kernel: &Kernel) -> bool {
        let is_due = |is_it: fn(&Fault) -> bool| {
            kernel.queued().any(|occurrence| matches!(occurrence, ScheduledEvent::Strike(fault) if is_it(fault)))
        };
        let turns_on = is_due(|fault| matches!(fault, Fault::On(_)));
        is_due(Fault::restarts_process)
            || self.processes.restart_with_host(|host| turns_on || kernel.will_turn_on(host))
    }

    /// Handles a process whose code has returned and whose clients are gone.
    pub(crate) fn on_returned(&mut self, Environment { kernel, routes, .. }: &mut Environment, id: ProcessId) {
        self.processes.on_returned(id);
        self.sockets.close_all(kernel, routes, id);
    }

    /// Panics if an invariant of a part does not hold.
    pub(crate) fn check(&self) {
        self.sockets.check();
        self.processes.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::two_hosts;
    use crate::kernel::{KernelEvent, Purpose};

    /// Returns two processes that have started, on two hosts. The first listens on port 1.
    fn started() -> (Environment, Programs, [ProcessId; 2]) {
        let (mut environment, mut programs) = (two_hosts(), Programs::new(1e9));
        let ids = [0, 1].map(|number| {
            let spec = ProcessSpec { function: format!("f{number}"), host: "h".into(), arguments: Vec::new() };
            programs.add(&mut environment.kernel, HostId(number), spec, Time::ZERO)
        });
        assert_eq!(run(&mut environment, &mut programs), ids);
        assert_eq!(programs.listen(ids[0], 1).unwrap(), 1);
        (environment, programs, ids)
    }

    /// Handles all events before 1 s. Returns the processes that became ready.
    fn run(environment: &mut Environment, programs: &mut Programs) -> Vec<ProcessId> {
        while environment.kernel.next_at().is_some_and(|at| at < Time(1_000_000_000)) {
            match environment.kernel.next() {
                Some(KernelEvent::Ended(actions)) => {
                    for action in actions {
                        let Some(Purpose::Letter(flow)) = environment.kernel.take_purpose(action) else { panic!() };
                        programs.on_letter(&mut environment.kernel, flow);
                    }
                }
                Some(KernelEvent::Due(_, ScheduledEvent::ProcessDue { process, turn })) => {
                    programs.on_due(environment, process, turn);
                }
                Some(KernelEvent::Due(_, ScheduledEvent::ProcessDialled { process, host, name, port })) => {
                    programs.on_dialled(environment, process, host, name, port);
                }
                Some(KernelEvent::Due(_, ScheduledEvent::ProcessClosed { connection, end })) => {
                    programs.on_closed(environment, connection, end);
                }
                other => panic!("{other:?}"),
            }
            programs.check();
        }
        std::iter::from_fn(|| programs.take_ready()).collect()
    }

    #[test]
    fn a_message_and_a_close_resume_the_process_that_waits_for_them() {
        let (mut environment, mut programs, [server, client]) = started();
        programs.wait(&mut environment, server, Wait::Incoming, None);
        programs.dial(&mut environment, client, "a", 1).unwrap();
        assert_eq!(programs.wait_text(&environment, client), "a connection to a:1");
        assert_eq!(run(&mut environment, &mut programs), [client]);
        let peer = programs.take_connected(client).unwrap().unwrap();
        let letter = ProcessMessage { kind: "x".into(), payload: vec![1; 8] };
        assert_eq!(programs.send(&mut environment, client, peer, Lane::Bulk, letter.clone()), Ok(None));
        assert_eq!(run(&mut environment, &mut programs), [server]);
        assert!(matches!(programs.read(server), Some(Incoming::Message { letter: read, .. }) if read == letter));
        programs.wait(&mut environment, server, Wait::Incoming, None);
        programs.on_returned(&mut environment, client);
        assert_eq!(run(&mut environment, &mut programs), [server]);
        assert!(matches!(programs.read(server), Some(Incoming::Closed { .. })));
    }

    #[test]
    fn a_process_that_replaces_another_has_its_name_and_starts_now() {
        let (mut environment, mut programs, [first, _]) = started();
        programs.set_restarts(first, true);
        programs.end(&mut environment.kernel, first, "it was killed");
        programs.replace(&mut environment.kernel, first);
        let [anew] = programs.named("f0@h")[..] else { panic!() };
        assert_eq!(programs.take_restarted(), [(anew, first)]);
        assert_eq!(run(&mut environment, &mut programs), [anew]);
        assert!(programs.process(first).must_end() && !programs.process(anew).must_end());
    }
}
