//! Tests of what a client keeps and reports when a lost result cannot be recomputed, or when its agent is lost during a request.

use crate::lan;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lan::wait_for;
use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::TASK_ATTEMPTS_MAX;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Machine, Meta, NameError, NodeId, RaisedCause, TaskError, TaskId, Time};
use gridloom_core::graph::{Argument, Group, Output, Task, TaskKind};
use gridloom_core::node::message::{CatalogAnswer, CatalogMessage, ClientToCatalog, MapMessage, MapToAgent, Message};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Agent, AgentConfig, Command, Effect, Event, Input, NameCommand, Role};
use gridloom_idl::Definition;
use gridloom_perf::ServerView;
use gridloom_platform::HostId;
use gridloom_sim::{Bodies, BoxedMachine, Simulation};

const IDL: &str = "Module t;
Define two(IN int n, OUT double a[n], OUT double b[n]) CalcOrder 1e6 Calls \"C\" two(n, a, b);
Define sum(IN int n, IN double x[n], OUT double *s) CalcOrder 1e6 Calls \"C\" sum(n, x, s);";
const ELEMENTS: u64 = 20_000;

/// `two` succeeds once and then fails.
struct FailsLater {
    runs: Arc<AtomicU32>,
}

impl Bodies for FailsLater {
    fn run(&mut self, task: &Task, _: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
        if task.name() == "t/two" && self.runs.fetch_add(1, Ordering::Relaxed) > 0 {
            let (function, server) = (task.name().to_string(), "it".to_string());
            return Err(TaskError::CannotRun { function, server, why: "it runs only once".into() });
        }
        let results = task.outputs.iter();
        Ok(results.map(|output| (output.meta.clone(), vec![1; output.meta.size_bytes() as usize])).collect())
    }
}

fn array() -> Meta {
    Meta::array(Dtype::Float64, &[ELEMENTS])
}

fn number_of_elements() -> Argument {
    Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: (ELEMENTS as i32).to_ne_bytes().to_vec() }
}

/// Returns the client's first task, which produces these two data.
fn two(definition: &Definition, made: [DatumId; 2]) -> Task {
    Task {
        id: TaskId { client: made[0].client, serial: 1 },
        kind: TaskKind::call("t/two", definition.signature.hash()),
        args: vec![number_of_elements()],
        outputs: made.map(|datum| Output { datum, meta: array() }).to_vec(),
        work_flops: Some(1e6),
        options: Default::default(),
    }
}

/// The first run raises the error of a connector whose model server is lost, or an exception of the same name with another
/// cause; the next runs succeed.
struct LosesItsModelServer {
    runs: Arc<AtomicU32>,
    cause: RaisedCause,
}

impl Bodies for LosesItsModelServer {
    fn run(&mut self, task: &Task, _: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
        if self.runs.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(TaskError::Raised {
                function: task.name().to_string(),
                server: "it".to_string(),
                kind: "EndpointLost".into(),
                message: "cannot be reached".into(),
                traceback: String::new(),
                cause: self.cause,
            });
        }
        let results = task.outputs.iter();
        Ok(results.map(|output| (output.meta.clone(), vec![1; output.meta.size_bytes() as usize])).collect())
    }
}

/// Runs a call whose first run raises an exception with this cause. Returns its result, the number of its runs, and the
/// maximum number of servers that had withdrawn the function.
fn raise_once(cause: RaisedCause) -> (Result<(), TaskError>, u32, usize) {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client, _) = lan::grid(&definitions, 1 << 30);
    let runs = Arc::new(AtomicU32::new(0));
    sim.set_bodies(Box::new(LosesItsModelServer { runs: runs.clone(), cause }));
    let tasks = vec![two(&definitions[0], [1, 2].map(|serial| DatumId { client, serial }))];
    let group = Group { id: GroupId { client, serial: 1 }, tasks, sources: Default::default(), wanted: Vec::new() };
    sim.command(client, Command::Run { group, heuristic: "heft".into() });
    let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
    let Event::TaskEnded { report, .. } = ended else { panic!("{ended:?}") };
    // Waits until the agent has sent the directory update that the end of the call causes.
    let (until, mut withdrawn) = (sim.now() + SECOND_NS, 0);
    while let Some(event) = sim.next_event(client, Some(until)) {
        if let Event::Directory { grid, .. } = event {
            let lacks = |server: &&ServerView| !server.functions.contains_key("t/two");
            withdrawn = withdrawn.max(grid.servers.iter().filter(lacks).count());
        }
    }
    (report.outcome.map(drop), runs.load(Ordering::Relaxed), withdrawn)
}

#[test]
fn a_call_whose_model_server_is_lost_runs_on_another_server() {
    assert_eq!(raise_once(RaisedCause::Server), (Ok(()), 2, 1));
}

/// Earlier, a call that imported a missing module withdrew the function from its server for all programs.
#[test]
fn a_call_that_lacks_a_module_runs_on_another_server_and_withdraws_nothing() {
    assert_eq!(raise_once(RaisedCause::MissingModule), (Ok(()), 2, 0));
}

/// Earlier, server faults were recognized by class names.
#[test]
fn an_exception_with_the_name_of_a_server_fault_is_not_a_server_fault() {
    let (outcome, runs, withdrawn) = raise_once(RaisedCause::Function);
    assert!(matches!(&outcome, Err(TaskError::Raised { kind, .. }) if kind == "EndpointLost"), "{outcome:?}");
    assert_eq!((runs, withdrawn), (1, 0));
}

#[test]
fn a_failed_second_run_leaves_what_the_first_has_made() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client, _) = lan::grid(&definitions, 1 << 30);
    let runs = Arc::new(AtomicU32::new(0));
    sim.set_bodies(Box::new(FailsLater { runs: runs.clone() }));
    let [a, b, s] = [1, 2, 3].map(|serial| DatumId { client, serial });
    let n = number_of_elements();
    let two = two(&definitions[0], [a, b]);
    let sum = |serial, datum| Task {
        id: TaskId { client, serial },
        kind: TaskKind::call("t/sum", definitions[1].signature.hash()),
        args: vec![n.clone(), Argument::Datum(datum)],
        outputs: vec![Output {
            datum: DatumId { client, serial: s.serial + serial },
            meta: Meta::scalar(Dtype::Float64),
        }],
        work_flops: Some(1e6),
        options: Default::default(),
    };
    let group = |serial, tasks| Group {
        id: GroupId { client, serial },
        tasks,
        sources: Default::default(),
        wanted: Vec::new(),
    };
    sim.command(client, Command::Run { group: group(1, vec![two]), heuristic: "heft".into() });
    let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
    let Event::TaskEnded { server: Some(server), .. } = ended else { panic!("{ended:?}") };
    sim.command(client, Command::Get { datum: a });
    wait_for(&mut sim, client, |event| matches!(event, Event::DatumAvailable { .. }));
    sim.kill(server);
    // Only b is lost with its server, and the task that produces it fails now.
    sim.command(client, Command::Get { datum: b });
    let lost =
        wait_for(&mut sim, client, |event| matches!(event, Event::DatumAvailable { .. } | Event::DatumLost { .. }));
    assert!(matches!(lost, Event::DatumLost { datum, .. } if datum == b), "{lost:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    // Datum a stays, for the program and for later calls.
    sim.command(client, Command::Get { datum: a });
    let here =
        wait_for(&mut sim, client, |event| matches!(event, Event::DatumAvailable { .. } | Event::DatumLost { .. }));
    assert!(matches!(here, Event::DatumAvailable { datum, .. } if datum == a), "{here:?}");
    sim.command(client, Command::Run { group: group(2, vec![sum(5, a), sum(6, b)]), heuristic: "heft".into() });
    let mut outcomes = Vec::new();
    while outcomes.len() < 2 {
        let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
        let Event::TaskEnded { report, .. } = ended else { unreachable!("asked for") };
        outcomes.push((report.task.serial, report.outcome.is_ok()));
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(5, true), (6, false)]);
    assert!(sim.now() < Time(120_000_000_000));
}

/// If a node has no memory for incoming data, the error names the node and the reason; nothing is lost.
#[test]
fn a_node_without_memory_is_named() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client, _) = lan::grid(&definitions, 1 << 30);
    sim.set_bodies(Box::new(FailsLater { runs: Arc::default() }));
    let strike = |sim: &mut gridloom_sim::Simulation, faults: &str| {
        let scenario = gridloom_sim::faults::Scenario::parse(faults, "f").unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut gridloom_base::SplitMix64::new(0), sim.now());
        sim.schedule(strikes);
    };
    let [a, b, s] = [1, 2, 3].map(|serial| DatumId { client, serial });
    let (array, n) = (array(), number_of_elements());
    let two = two(&definitions[0], [a, b]);
    let group =
        Group { id: GroupId { client, serial: 1 }, tasks: vec![two], sources: Default::default(), wanted: Vec::new() };
    sim.command(client, Command::Run { group, heuristic: "heft".into() });
    wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
    strike(&mut sim, "at 0s full client for 30s");
    sim.command(client, Command::Get { datum: a });
    let lost =
        wait_for(&mut sim, client, |event| matches!(event, Event::DatumAvailable { .. } | Event::DatumLost { .. }));
    let Event::DatumLost { error: TaskError::OutOfMemory { place, .. }, .. } = &lost else { panic!("{lost:?}") };
    assert_eq!(place, "in this program");
    while sim.now() < Time(60_000_000_000) && sim.step() {}
    sim.command(client, Command::Get { datum: a });
    wait_for(&mut sim, client, |event| matches!(event, Event::DatumAvailable { datum, .. } if *datum == a));
    // A plain call, and its argument.
    strike(&mut sim, "at 0s full server-1 for 60s\nat 0s full server-2 for 60s");
    let argument = DatumId { client, serial: 10 };
    sim.put(client, argument, array.clone(), Some(vec![1; array.size_bytes() as usize].into()));
    let sum = Task {
        id: TaskId { client, serial: 2 },
        kind: TaskKind::call("t/sum", definitions[1].signature.hash()),
        args: vec![n, Argument::Datum(argument)],
        outputs: vec![Output { datum: s, meta: Meta::scalar(Dtype::Float64) }],
        work_flops: Some(1e6),
        options: Default::default(),
    };
    sim.command(
        client,
        Command::Call { task: sum, sources: vec![(argument, array)], limits: Default::default(), deferral: None },
    );
    let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
    let Event::TaskEnded { report, .. } = &ended else { unreachable!("waited for") };
    let Err(TaskError::OutOfMemory { place, .. }) = &report.outcome else { panic!("{ended:?}") };
    assert!(place.starts_with("on server 'server-"), "{place}");
}

/// A group that reads another group's results waits for its plan. If there is none, the tasks that do not depend on it
/// are mapped all the same.
#[test]
fn a_group_continues_when_the_one_that_it_waits_for_cannot_be_mapped() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client, _) = lan::grid(&definitions, 1 << 30);
    // By then links are measured, and no update triggers a new check.
    sim.advance(120_000_000_000);
    let datum = |serial| DatumId { client, serial };
    let group = |serial, tasks| Group {
        id: GroupId { client, serial },
        tasks,
        sources: Default::default(),
        wanted: Vec::new(),
    };
    let sum = |serial: u64, read: DatumId| Task {
        id: TaskId { client, serial },
        kind: TaskKind::call("t/sum", definitions[1].signature.hash()),
        args: vec![number_of_elements(), Argument::Datum(read)],
        outputs: vec![Output { datum: datum(10 + serial), meta: Meta::scalar(Dtype::Float64) }],
        work_flops: Some(1e6),
        options: Default::default(),
    };
    let nobody_has = Task { kind: TaskKind::call("t/nothing", 0), ..two(&definitions[0], [datum(1), datum(2)]) };
    let made_here = two(&definitions[0], [datum(3), datum(4)]);
    let made_here = Task { id: TaskId { client, serial: 5 }, ..made_here };
    sim.command(client, Command::Run { group: group(1, vec![nobody_has]), heuristic: "heft".into() });
    let tasks = vec![sum(6, datum(1)), made_here, sum(7, datum(3))];
    sim.command(client, Command::Run { group: group(2, tasks), heuristic: "heft".into() });
    let mut outcomes = Vec::new();
    while outcomes.len() < 4 {
        let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
        let Event::TaskEnded { report, .. } = ended else { unreachable!("asked for") };
        outcomes.push((report.task.serial, report.outcome.is_ok()));
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(1, false), (5, true), (6, false), (7, true)]);
}

/// An agent that cannot decode some messages.
struct Unreading {
    agent: Agent,
    is_unreadable: fn(&Message) -> bool,
}

impl Machine for Unreading {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        let input = match input {
            Input::Received { from: peer, message } if (self.is_unreadable)(&message) => {
                out.push(Effect::Disconnect { peer });
                Input::PeerLost { peer, fault: ConnectionFault::Disconnected, why: "it cannot be read".into() }
            }
            input => input,
        };
        self.agent.handle(now, input, out);
    }
}

/// An agent from which a client is cut off several times, some seconds after it has requested a plan.
struct CutOff {
    agent: Agent,
    times: u32,
    asked: Option<(NodeId, Time)>,
}

impl Machine for CutOff {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match (&input, self.asked) {
            (Input::Received { from, message: Message::Map(_) }, _) if self.times > 0 => {
                self.asked = Some((*from, now));
                return;
            }
            (_, Some((peer, since))) if now.since(since) > 3_000_000_000 => {
                (self.asked, self.times) = (None, self.times - 1);
                out.push(Effect::Disconnect { peer });
                self.agent.handle(
                    now,
                    Input::PeerLost { peer, fault: ConnectionFault::Disconnected, why: "the cable is out".into() },
                    out,
                );
            }
            _ => {}
        }
        self.agent.handle(now, input, out);
    }
}

/// Starts that agent, a server of one slot, and a client that knows it.
fn grid_of(definitions: &[Definition], wrap: impl FnOnce(Agent) -> BoxedMachine) -> (Simulation, NodeId) {
    let mut sim = lan::hosts(0);
    sim.add_machine(HostId(0), Role::Agent, "agent", 0, move |id, _| {
        wrap(Agent::new(AgentConfig { id, name: "agent".into(), is_shared: true, identifier_key: Default::default() }))
    });
    let (name, functions) = ("server-1".to_string(), definitions.to_vec());
    sim.add_server(
        HostId(1),
        ServerSpec { name, slots: 1, is_stateless: false, memory_bytes: 1 << 30, disk_bytes: 0, functions },
    );
    let client = sim.add_client(HostId(3), "client");
    wait_for(&mut sim, client, |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == 1));
    (sim, client)
}

/// Runs a group with one task, both with the number `serial`.
fn run(sim: &mut Simulation, definitions: &[Definition], client: NodeId, serial: u64) {
    let data = [10 * serial, 10 * serial + 1].map(|serial| DatumId { client, serial });
    let task = Task { id: TaskId { client, serial }, ..two(&definitions[0], data) };
    let (id, sources) = (GroupId { client, serial }, Default::default());
    let group = Group { id, tasks: vec![task], sources, wanted: Vec::new() };
    sim.command(client, Command::Run { group, heuristic: "heft".into() });
}

/// Returns the outcomes of the next two tasks, in order of number.
fn two_outcomes(sim: &mut Simulation, client: NodeId) -> [(u64, Result<(), TaskError>); 2] {
    let mut outcomes = [(); 2].map(|()| {
        let ended = wait_for(sim, client, |event| matches!(event, Event::TaskEnded { .. }));
        let Event::TaskEnded { report, .. } = ended else { unreachable!("asked for") };
        (report.task.serial, report.outcome.map(|_| ()))
    });
    outcomes.sort_by_key(|(serial, _)| *serial);
    outcomes
}

fn is_plan_of_first(message: &Message) -> bool {
    matches!(message, Message::Map(MapMessage::ToAgent(MapToAgent::MapGroup(request))) if request.group.serial == 1)
}

/// Otherwise the request would be repeated, and lost, forever.
#[test]
fn a_request_that_the_agent_cannot_read_ends_in_an_error() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client) =
        grid_of(&definitions, |agent| Box::new(Unreading { agent, is_unreadable: is_plan_of_first }));
    run(&mut sim, &definitions, client, 1);
    for _ in 1..TASK_ATTEMPTS_MAX {
        wait_for(&mut sim, client, |event| matches!(event, Event::AgentLost { .. }));
    }
    // Other waiting requests must not fail with it.
    run(&mut sim, &definitions, client, 2);
    let outcomes = two_outcomes(&mut sim, client);
    let Err(TaskError::AgentLost { why, .. }) = &outcomes[0].1 else { panic!("{outcomes:?}") };
    assert!(why.contains("the peer hung up"), "{why}");
    assert!(outcomes[1].1.is_ok(), "{outcomes:?}");
}

/// The second request is queued behind the unreadable one, and must be sent before it once.
#[test]
fn a_request_that_is_lost_with_one_that_the_agent_cannot_read_is_read() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client) =
        grid_of(&definitions, |agent| Box::new(Unreading { agent, is_unreadable: is_plan_of_first }));
    run(&mut sim, &definitions, client, 1);
    run(&mut sim, &definitions, client, 2);
    let outcomes = two_outcomes(&mut sim, client);
    assert!(matches!(outcomes[0].1, Err(TaskError::AgentLost { .. })), "{outcomes:?}");
    assert!(outcomes[1].1.is_ok(), "{outcomes:?}");
}

/// The second request is between two unreadable ones, in each order.
#[test]
fn a_request_between_two_that_the_agent_cannot_read_is_read() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let is_unreadable = |message: &Message| matches!(message, Message::Map(MapMessage::ToAgent(MapToAgent::MapGroup(request))) if request.group.serial % 2 == 1);
    let (mut sim, client) = grid_of(&definitions, move |agent| Box::new(Unreading { agent, is_unreadable }));
    (1..=3).for_each(|serial| run(&mut sim, &definitions, client, serial));
    let outcomes = [(); 3].map(|()| {
        let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
        let Event::TaskEnded { report, .. } = ended else { unreachable!("asked for") };
        (report.task.serial, report.outcome.map(|_| ()))
    });
    for (serial, outcome) in outcomes {
        match serial {
            2 => assert_eq!(outcome, Ok(())),
            _ => assert!(matches!(outcome, Err(TaskError::AgentLost { .. })), "{outcome:?}"),
        }
    }
}

/// A group that is only planned is stored separately from a running one.
#[test]
fn a_plan_that_the_agent_cannot_read_ends_no_group() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let (mut sim, client) =
        grid_of(&definitions, |agent| Box::new(Unreading { agent, is_unreadable: is_plan_of_first }));
    let tasks = vec![two(&definitions[0], [10, 11].map(|serial| DatumId { client, serial }))];
    let (id, sources) = (GroupId { client, serial: 1 }, Default::default());
    let group = Group { id, tasks, sources, wanted: Vec::new() };
    sim.command(client, Command::Plan { group, heuristic: "heft".into(), is_incremental: false });
    run(&mut sim, &definitions, client, 2);
    run(&mut sim, &definitions, client, 3);
    let outcomes = two_outcomes(&mut sim, client);
    assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{outcomes:?}");
    let event = wait_for(&mut sim, client, |event| matches!(event, Event::GroupNotMapped { .. }));
    assert!(matches!(event, Event::GroupNotMapped { error: TaskError::AgentLost { .. }, .. }), "{event:?}");
}

/// Earlier, a plan that named a server whose loss the client had just noticed was never requested again.
#[test]
fn a_group_is_planned_whenever_a_server_is_lost_meanwhile() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    for lost_after_us in (0..600).step_by(10) {
        let (mut sim, client, servers) = lan::grid(&definitions, 1 << 30);
        sim.advance(SECOND_NS);
        let tasks = (1..=2).map(|serial| {
            let task = two(&definitions[0], [10 * serial, 10 * serial + 1].map(|serial| DatumId { client, serial }));
            Task { id: TaskId { client, serial }, ..task }
        });
        let (id, sources) = (GroupId { client, serial: 1 }, Default::default());
        let group = Group { id, tasks: tasks.collect(), sources, wanted: Vec::new() };
        sim.command(client, Command::Plan { group, heuristic: "heft".into(), is_incremental: false });
        sim.advance(lost_after_us * 1_000);
        sim.kill(servers[1]);
        let planned = wait_for(&mut sim, client, |event| matches!(event, Event::GroupPlanned { .. }));
        let Event::GroupPlanned { plan, .. } = planned else { unreachable!("asked for") };
        assert_eq!(plan.tasks.len(), 2, "{lost_after_us} us");
    }
}

/// The agent had decoded the request each time.
#[test]
fn losses_of_the_connection_do_not_end_a_group_that_is_being_mapped() {
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let times = TASK_ATTEMPTS_MAX + 2;
    let (mut sim, client) = grid_of(&definitions, move |agent| Box::new(CutOff { agent, times, asked: None }));
    run(&mut sim, &definitions, client, 1);
    for _ in 0..times {
        wait_for(&mut sim, client, |event| matches!(event, Event::AgentLost { .. }));
    }
    let ended = wait_for(&mut sim, client, |event| matches!(event, Event::TaskEnded { .. }));
    let Event::TaskEnded { report, .. } = ended else { unreachable!("asked for") };
    assert!(report.outcome.is_ok(), "{:?}", report.outcome);
}

#[test]
fn a_question_that_the_catalog_cannot_read_ends_in_an_error() {
    let is_unreadable = |message: &Message| {
        let Message::Catalog(CatalogMessage::FromClient(ClientToCatalog::Find { name, .. })) = message else {
            return false;
        };
        name == "bad"
    };
    let (mut sim, client) = grid_of(&[], move |agent| Box::new(Unreading { agent, is_unreadable }));
    // The second request is lost with the first.
    for (ask, name) in [(1, "bad"), (2, "good")] {
        let command = NameCommand::Find { name: name.into(), waits: false };
        sim.command(client, Command::Name { request: ask, command });
    }
    let mut answers = [(); 2].map(|()| {
        let named = wait_for(&mut sim, client, |event| matches!(event, Event::NameResult { .. }));
        let Event::NameResult { request: ask, answer } = named else { unreachable!("asked for") };
        (ask, answer.expect_err("nothing is there"))
    });
    answers.sort_by_key(|(ask, _)| *ask);
    assert!(matches!(answers[0].1, NameError::AgentDisconnects { .. }), "{answers:?}");
    let text = answers[0].1.to_string();
    assert!(text.contains(" closed the connection 5 times when it was asked for 'bad' ("), "{text}");
    assert!(text.contains("the peer hung up") && text.contains("gridloom status"), "{text}");
    assert!(matches!(answers[1].1, NameError::Unknown { .. }), "{answers:?}");
}

/// The location of data is requested at a heartbeat. The waiting request is sent and decoded before that, on each connection.
#[test]
fn a_search_that_the_catalog_cannot_read_ends_beside_a_question_that_it_reads() {
    let is_unreadable = |message: &Message| {
        matches!(message, Message::Catalog(CatalogMessage::FromClient(ClientToCatalog::Locate { .. })))
    };
    let (mut sim, client) = grid_of(&[], move |agent| Box::new(Unreading { agent, is_unreadable }));
    let (datum, meta, name) = (DatumId { client, serial: 1 }, array(), "mesh".to_string());
    sim.put(client, datum, meta.clone(), None);
    let put = NameCommand::Put {
        name: name.clone(),
        datum,
        meta,
        replaces: false,
        replicas: 1,
        is_durable: false,
        method: Default::default(),
        made_by: None,
        task: TaskId { client, serial: 2 },
        group: GroupId { client, serial: 2 },
    };
    let answer_to = |sim: &mut Simulation, ask: u64, command: NameCommand| {
        sim.command(client, Command::Name { request: ask, command });
        let named = wait_for(sim, client, |event| matches!(event, Event::NameResult { request: it, .. } if *it == ask));
        let Event::NameResult { answer, .. } = named else { unreachable!("asked for") };
        answer.unwrap()
    };
    answer_to(&mut sim, 1, put);
    let found = answer_to(&mut sim, 2, NameCommand::Find { name, waits: false });
    let CatalogAnswer::Found { named, holders } = found else { panic!("{found:?}") };
    let waiting = NameCommand::Find { name: "later".into(), waits: true };
    sim.command(client, Command::Name { request: 3, command: waiting });
    sim.kill(holders[0].0);
    sim.command(client, Command::Get { datum: named.datum });
    let event = wait_for(&mut sim, client, |event| matches!(event, Event::DatumLost { .. } | Event::NameResult { .. }));
    let Event::DatumLost { error, .. } = event else { panic!("{event:?}") };
    let text = error.to_string();
    assert!(text.contains(" closed the connection 5 times when it was asked where the data are ("), "{text}");
}
