//! One program in both worlds: the same machines, on sockets and in simulation, compute the same plan and request the
//! same effects from their worlds in the same order.
//!
//! All effects of each machine that concern calls and data are compared. Effects that depend on time are excluded:
//! timers, heartbeats, connections, probes, measurements, the directory. Plain calls are excluded too: their servers
//! depend on measurements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, Dtype, GroupId, Machine, Meta, NodeId, TaskId, Time};
use gridloom_conformance::grid::{C_SOURCE, IDL};
use gridloom_core::graph::{Argument, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::message::{
    DataMessage, MapMessage, MapRequest, MapToAgent, MapToClient, Message, TaskMessage, TaskToClient, TaskToServer,
};
use gridloom_core::node::{
    Agent, AgentConfig, Client, ClientConfig, Command, Effect, Event, Input, Node, Role, Server, ServerConfig,
};
use gridloom_idl::Definition;
use gridloom_keys::{Authority, UnixTime};
use gridloom_net::driver::{BoxMachine, NetConfig, NetNode};
use gridloom_net::identity::IssuedKeys;
use gridloom_net::jobs::JobsConfig;
use gridloom_net::payload::Payload;
use gridloom_perf::ServerView;
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

const ELEMENTS: u64 = 10_000;
const SERVERS: [&str; 2] = ["server-1", "server-2"];
const MEMORY_BYTES: u64 = 1 << 30;

const PLATFORM: &str = r#"
[[cluster]]
name = "lan"
hosts = "host-[0-3]"
speed = "10Gf"
bandwidth = "1GBps"
latency = "50us"
"#;

/// The effects that a machine requested for each input, in order.
type Tape = Arc<Mutex<Vec<Vec<Effect>>>>;

/// A machine whose effects are recorded.
struct Recorded {
    machine: Node,
    tape: Tape,
}

impl Machine for Recorded {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        let before = out.len();
        self.machine.handle(now, input, out);
        self.tape.lock().unwrap().push(out[before..].to_vec());
    }
}

/// Creates a machine from its identifier and its address.
type Make = Box<dyn FnOnce(NodeId, &str) -> Node>;

/// A world in which the program runs.
trait World {
    fn start(&mut self, role: Role, name: &str, make: Make) -> NodeId;
    fn put(&mut self, client: NodeId, datum: DatumId, meta: Meta, bytes: Vec<u8>);
    fn command(&mut self, client: NodeId, command: Command);
    fn next_event(&mut self, client: NodeId) -> Event;
    fn address(&self, node: NodeId) -> String;
    fn tapes(&self) -> Vec<(NodeId, String, Tape)>;
}

struct Simulated {
    simulation: Simulation,
    tapes: Vec<(NodeId, String, Tape)>,
}

impl World for Simulated {
    fn start(&mut self, role: Role, name: &str, make: Make) -> NodeId {
        let host = HostId(self.tapes.len() as u32);
        let tape = Tape::default();
        let copy = tape.clone();
        let node = self.simulation.add_machine(host, role, name, 1, |id, address| {
            Box::new(Recorded { machine: make(id, address), tape: copy })
        });
        self.tapes.push((node, name.into(), tape));
        node
    }

    fn put(&mut self, client: NodeId, datum: DatumId, meta: Meta, bytes: Vec<u8>) {
        self.simulation.put(client, datum, meta, Some(bytes.into()));
    }

    fn command(&mut self, client: NodeId, command: Command) {
        self.simulation.command(client, command);
    }

    fn next_event(&mut self, client: NodeId) -> Event {
        self.simulation.next_event(client, Some(Time(60_000_000_000))).expect("nothing more happens")
    }

    fn address(&self, node: NodeId) -> String {
        self.simulation.address(node).into()
    }

    fn tapes(&self) -> Vec<(NodeId, String, Tape)> {
        self.tapes.clone()
    }
}

struct Real {
    folder: PathBuf,
    authority: Authority,
    nodes: BTreeMap<NodeId, Arc<NetNode>>,
    addresses: BTreeMap<NodeId, String>,
    tapes: Vec<(NodeId, String, Tape)>,
}

impl World for Real {
    fn start(&mut self, role: Role, name: &str, make: Make) -> NodeId {
        let (tape, mut own_address) = (Tape::default(), String::new());
        let jobs = (role == Role::Server).then(|| JobsConfig {
            server_name: name.into(),
            slots: 1,
            definitions: definitions(),
            libraries: vec![self.folder.join("libsuite.so")],
            worker_program: env!("CARGO_BIN_EXE_gridloom").into(),
            python: "python3".into(),
            modules: Vec::new(),
            queue_depth: 1,
            env: Vec::new(),
            pass_env: Vec::new(),
            system_users: Default::default(),
            function_keys: None,
            slowdown: 1.0,
            limits: Default::default(),
            separation: Default::default(),
            worker_group: None,
            confinement: None,
        });
        let listen = (role != Role::Client).then(|| "127.0.0.1:0".parse().unwrap());
        let certified = match role {
            Role::Agent => gridloom_keys::Role::Agent,
            Role::Server => gridloom_keys::Role::Server,
            Role::Client => gridloom_keys::Role::Client,
        };
        let keys = IssuedKeys::by_authority(&self.authority, certified, name).unwrap().keys().unwrap();
        let config = NetConfig { listen, jobs, speed_flops: Some(10e9), ..NetConfig::new(keys) };
        let copy = tape.clone();
        let node = NetNode::start_with(config, |id, address| {
            own_address = address.to_string();
            let machine = Recorded { machine: make(id, address), tape: copy };
            (role, name.to_string(), Box::new(machine) as BoxMachine)
        })
        .unwrap();
        if role != Role::Client {
            let node = node.clone();
            std::thread::spawn(move || node.run());
        }
        let id = node.id();
        self.nodes.insert(id, node);
        self.addresses.insert(id, own_address);
        self.tapes.push((id, name.into(), tape));
        id
    }

    fn put(&mut self, client: NodeId, datum: DatumId, meta: Meta, bytes: Vec<u8>) {
        self.nodes[&client].store().put(datum, meta, Payload::Inline(bytes.into()));
    }

    fn command(&mut self, client: NodeId, command: Command) {
        self.nodes[&client].command(command);
    }

    fn next_event(&mut self, client: NodeId) -> Event {
        let deadline = Instant::now() + Duration::from_secs(60);
        self.nodes[&client].wait(Some(deadline), |events| events.pop_front()).expect("nothing more happens")
    }

    fn address(&self, node: NodeId) -> String {
        self.addresses[&node].clone()
    }

    fn tapes(&self) -> Vec<(NodeId, String, Tape)> {
        self.tapes.clone()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        for node in self.nodes.values().rev() {
            node.stop();
        }
    }
}

fn definitions() -> Vec<Definition> {
    gridloom_idl::parse(IDL, "suite.idl").unwrap()
}

/// The program: a chain of three tasks on two servers, and its last result. Returns the effects of each machine.
fn program(stage: &mut dyn World) -> BTreeMap<String, Vec<String>> {
    let config = |id| AgentConfig { id, name: "agent".into(), is_shared: true, identifier_key: Default::default() };
    let agent = stage.start(Role::Agent, "agent", Box::new(move |id, _| Node::Agent(Box::new(Agent::new(config(id))))));
    let agent = stage.address(agent);
    for name in SERVERS {
        let agent = agent.clone();
        let make = move |id, address: &str| {
            let functions = definitions().into_iter().map(|definition| definition.signature).collect();
            let (name, address, memory_bytes) = (name.to_string(), address.to_string(), MEMORY_BYTES);
            let config = ServerConfig {
                id,
                name,
                address,
                agent,
                slots: 1,
                cores: 0,
                queue_depth: 1,
                is_stateless: false,
                memory_bytes,
                disk_bytes: 0,
                data_max: u64::MAX,
                slowdown: 1.0,
                separation: Default::default(),
                functions,
                code_hashes: BTreeMap::new(),
                models: BTreeMap::new(),
                durable: None,
                damaged: Vec::new(),
                storage: None,
            };
            Node::Server(Box::new(Server::new(config)))
        };
        stage.start(Role::Server, name, Box::new(make));
    }
    let config = move |id| ClientConfig { id, name: "client".into(), agent, is_in_call: false };
    let make = move |id, _: &str| Node::Client(Box::new(Client::new(config(id))));
    let client = stage.start(Role::Client, "client", Box::new(make));
    let until = |stage: &mut dyn World, is_it: &dyn Fn(&Event) -> bool| {
        while !is_it(&stage.next_event(client)) {}
    };
    until(stage, &|event| {
        let is_ready = |server: &ServerView| server.speed_flops.is_some();
        matches!(event, Event::Directory { grid, .. } if grid.servers.iter().filter(|s| is_ready(s)).count() == 2)
    });
    let datum = |serial| DatumId { client, serial };
    let meta = Meta::array(Dtype::Float64, &[ELEMENTS]);
    let bytes: Vec<u8> = (0..ELEMENTS).flat_map(|i| (i as f64).to_ne_bytes()).collect();
    let task = |serial, input, output| {
        let meta = Meta::scalar(Dtype::Int32);
        let scalar = |value: i32| Argument::Inline { meta: meta.clone(), bytes: value.to_ne_bytes().to_vec() };
        let definition = definitions().into_iter().find(|d| d.signature.name == "suite/wait_ms").unwrap();
        Task {
            id: TaskId { client, serial },
            kind: TaskKind::call("suite/wait_ms", definition.signature.hash()),
            // The task takes so long that all requests for its result arrive before it ends: so their order is fixed.
            args: vec![scalar(200), scalar(ELEMENTS as i32), Argument::Datum(input)],
            outputs: vec![Output { datum: output, meta: Meta::array(Dtype::Float64, &[ELEMENTS]) }],
            work_flops: Some(2e9),
            options: Default::default(),
        }
    };
    stage.put(client, datum(1), meta.clone(), bytes);
    let tasks = vec![task(1, datum(1), datum(2)), task(2, datum(2), datum(3)), task(3, datum(3), datum(4))];
    let id = GroupId { client, serial: 1 };
    let source = Source { meta: meta.clone(), at: vec![client] };
    let sources = BTreeMap::from([(datum(1), source)]);
    let group = Group { id, tasks, sources, wanted: vec![datum(4)] };
    // A heuristic that measurements do not affect.
    stage.command(client, Command::Run { group, heuristic: "round-robin".into() });
    stage.command(client, Command::Get { datum: datum(4) });
    until(stage, &|event| matches!(event, Event::DatumAvailable { .. }));
    stage.command(client, Command::Release { data: (1..=4).map(datum).collect() });
    // A server that runs a task sent after this message has received the message.
    let null = |serial| {
        let definition = definitions().into_iter().find(|d| d.signature.name == "suite/null").unwrap();
        let (id, signature_hash) = (TaskId { client, serial }, definition.signature.hash());
        let (args, outputs) = (Vec::new(), Vec::new());
        let kind = TaskKind::call("suite/null", signature_hash);
        Task { id, kind, args, outputs, work_flops: Some(1.0), options: Default::default() }
    };
    let id = GroupId { client, serial: 2 };
    let group = Group { id, tasks: vec![null(4), null(5)], sources: BTreeMap::new(), wanted: Vec::new() };
    stage.command(client, Command::Run { group, heuristic: "round-robin".into() });
    until(stage, &|event| matches!(event, Event::GroupEnded { group, .. } if group.serial == 2));
    let tapes = stage.tapes();
    let names: BTreeMap<NodeId, String> = tapes.iter().map(|(node, name, _)| (*node, name.clone())).collect();
    let lines = |tape: &Tape| tape.lock().unwrap().iter().flat_map(|effects| asked(effects, &names)).collect();
    tapes.iter().map(|(_, name, tape)| (name.clone(), lines(tape))).collect()
}

/// Describes the effects of one input. The order in which a machine sends to several nodes depends on the nodes'
/// numbers, which are random in the real world: consecutive messages to several nodes are sorted by the nodes' names.
fn asked(effects: &[Effect], names: &BTreeMap<NodeId, String>) -> Vec<String> {
    let mut lines: Vec<String> = effects.iter().filter_map(|effect| line(effect, names)).collect();
    let receiver = |line: &String| line.strip_prefix("to ").and_then(|rest| rest.split(':').next()).map(str::to_string);
    for run in lines.chunk_by_mut(|a, b| receiver(a).is_some() == receiver(b).is_some()) {
        run.sort_by_key(receiver);
    }
    lines
}

/// Describes an effect, without what differs between worlds: times and node numbers.
fn line(effect: &Effect, names: &BTreeMap<NodeId, String>) -> Option<String> {
    let name = |node: &NodeId| names[node].clone();
    let serials = |tasks: &[Task]| tasks.iter().map(|task| task.id.serial).collect::<Vec<_>>();
    Some(match effect {
        Effect::Send { to, message } => {
            let said = match message {
                Message::Map(MapMessage::ToAgent(MapToAgent::MapGroup(request))) => {
                    let MapRequest { group, heuristic, outline, .. } = &**request;
                    format!("map group {} of {} tasks by {heuristic}", group.serial, outline.tasks.len())
                }
                Message::Map(MapMessage::ToClient(MapToClient::GroupMapped { group, plan, .. })) => {
                    let servers: Vec<String> = plan.tasks.iter().map(|assignment| name(&assignment.server)).collect();
                    let transfers =
                        plan.transfers.iter().map(|t| format!("{} {}>{}", t.datum, name(&t.from), name(&t.to)));
                    format!("group {} mapped onto {servers:?}, {:?}", group.serial, transfers.collect::<Vec<_>>())
                }
                Message::Map(MapMessage::ToAgent(MapToAgent::GroupEnded { group })) => {
                    format!("group {} ended", group.serial)
                }
                Message::Task(TaskMessage::ToServer(TaskToServer::RunTasks { tasks, supplies })) => {
                    let from: Vec<String> =
                        supplies.iter().map(|s| format!("d{} from {}", s.datum.serial, name(&s.from))).collect();
                    format!("run {:?} with {from:?}", serials(tasks))
                }
                Message::Task(TaskMessage::ToServer(TaskToServer::Release { data })) => {
                    format!("release {:?}", data.iter().map(|d| d.serial).collect::<Vec<_>>())
                }
                Message::Data(DataMessage::Fetch { datum, .. }) => format!("fetch d{}", datum.serial),
                Message::Task(TaskMessage::ToClient(TaskToClient::TasksEnded { reports, .. }))
                    if !reports.is_empty() =>
                {
                    let ends = reports.iter().map(|r| format!("{} {}", r.task.serial, r.outcome.is_ok()));
                    format!("ended {:?}", ends.collect::<Vec<_>>())
                }
                Message::Data(DataMessage::FetchRefused { .. })
                | Message::Task(TaskMessage::ToClient(TaskToClient::SupplyFailed { .. }))
                | Message::Task(TaskMessage::ToServer(TaskToServer::Resupply { .. })) => {
                    format!("{message:?}")
                }
                _ => return None,
            };
            format!("to {}: {said}", name(to))
        }
        Effect::SendDatum { to, datum } => format!("d{} to {}", datum.serial, name(to)),
        Effect::DropDatum { datum } => format!("drop d{}", datum.serial),
        Effect::StartTask { task } => format!("start {}", task.id.serial),
        Effect::StopTask { task } => format!("stop {}", task.serial),
        Effect::WithdrawTask { task } => format!("withdraw {}", task.serial),
        // The tasks of the second group end in either order.
        Effect::Emit(Event::TaskEnded { report, .. }) if report.task.serial < 4 => {
            format!("task {} ended", report.task.serial)
        }
        Effect::Emit(Event::DatumAvailable { datum, .. }) => format!("d{} is here", datum.serial),
        Effect::Emit(Event::GroupEnded { group, .. }) => format!("group {} is over", group.serial),
        _ => return None,
    })
}

fn library(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("suite.c"), C_SOURCE).unwrap();
    let compiled = Process::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o", "libsuite.so", "suite.c"])
        .current_dir(folder)
        .status();
    assert!(compiled.unwrap().success());
}

#[test]
fn one_program_requests_the_same_in_both_worlds() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("both-worlds");
    library(&folder);
    let platform = Platform::parse(PLATFORM, "lan.toml", &mut |_| Err("no files".into())).unwrap();
    let simulation = Simulation::new(Arc::new(platform), SimConfig::default());
    let simulated = program(&mut Simulated { simulation, tapes: Vec::new() });
    let authority = Authority::new("worlds", UnixTime::now()).unwrap();
    let (nodes, addresses) = (BTreeMap::new(), BTreeMap::new());
    let real = program(&mut Real { folder, authority, nodes, addresses, tapes: Vec::new() });
    for (name, lines) in &simulated {
        println!("{name}:\n  {}", lines.join("\n  "));
        assert_eq!(lines, &real[name], "what {name} asks for");
    }
    assert!(simulated.values().all(|lines| !lines.is_empty()), "too little was asked for: {simulated:?}");
}
