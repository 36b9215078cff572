//! The state machines of agent, server and client: whatever their peers send, and whenever, they do not panic, their invariants
//! hold, and nothing of the peers is left after all peers have gone. A client's program makes only allowed requests, and receives
//! exactly one answer to each request about a name.
//!
//! Most messages are read from the input. Those about names and shared data are made from it, of data that the machine has named,
//! because a fuzzer cannot guess their numbers.

#![no_main]

#[path = "machines/names.rs"]
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use gridloom_base::dial::ConnectionFault;
use gridloom_base::{
    DatumId, Dtype, GroupId, METHODS, Machine, Meta, NameError, NamedDatum, NodeId, Origin, StorageId, TaskError,
    TaskId, Time,
};
use gridloom_core::graph::{Argument, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::message::{CatalogAnswer, CatalogMessage, CatalogToClient, Registration, ServerToCatalog};
use gridloom_core::node::message::{DirectoryToAgent, DirectoryToServer};
use gridloom_core::node::message::{TaskMessage, TaskToServer};
use gridloom_core::node::version::VERSIONS;
use gridloom_core::node::{
    Agent, AgentConfig, AgentTimer, Client, ClientConfig, ClientTimer, Command, Effect, Event, Input, Message,
    NameCommand, Role, Server, ServerConfig, ServerTimer, Timer,
};
use gridloom_idl::Signature;
use gridloom_map::Stop;
use libfuzzer_sys::fuzz_target;

/// Peers have small numbers, so that messages refer to the same ones.
const AGENT: NodeId = NodeId(1);
const SELF: NodeId = NodeId(2);
const PEERS: [(NodeId, Role); 4] =
    [(AGENT, Role::Agent), (NodeId(3), Role::Client), (NodeId(4), Role::Client), (NodeId(5), Role::Server)];
const SECOND_NS: u64 = 1_000_000_000;
const DESCRIPTION: &str = "Module m; Define f(IN int n, IN double x[n], OUT double y[n]) CalcOrder n Calls \"C\" f(n, x, y);
DefClass k { DefMethod _initialize() Calls \"C\" b(); DefMethod m(IN int n) Calls \"C\" m(n); DefMethod _finalize() Calls \"C\" e(); }";

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    match which % 3 {
        0 => MachineRun::new(Node::Server(Box::new(server()))).run(rest),
        1 => MachineRun::new(Node::Client(Box::new(Client::new(client())))).run(rest),
        _ => MachineRun::new(Node::Agent(Box::new(Agent::new(AgentConfig {
            id: SELF,
            name: "a".into(),
            is_shared: true,
            identifier_key: Default::default(),
        }))))
        .run(rest),
    }
});

fn functions() -> Vec<Signature> {
    static FUNCTIONS: LazyLock<Vec<Signature>> = LazyLock::new(|| {
        let file = gridloom_idl::parse_file(DESCRIPTION, "t.idl").expect("it is valid");
        let methods = file.classes.into_iter().flat_map(|class| class.methods);
        file.definitions.into_iter().chain(methods).map(|definition| definition.signature).collect()
    });
    FUNCTIONS.clone()
}

fn client() -> ClientConfig {
    ClientConfig { id: SELF, name: "c".into(), agent: "agent:1".into(), is_in_call: false }
}

fn server() -> Server {
    Server::new(ServerConfig {
        id: SELF,
        name: "s".into(),
        address: "there:1".into(),
        agent: "agent:1".into(),
        slots: 2,
        cores: 0,
        queue_depth: 2,
        is_stateless: false,
        memory_bytes: 1 << 12,
        disk_bytes: 0,
        data_max: 16,
        slowdown: 1.0,
        separation: Default::default(),
        functions: functions(),
        code_hashes: BTreeMap::new(),
        models: BTreeMap::new(),
        durable: Some(Vec::new()),
        damaged: Vec::new(),
        storage: Some(StorageId(1)),
    })
}

enum Node {
    Agent(Box<Agent>),
    Server(Box<Server>),
    Client(Box<Client>),
}

/// A machine with its environment, which keeps the environment's guarantees.
struct MachineRun {
    node: Node,
    now: Time,
    up: BTreeSet<NodeId>,
    started: BTreeMap<TaskId, Arc<Task>>,
    hashes: BTreeMap<String, u64>,
    /// Shared data that were named to the machine or by it.
    shared: Vec<NamedDatum>,
    /// Shared data that the machine, a server, reported to its agent when it last registered.
    kept: Vec<DatumId>,
    /// Addresses that the machine has dialled. The dials fail at the next heartbeat.
    dials: Vec<String>,
    program: Program,
}

/// The requests of a client's program.
#[derive(Default)]
struct Program {
    next: u64,
    /// Requests about names without an answer.
    requests: BTreeSet<u64>,
    /// Data that the program holds, with reference counts.
    held: BTreeMap<DatumId, u64>,
    /// Data being put, by request.
    puts: BTreeMap<u64, DatumId>,
    tasks: Vec<TaskId>,
}

impl MachineRun {
    fn new(node: Node) -> MachineRun {
        let hashes = functions().into_iter().map(|signature| (signature.name.clone(), signature.hash())).collect();
        MachineRun {
            node,
            now: Time(1),
            up: BTreeSet::new(),
            started: BTreeMap::new(),
            hashes,
            shared: Vec::new(),
            kept: Vec::new(),
            dials: Vec::new(),
            program: Program::default(),
        }
    }

    fn run(mut self, mut rest: &[u8]) {
        self.input(Input::Start);
        PEERS.iter().for_each(|(peer, role)| self.peer_up(*peer, self.role(*role)));
        self.register();
        while let Some((kind, after)) = rest.split_first() {
            rest = self.step(*kind, after);
        }
        self.release_all();
        // All peers leave. Nothing of theirs may be left.
        self.up.clone().into_iter().for_each(|peer| self.peer_lost(peer));
        while let Some((task, _)) = self.started.pop_first() {
            self.ended(task, Err(TaskError::Cancelled));
        }
        (0..60).for_each(|_| self.advance(SECOND_NS));
        self.release_all();
        self.release_shared();
        // Messages that waited for a connection.
        (0..60).for_each(|_| self.advance(SECOND_NS));
        assert!(self.program.requests.is_empty(), "requests without an answer: {:?}", self.program.requests);
        let left = match &self.node {
            // Names outlive the clients that put their data.
            Node::Agent(agent) => {
                agent.leak_counts().into_iter().filter(|(name, _)| !name.starts_with("versions")).collect()
            }
            Node::Server(server) => server.leak_counts(),
            Node::Client(client) => client.leak_counts().to_vec(),
        };
        assert!(left.iter().all(|(_, count)| *count == 0), "{left:?}");
    }

    fn step<'a>(&mut self, kind: u8, rest: &'a [u8]) -> &'a [u8] {
        let (peer, role) = PEERS[usize::from(kind >> 4) % PEERS.len()];
        let role = self.role(role);
        let byte = rest.first().copied().unwrap_or(0);
        match kind % 16 {
            0 => self.peer_lost(peer),
            1 => self.peer_up(peer, role),
            2 => {
                self.advance(u64::from(byte) * SECOND_NS / 16);
                return rest.get(1..).unwrap_or(&[]);
            }
            3 => {
                if let Some(task) = self.started.keys().nth(usize::from(byte) % self.started.len().max(1)).copied() {
                    let made = self.started.remove(&task).expect("found above");
                    let outcome = match byte % 2 {
                        0 => Ok(made.outputs.iter().map(|output| (output.datum, output.meta.clone())).collect()),
                        _ => Err(TaskError::Cancelled),
                    };
                    self.ended(task, outcome);
                }
                return rest.get(1..).unwrap_or(&[]);
            }
            4 => {
                let Ok(((datum, meta), rest)) = postcard::take_from_bytes::<(DatumId, Meta)>(rest) else { return &[] };
                // The store accepts data up to its limit and, from a client, only the client's own data.
                let fits = meta.checked_size_bytes().is_some_and(|size_bytes| size_bytes <= 1 << 10);
                if fits && self.up.contains(&peer) && role.may_send(peer, datum) {
                    self.input(Input::DatumArrived { from: peer, datum, meta, duration_ns: 1 });
                }
                return rest;
            }
            5 => {
                let Ok((datum, rest)) = postcard::take_from_bytes::<DatumId>(rest) else { return &[] };
                if self.up.contains(&peer) {
                    self.input(Input::DatumBroken { from: peer, datum, no_memory: byte % 2 == 0, why: "so".into() });
                }
                return rest;
            }
            6 => {
                self.command(byte, rest.get(1).copied().unwrap_or(0));
                return rest.get(2..).unwrap_or(&[]);
            }
            7 | 8 => {
                let message = self.about_names(peer, role, byte, rest.get(1).copied().unwrap_or(0));
                if self.up.contains(&peer) {
                    self.input(Input::Received { from: peer, message });
                }
                return rest.get(2..).unwrap_or(&[]);
            }
            _ => {
                let Ok((mut message, rest)) = postcard::take_from_bytes::<Message>(rest) else { return &[] };
                self.sign(&mut message);
                if self.up.contains(&peer) {
                    self.input(Input::Received { from: peer, message });
                }
                return rest;
            }
        }
        rest
    }

    /// Sets the correct signature hashes in calls, because a fuzzer cannot guess them.
    fn sign(&self, message: &mut Message) {
        let Message::Task(TaskMessage::ToServer(message)) = message else { return };
        let tasks = match message {
            TaskToServer::Call { task, .. } => std::slice::from_mut(task),
            TaskToServer::RunTasks { tasks, .. } => tasks.as_mut_slice(),
            _ => return,
        };
        for task in tasks {
            let name = task.name().to_string();
            if let (TaskKind::Call { signature_hash, .. } | TaskKind::Method { signature_hash, .. }, Some(hash)) =
                (&mut task.kind, self.hashes.get(&name))
            {
                *signature_hash = *hash;
            }
        }
    }

    fn peer_up(&mut self, peer: NodeId, role: Role) {
        if self.up.insert(peer) {
            let (name, address) =
                (format!("p{peer}"), if peer == AGENT { "agent:1".into() } else { format!("p{peer}:1") });
            let origin = origin_of(peer);
            self.input(Input::PeerUp { peer, role, name, origin, address, version: VERSIONS.1 });
        }
    }

    fn peer_lost(&mut self, peer: NodeId) {
        if self.up.remove(&peer) {
            self.input(Input::PeerLost { peer, fault: ConnectionFault::Disconnected, why: "so".into() });
        }
    }

    fn advance(&mut self, after_ns: u64) {
        self.now = self.now + after_ns;
        // Peers that can be reached connect on their own.
        for address in std::mem::take(&mut self.dials) {
            let fault = ConnectionFault::NotListening;
            self.input(Input::DialFailed { address, fault, why: "so".into(), connected: None });
        }
        let timers = match self.node {
            Node::Agent(_) => vec![Timer::Agent(AgentTimer::Heartbeat)],
            Node::Server(_) => vec![Timer::Server(ServerTimer::Heartbeat), Timer::Server(ServerTimer::Transfers)],
            Node::Client(_) => {
                use ClientTimer::{Deadline, Heartbeat, Links, Steal, TransfersSettled};
                [Heartbeat, Deadline, Links, TransfersSettled, Steal].map(Timer::Client).to_vec()
            }
        };
        timers.into_iter().for_each(|timer| self.input(Input::Timer(timer)));
    }

    fn ended(&mut self, task: TaskId, outcome: Result<Vec<(DatumId, Meta)>, TaskError>) {
        self.input(Input::TaskEnded { task, outcome, run_ns: 1_000_000 });
    }

    /// Handles an input and its consequences in the environment.
    fn input(&mut self, input: Input) {
        let mut effects = Vec::new();
        let is_traced = std::env::var_os("GRIDLOOM_TRACE").is_some();
        if is_traced {
            eprintln!("{:?} {input:?}", self.now);
        }
        match &mut self.node {
            Node::Agent(agent) => agent.handle(self.now, input, &mut effects),
            Node::Server(server) => {
                server.handle(self.now, input, &mut effects);
                server.check().expect("the invariants hold");
            }
            Node::Client(client) => {
                client.handle(self.now, input, &mut effects);
                client.check();
            }
        }
        let mut follow = Vec::new();
        for effect in effects {
            if is_traced {
                eprintln!("    {effect:?}");
            }
            match effect {
                Effect::StartTask { task } => {
                    assert!(self.started.insert(task.id, task).is_none(), "a task runs once at a time");
                    assert!(self.started.len() <= 4, "no more than slots times depth");
                }
                Effect::StopTask { task } if self.started.remove(&task).is_some() => {
                    let outcome = Err(TaskError::Cancelled);
                    follow.push(Input::TaskEnded { task, outcome, run_ns: 1 });
                }
                Effect::Disconnect { peer } => _ = self.up.remove(&peer),
                Effect::Dial { address } => self.dials.push(address),
                Effect::Emit(Event::NameResult { request, answer }) => self.answered(request, answer),
                Effect::Send {
                    message: Message::Catalog(CatalogMessage::ToClient(CatalogToClient::Place { named, .. })),
                    ..
                } => self.shared.push(named),
                Effect::Send { message: Message::Catalog(CatalogMessage::FromServer(sent)), .. } => match sent {
                    ServerToCatalog::StoredVersions { data } => {
                        self.kept.extend(data.iter().map(|version| version.named.datum))
                    }
                    ServerToCatalog::HasCopies { data } => self.kept.extend(data),
                    ServerToCatalog::Stored { .. }
                    | ServerToCatalog::Damaged { .. }
                    | ServerToCatalog::SourceSilent { .. }
                    | ServerToCatalog::Synced { .. } => {}
                },
                Effect::MakeDurable { named } => {
                    let outcome = if named.version % 2 == 0 { Ok(()) } else { Err("the disk is full".into()) };
                    follow.push(Input::MadeDurable { datum: named.datum, outcome });
                }
                Effect::SyncDurable { number } => follow.push(Input::DurableSynced { number }),
                Effect::Map { number, job } => {
                    follow.push(Input::Mapped { number, outcome: job.map(Stop::default()) });
                }
                _ => {}
            }
        }
        follow.into_iter().for_each(|input| self.input(input));
    }

    // ---- names

    /// Releases the shared data that a server keeps for its agent: the agent connects again, receives the list of them, and
    /// releases them.
    fn release_shared(&mut self) {
        if !matches!(self.node, Node::Server(_)) {
            return;
        }
        self.kept.clear();
        self.peer_up(AGENT, Role::Agent);
        self.register();
        let message = TaskToServer::Release { data: std::mem::take(&mut self.kept) }.into();
        self.input(Input::Received { from: AGENT, message });
        self.peer_lost(AGENT);
    }

    /// The peers of a client are servers, and those of the others are clients.
    fn role(&self, role: Role) -> Role {
        if matches!(self.node, Node::Client(_)) && role == Role::Client { Role::Server } else { role }
    }

    /// Registers a server with its agent, or, at an agent, registers a server.
    fn register(&mut self) {
        let message: Message = match self.node {
            Node::Server(_) => {
                DirectoryToServer::Registered { peers: Vec::new(), differences: Vec::new(), rules: Default::default() }
                    .into()
            }
            Node::Agent(_) => DirectoryToAgent::Register(Registration {
                name: "p5".into(),
                address: "p5:1".into(),
                slots: 2,
                is_stateless: false,
                memory_bytes: 1 << 12,
                is_durable: true,
                storage: Some(StorageId(1)),
                slowdown: 1.0,
                functions: functions(),
                code_hashes: BTreeMap::new(),
                release: String::new(),
                was_registered: false,
            })
            .into(),
            Node::Client(_) => return,
        };
        let from = if matches!(self.node, Node::Server(_)) { AGENT } else { NodeId(5) };
        self.input(Input::Received { from, message });
    }

    /// Issues a request of a client's program.
    fn command(&mut self, kind: u8, which: u8) {
        if !matches!(self.node, Node::Client(_)) || self.program.next > 200 {
            return;
        }
        self.program.next += 1;
        let serial = self.program.next;
        let name = ["a", "b"][usize::from(which) % 2].to_string();
        let held = self.program.held.keys().nth(usize::from(which) % self.program.held.len().max(1)).copied();
        let (datum, task) = (DatumId { client: SELF, serial }, TaskId { client: SELF, serial });
        let group = GroupId { client: SELF, serial };
        let request = serial % 8;
        let command = match kind % 9 {
            0 | 1 => {
                let replaces = kind >= 128;
                self.program.tasks.push(task);
                let (replicas, is_durable) = (u16::from(which % 4), which & 16 != 0);
                let (method, made_by, meta) = (METHODS[usize::from(which) % METHODS.len()].method, None, meta());
                NameCommand::Put { name, datum, meta, replaces, replicas, is_durable, method, made_by, task, group }
            }
            2 => NameCommand::Find { name, waits: which >= 128 },
            3 => NameCommand::Delete { name },
            4 => NameCommand::List { prefix: name, after: String::new() },
            5 => {
                let waiting = self.program.requests.first().copied();
                let Some(request) = waiting else { return };
                self.input(Input::Command(Command::Name { request, command: NameCommand::CancelWait }));
                // There is no answer to a put that was abandoned.
                if let Some(datum) = self.program.puts.remove(&request) {
                    self.program.requests.remove(&request);
                    *self.program.held.entry(datum).or_default() += 1;
                }
                return;
            }
            6 => {
                let Some(datum) = held else { return };
                return self.input(Input::Command(Command::Get { datum }));
            }
            7 => {
                let Some(datum) = held else { return };
                return self.release(datum);
            }
            _ => {
                let Some(read) = held else { return };
                let sources = BTreeMap::from([(read, Source { meta: meta(), at: Vec::new() })]);
                let outputs = vec![Output { datum, meta: meta() }];
                let (args, options) = (vec![Argument::Datum(read)], Default::default());
                let kind = TaskKind::call("m/f", self.hashes["m/f"]);
                let tasks = vec![Task { id: task, kind, args, outputs, work_flops: Some(1.0), options }];
                self.program.tasks.push(task);
                *self.program.held.entry(datum).or_default() += 1;
                let group = Group { id: group, tasks, sources, wanted: vec![datum] };
                return self.input(Input::Command(Command::Run { group, heuristic: "heft".into() }));
            }
        };
        if self.program.requests.insert(request) {
            if matches!(command, NameCommand::Put { .. }) {
                self.program.puts.insert(request, datum);
            }
            self.input(Input::Command(Command::Name { request, command }));
        }
    }

    fn answered(&mut self, request: u64, answer: Result<CatalogAnswer, NameError>) {
        assert!(self.program.requests.remove(&request), "a second answer to {request}: {answer:?}");
        if let Some(datum) = self.program.puts.remove(&request) {
            *self.program.held.entry(datum).or_default() += 1;
        }
        if let Ok(CatalogAnswer::Found { named, .. }) = answer {
            *self.program.held.entry(named.datum).or_default() += 1;
        }
    }

    fn release(&mut self, datum: DatumId) {
        if let Some(times) = self.program.held.get_mut(&datum) {
            *times -= 1;
            if *times == 0 {
                self.program.held.remove(&datum);
            }
            self.input(Input::Command(Command::Release { data: vec![datum] }));
        }
    }

    fn release_all(&mut self) {
        while let Some(datum) = self.program.held.keys().next().copied() {
            self.release(datum);
        }
    }
}

/// One client may call all functions, and the other is an administrator.
fn origin_of(peer: NodeId) -> Origin {
    Origin {
        user: format!("user {peer}"),
        is_administrator: peer.0 % 2 == 0,
        functions: vec!["*".parse().expect("it is a pattern")],
        ..Origin::default()
    }
}

fn meta() -> Meta {
    Meta::array(Dtype::Float64, &[1])
}
