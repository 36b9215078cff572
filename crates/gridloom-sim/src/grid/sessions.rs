//! Sessions of functions: how calls get and put the shared data that their functions declare.
//!
//! In a real run, a function does so through a session that its worker opens. Here each server has one client for all
//! its calls, which queries the catalog like any client. A call processes its data one after the other, in declaration
//! order. Data that it gets are sent to its server, for all calls there. Small data, and those for which the server
//! has no room, are sent to the session only.
//!
//! **Invariant:** data found for a call are released when the call has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{
    DatumId, Fnv, GroupId, Meta, NameError, NamedDatum, NodeId, PutOrigin, TaskError, TaskId, full_name, name_for,
};
use gridloom_core::graph::{Argument, CopyLifetime, Group, Source, Task, TaskKind};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_idl::{UseKind, UsedName};

/// An action that a session requests from the simulation.
#[derive(Debug)]
pub(crate) enum Step {
    Command(Command),
    /// A call has produced a value in the session's store.
    Keep(DatumId, Meta, TaskId),
    /// A call has all data that it waited for.
    Continue(TaskId),
    Fails(TaskId, NameError),
    /// The call's data will not arrive.
    DataMissing(TaskId, TaskError),
}

/// The sessions of all servers.
#[derive(Debug, Default)]
pub(crate) struct FunctionSessions {
    /// Sessions by client.
    all: BTreeMap<NodeId, Session>,
    /// The clients of sessions, by server.
    clients: BTreeMap<NodeId, NodeId>,
}

/// One session.
#[derive(Debug)]
struct Session {
    client: NodeId,
    server: NodeId,
    /// True if the client knows the server, or cannot reach the agent.
    is_ready: bool,
    last_serial: u64,
    last_run: u64,
    calls: BTreeMap<TaskId, Call>,
    /// The run behind each catalog request, including requests of cancelled calls.
    catalog_requests: BTreeMap<u64, Run>,
    /// The run behind each copy that is sent to the server.
    copies: BTreeMap<TaskId, (Run, DatumId)>,
    /// Calls that wait for a datum to arrive here.
    waiting_for_datum: BTreeMap<DatumId, BTreeSet<TaskId>>,
}

/// One run of a call. A call that was cancelled here, because a connection was cut, may run here again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    task: TaskId,
    number: u64,
}

/// A running call.
#[derive(Debug, Default)]
struct Call {
    /// The number of the run.
    run: u64,
    /// The names that it has yet to get or put, in order.
    pending_names: VecDeque<UsedName>,
    /// The user to whom it belongs.
    user: Box<str>,
    /// The task ID under which it puts, once it has begun.
    puts_as: Option<TaskId>,
    /// Data to release when it has ended.
    held: Vec<DatumId>,
}

impl FunctionSessions {
    pub(crate) fn of_server(&self, server: NodeId) -> Option<NodeId> {
        self.clients.get(&server).copied()
    }

    /// Returns the server of a client's session, if it is a session.
    pub(crate) fn server_of(&self, client: NodeId) -> Option<NodeId> {
        self.all.get(&client).map(|session| session.server)
    }

    /// Reports whether one node is the session of the other.
    pub(crate) fn share_memory(&self, one: NodeId, other: NodeId) -> bool {
        self.server_of(one) == Some(other) || self.server_of(other) == Some(one)
    }

    pub(crate) fn open(&mut self, server: NodeId, client: NodeId) {
        self.clients.insert(server, client);
        let session = Session {
            client,
            server,
            is_ready: false,
            last_serial: 0,
            last_run: 0,
            calls: BTreeMap::new(),
            catalog_requests: BTreeMap::new(),
            copies: BTreeMap::new(),
            waiting_for_datum: BTreeMap::new(),
        };
        self.all.insert(client, session);
    }

    /// Closes the session of a server that has ended. Returns its client.
    pub(crate) fn close(&mut self, server: NodeId) -> Option<NodeId> {
        let client = self.clients.remove(&server)?;
        self.all.remove(&client);
        Some(client)
    }

    /// Makes a call wait until it has processed these names.
    pub(crate) fn begin(&mut self, client: NodeId, task: &Task, uses: VecDeque<UsedName>) -> Vec<Step> {
        self.with(client, |session, out| {
            session.end(task.id, out);
            session.last_run += 1;
            let puts_as = Some(task.put_origin());
            let user = task.options.user.clone().unwrap_or_default();
            let complete = |used: UsedName| UsedName { name: full_name(&user, &used.name).into_owned(), ..used };
            let pending_names = uses.into_iter().map(complete).collect();
            let call = Call { run: session.last_run, pending_names, user, puts_as, held: Vec::new() };
            session.calls.insert(task.id, call);
            if session.is_ready {
                session.next_use(task.id, out);
            }
        })
    }

    /// Ends a call that has completed or was cancelled.
    pub(crate) fn end(&mut self, client: NodeId, task: TaskId) -> Vec<Step> {
        self.with(client, |session, out| session.end(task, out))
    }

    pub(crate) fn on_event(&mut self, client: NodeId, event: Event) -> Vec<Step> {
        self.with(client, |session, out| session.on_event(event, out))
    }

    fn with(&mut self, client: NodeId, act: impl FnOnce(&mut Session, &mut Vec<Step>)) -> Vec<Step> {
        let mut out = Vec::new();
        if let Some(session) = self.all.get_mut(&client) {
            act(session, &mut out);
        }
        out
    }
}

impl Session {
    fn serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    fn on_event(&mut self, event: Event, out: &mut Vec<Step>) {
        match event {
            Event::Directory { grid, .. }
                if !self.is_ready && grid.servers.iter().any(|server| server.node == self.server) =>
            {
                self.begin_all(out);
            }
            // The client answers in place of the agent. Like any client, it first waits for a while.
            Event::AgentLost { .. } if !self.is_ready => self.begin_all(out),
            Event::NameResult { request: ask, answer } => self.on_answer(ask, answer, out),
            Event::TaskEnded { report, .. } => match self.copies.remove(&report.task) {
                None => {}
                Some((run, _)) if !self.is_running(run) => {}
                Some((run, datum)) if report.outcome.is_err() => self.fetch_to_session(run.task, datum, out),
                Some((run, _)) => self.next_use(run.task, out),
            },
            Event::DatumAvailable { datum, .. } => {
                self.waiting_for_datum.remove(&datum).into_iter().flatten().for_each(|task| self.next_use(task, out));
            }
            Event::DatumLost { datum, error } => {
                for task in self.waiting_for_datum.remove(&datum).into_iter().flatten() {
                    out.push(Step::DataMissing(task, error.clone()));
                    self.end(task, out);
                }
            }
            _ => {}
        }
    }

    fn is_running(&self, run: Run) -> bool {
        self.calls.get(&run.task).is_some_and(|call| call.run == run.number)
    }

    /// Begins the calls that waited for the client.
    fn begin_all(&mut self, out: &mut Vec<Step>) {
        self.is_ready = true;
        out.push(Step::Command(Command::RunsAt { server: self.server }));
        let waiting: Vec<TaskId> = self.calls.keys().copied().collect();
        waiting.into_iter().for_each(|task| self.next_use(task, out));
    }

    /// Processes the call's next name.
    fn next_use(&mut self, task: TaskId, out: &mut Vec<Step>) {
        let Some(call) = self.calls.get_mut(&task) else { return };
        let run = Run { task, number: call.run };
        let Some(used) = call.pending_names.pop_front() else { return out.push(Step::Continue(task)) };
        let ask = self.serial();
        self.catalog_requests.insert(ask, run);
        let command = match used.kind {
            UseKind::Get => NameCommand::Find { name: used.name, waits: true },
            UseKind::Put | UseKind::Replace => self.put(task, used, out),
        };
        out.push(Step::Command(Command::Name { request: ask, command }));
    }

    fn put(&mut self, task: TaskId, used: UsedName, out: &mut Vec<Step>) -> NameCommand {
        let (client, meta) = (self.client, Meta::Bytes { size_bytes: used.size_bytes });
        let datum = DatumId { client, serial: self.serial() };
        let (known, group, copy) = (self.serial(), self.serial(), self.serial());
        let call = self.calls.entry(task).or_default();
        call.held.push(datum);
        let made_by = call.puts_as.map(|task| PutOrigin { task, digest: digest(&used) });
        out.push(Step::Keep(datum, meta.clone(), task));
        let source = Source { meta: meta.clone(), at: vec![client] };
        let id = GroupId { client, serial: known };
        // A group without calls, from which the client learns of the datum.
        let group_of_it = Group { id, tasks: Vec::new(), sources: [(datum, source)].into(), wanted: Vec::new() };
        out.push(Step::Command(Command::Run { group: group_of_it, heuristic: "auto".into() }));
        NameCommand::Put {
            name: used.name,
            datum,
            meta,
            replaces: used.kind == UseKind::Replace,
            replicas: used.retention.replicas,
            is_durable: used.retention.is_durable,
            method: used.retention.method,
            made_by,
            task: TaskId { client, serial: copy },
            group: GroupId { client, serial: group },
        }
    }

    fn on_answer(&mut self, ask: u64, answer: Result<CatalogAnswer, NameError>, out: &mut Vec<Step>) {
        let Some(run) = self.catalog_requests.remove(&ask) else { return };
        match answer {
            Ok(CatalogAnswer::Found { named, .. }) if self.is_running(run) => self.on_found(run, named, out),
            Ok(CatalogAnswer::Found { named, .. }) => {
                out.push(Step::Command(Command::Release { data: vec![named.datum] }));
            }
            _ if !self.is_running(run) => {}
            Ok(_) => self.next_use(run.task, out),
            Err(error) => {
                let user = &self.calls[&run.task].user;
                let error = error.map_names(|name| name_for(user, name).to_string());
                out.push(Step::Fails(run.task, error));
                self.end(run.task, out);
            }
        }
    }

    fn on_found(&mut self, run: Run, named: NamedDatum, out: &mut Vec<Step>) {
        let datum = named.datum;
        self.calls.entry(run.task).or_default().held.push(datum);
        if named.meta.size_bytes() <= EAGER_BYTES_MAX {
            return self.fetch_to_session(run.task, datum, out);
        }
        let (copy, group) = (self.serial(), self.serial());
        let copy = TaskId { client: self.client, serial: copy };
        self.copies.insert(copy, (run, datum));
        let replicate = Task {
            id: copy,
            kind: TaskKind::Replicate(CopyLifetime::Cached),
            args: vec![Argument::Datum(datum)],
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        };
        // The client knows where the datum is.
        let source = Source { meta: named.meta, at: Vec::new() };
        let id = GroupId { client: self.client, serial: group };
        let group = Group { id, tasks: vec![replicate], sources: [(datum, source)].into(), wanted: Vec::new() };
        let (server, from) = (self.server, BTreeMap::new());
        out.push(Step::Command(Command::RunPlanned { group, server, from, heuristic: "auto".into(), plan: None }));
    }

    /// Requests a datum for the session itself.
    fn fetch_to_session(&mut self, task: TaskId, datum: DatumId, out: &mut Vec<Step>) {
        self.waiting_for_datum.entry(datum).or_default().insert(task);
        out.push(Step::Command(Command::Get { datum }));
    }

    fn end(&mut self, task: TaskId, out: &mut Vec<Step>) {
        let Some(call) = self.calls.remove(&task) else { return };
        for (ask, _) in self.catalog_requests.iter().filter(|(_, of)| of.task == task && of.number == call.run) {
            out.push(Step::Command(Command::Name { request: *ask, command: NameCommand::CancelWait }));
        }
        self.waiting_for_datum.values_mut().for_each(|tasks| _ = tasks.remove(&task));
        self.waiting_for_datum.retain(|_, tasks| !tasks.is_empty());
        if !call.held.is_empty() {
            out.push(Step::Command(Command::Release { data: call.held }));
        }
    }
}

/// Returns the digest of the value, which is the same if the call runs again.
fn digest(used: &UsedName) -> [u8; 32] {
    let mut hash = Fnv::default();
    hash.text(&used.name);
    hash.number(used.size_bytes);
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&hash.0.to_le_bytes());
    digest
}

#[cfg(test)]
mod tests {
    use gridloom_base::dial::ConnectionFault;
    use gridloom_base::{Method, Time};
    use gridloom_core::graph::CallOptions;
    use gridloom_core::node::message::{TaskReport, TaskTimes};

    use super::*;

    const SERVER: NodeId = NodeId(2);
    const CLIENT: NodeId = NodeId(9);

    /// A call that gets a large datum.
    fn getting_call() -> (Task, UsedName) {
        let id = TaskId { client: NodeId(7), serial: 1 };
        let (args, outputs, work_flops) = (Vec::new(), Vec::new(), None);
        let call =
            Task { id, kind: TaskKind::call("m/f", 0), args, outputs, work_flops, options: CallOptions::default() };
        let used =
            UsedName { kind: UseKind::Get, name: "mesh".into(), size_bytes: 1 << 20, retention: Default::default() };
        (call, used)
    }

    /// A call that gets a large datum, of which a copy is being sent to the server.
    fn copying() -> (FunctionSessions, TaskId, TaskId) {
        let mut sessions = FunctionSessions::default();
        sessions.open(SERVER, CLIENT);
        sessions.on_event(
            CLIENT,
            Event::AgentLost { address: "a".into(), fault: ConnectionFault::NoAnswer, why: "so".into() },
        );
        let (call, used) = getting_call();
        let id = call.id;
        sessions.begin(CLIENT, &call, [used].into());
        let named = NamedDatum {
            datum: DatumId { client: NodeId::CATALOG, serial: 5 },
            name: "mesh".into(),
            version: 1,
            meta: Meta::Bytes { size_bytes: 1 << 20 },
            replicas: 1,
            is_durable: false,
            method: Method::Auto,
            put_by: None,
            readers: Default::default(),
        };
        let answer = Ok(CatalogAnswer::Found { named, holders: Vec::new() });
        let steps = sessions.on_event(CLIENT, Event::NameResult { request: 1, answer });
        let [Step::Command(Command::RunPlanned { group, .. })] = &steps[..] else { panic!("{steps:?}") };
        (sessions, id, group.tasks[0].id)
    }

    fn failed(copy: TaskId) -> Event {
        let timing = TaskTimes { run_ns: 0, age_ns: 0 };
        let report = TaskReport { task: copy, outcome: Err(TaskError::Cancelled), timing };
        Event::TaskEnded { at: Time(0), server: None, report }
    }

    #[test]
    fn what_the_server_cannot_take_arrives_at_the_session() {
        let (mut sessions, _, copy) = copying();
        let steps = sessions.on_event(CLIENT, failed(copy));
        assert!(matches!(steps[..], [Step::Command(Command::Get { .. })]), "{steps:?}");
    }

    /// Regression test for soak seed 412974: the session requested a datum that it had released.
    #[test]
    fn a_call_that_has_ended_gets_nothing_more() {
        let (mut sessions, call, copy) = copying();
        let steps = sessions.end(CLIENT, call);
        assert!(matches!(steps[..], [Step::Command(Command::Release { .. })]), "{steps:?}");
        let steps = sessions.on_event(CLIENT, failed(copy));
        assert!(steps.is_empty(), "{steps:?}");
    }

    /// Regression test for soak seed 4646: the answer to a cancelled request ended the second run of the call.
    #[test]
    fn an_answer_to_a_cancelled_run_does_not_end_the_next_run() {
        let mut sessions = FunctionSessions::default();
        sessions.open(SERVER, CLIENT);
        sessions.on_event(
            CLIENT,
            Event::AgentLost { address: "a".into(), fault: ConnectionFault::NoAnswer, why: "so".into() },
        );
        let (call, used) = getting_call();
        sessions.begin(CLIENT, &call, [used.clone()].into());
        let steps = sessions.end(CLIENT, call.id);
        assert!(matches!(steps[..], [Step::Command(Command::Name { request: 1, command: NameCommand::CancelWait })]));
        sessions.begin(CLIENT, &call, [used].into());
        let unknown = || Err(NameError::Unknown { name: "mesh".into(), near: Vec::new() });
        let steps = sessions.on_event(CLIENT, Event::NameResult { request: 1, answer: unknown() });
        assert!(steps.is_empty(), "{steps:?}");
        let steps = sessions.on_event(CLIENT, Event::NameResult { request: 2, answer: unknown() });
        assert!(matches!(steps[..], [Step::Fails(task, _)] if task == call.id), "{steps:?}");
    }
}
