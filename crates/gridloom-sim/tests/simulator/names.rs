//! Regression tests of shared names under faults. Each case was found by the soak.

use crate::lan;
use gridloom_base::limits::RECONNECT_NS_MAX;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NameError, NodeId, SplitMix64, TaskError, TaskId};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_platform::HostId;
use gridloom_sim::faults::Scenario;
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str =
    "Module t; Define copy(IN int n, IN double x[n], OUT double y[n]) CalcOrder n Calls \"C\" copy(n, x, y);";
/// Small data travel with messages, large data separately.
const SMALL: u64 = 100;
const LARGE: u64 = 8_000;

fn spec(name: &str) -> ServerSpec {
    let functions = gridloom_idl::parse_file(IDL, "names.idl").unwrap().definitions;
    ServerSpec { name: name.into(), slots: 1, is_stateless: false, memory_bytes: 1 << 24, disk_bytes: 0, functions }
}

type Answer = Result<CatalogAnswer, NameError>;

/// An agent on host-0, two servers on host-1 and host-2, a client on host-3.
struct Stage {
    sim: Simulation,
    servers: [NodeId; 2],
    client: NodeId,
    elements: u64,
    hash: u64,
    next: u64,
}

impl Stage {
    fn new(elements: u64) -> Stage {
        let mut sim = Simulation::new(lan::platform(6), SimConfig::default());
        let hash = spec("").functions[0].signature.hash();
        sim.add_agent(HostId(0), "agent");
        let servers = [1, 2].map(|host| sim.add_server(HostId(host), spec(&format!("server-{host}"))));
        let client = sim.add_client(HostId(3), "client");
        let mut stage = Stage { sim, servers, client, elements, hash, next: 0 };
        stage.until_all_are_there();
        stage
    }

    fn until_all_are_there(&mut self) {
        self.until(|event| match event {
            Event::Directory { grid, .. } => (grid.servers.len() == 2).then_some(()),
            _ => None,
        });
    }

    fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn until<T>(&mut self, mut is_it: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = self.sim.now() + 200 * SECOND_NS;
        loop {
            let event = self.sim.next_event(self.client, Some(deadline)).expect("it comes within 200 s");
            if let Some(found) = is_it(&event) {
                return found;
            }
        }
    }

    fn ask(&mut self, command: NameCommand) -> Answer {
        let ask = self.serial();
        self.sim.command(self.client, Command::Name { request: ask, command });
        self.until(|event| match event {
            Event::NameResult { request: answered, answer } if *answered == ask => Some(answer.clone()),
            _ => None,
        })
    }

    fn meta(&self) -> Meta {
        Meta::array(Dtype::Float64, &[self.elements])
    }

    fn put(&mut self, name: &str) {
        let (client, serial, meta) = (self.client, self.serial(), self.meta());
        let datum = DatumId { client, serial };
        self.sim.put(client, datum, meta, None);
        assert_eq!(self.put_datum(name, datum), Ok(CatalogAnswer::Put));
        self.sim.command(client, Command::Release { data: vec![datum] });
    }

    fn put_datum(&mut self, name: &str, datum: DatumId) -> Answer {
        let (client, serial, meta) = (self.client, self.serial(), self.meta());
        let (task, group) = (TaskId { client, serial }, GroupId { client, serial });
        self.ask(NameCommand::Put {
            name: name.into(),
            datum,
            meta,
            replaces: false,
            replicas: 1,
            is_durable: false,
            method: gridloom_base::Method::Auto,
            made_by: None,
            task,
            group,
        })
    }

    /// Returns the datum of a name, the server that has it, and the other server.
    fn find(&mut self, name: &str) -> (DatumId, NodeId, NodeId) {
        let answer = self.ask(NameCommand::Find { name: name.into(), waits: false });
        let Ok(CatalogAnswer::Found { named, holders }) = answer else { panic!("{answer:?}") };
        let holder = holders[0].0;
        (named.datum, holder, self.servers.into_iter().find(|server| *server != holder).unwrap())
    }

    /// Makes a task read a datum on a server. Its result is released immediately.
    fn read(&mut self, datum: DatumId, only: NodeId) -> TaskId {
        let (id, result) = self.call(datum, only);
        self.sim.command(self.client, Command::Release { data: vec![result] });
        id
    }

    fn call(&mut self, datum: DatumId, only: NodeId) -> (TaskId, DatumId) {
        let (client, serial, meta) = (self.client, self.serial(), self.meta());
        let (id, result) = (TaskId { client, serial }, DatumId { client, serial });
        let n = (self.elements as i32).to_ne_bytes().to_vec();
        let task = Task {
            id,
            kind: TaskKind::call("t/copy", self.hash),
            args: vec![Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: n }, Argument::Datum(datum)],
            outputs: vec![Output { datum: result, meta: meta.clone() }],
            work_flops: Some(1e9),
            options: CallOptions { bound_to: Some(only), ..CallOptions::default() },
        };
        let sources = [(datum, Source { meta, at: Vec::new() })].into();
        let group = Group { id: GroupId { client, serial }, tasks: vec![task], sources, wanted: vec![result] };
        self.sim.command(client, Command::Run { group, heuristic: "heft".into() });
        (id, result)
    }

    fn end_of(&mut self, task: TaskId) -> Result<(), TaskError> {
        self.until(|event| match event {
            Event::TaskEnded { report, .. } if report.task == task => Some(report.outcome.clone().map(drop)),
            Event::ServerLost { name, why, .. } => panic!("the client lost {name}: {why}"),
            _ => None,
        })
    }

    fn get(&mut self, datum: DatumId) -> Result<(), TaskError> {
        self.sim.command(self.client, Command::Get { datum });
        self.until(|event| match event {
            Event::DatumAvailable { datum: here, .. } if *here == datum => Some(Ok(())),
            Event::DatumLost { datum: lost, error } if *lost == datum => Some(Err(error.clone())),
            _ => None,
        })
    }

    /// Schedules faults; their times count from now.
    fn fault(&mut self, faults: &str) {
        let scenario = Scenario::parse(faults, "faults").unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut SplitMix64::new(0), self.sim.now());
        self.sim.schedule(strikes);
    }

    fn host(&self, server: NodeId) -> &'static str {
        if server == self.servers[0] { "host-1" } else { "host-2" }
    }

    fn delete_leaves_nothing(&mut self, name: &str, datum: DatumId) {
        assert_eq!(self.ask(NameCommand::Delete { name: name.into() }), Ok(CatalogAnswer::Deleted));
        self.sim.advance(2 * SECOND_NS);
        self.has_nothing_of(datum);
    }

    fn has_nothing_of(&self, datum: DatumId) {
        for server in self.servers {
            assert!(self.sim.value(server, datum).is_none(), "{server} has it still");
            let left = self.sim.server(server).unwrap().leak_counts();
            assert!(left.iter().all(|(_, count)| *count == 0), "{server}: {left:?}");
        }
    }
}

#[test]
fn a_result_that_is_put_before_its_call_has_ended_stays_on_its_server() {
    let mut stage = Stage::new(LARGE);
    stage.put("input");
    let (input, first, other) = stage.find("input");
    // Try both servers: one of them is not the one that the catalog chooses for data that are not stored anywhere.
    for (name, server) in [("at the first", first), ("at the other", other)] {
        let (_, result) = stage.call(input, server);
        assert_eq!(stage.put_datum(name, result), Ok(CatalogAnswer::Put));
        assert_eq!(stage.find(name).1, server, "'{name}' has moved");
    }
}

#[test]
fn a_result_of_a_call_that_fails_is_not_put() {
    let mut stage = Stage::new(LARGE);
    stage.put("input");
    let (input, _, other) = stage.find("input");
    let (task, result) = stage.call(input, other);
    stage.sim.command(stage.client, Command::Cancel { tasks: vec![task] });
    assert!(matches!(stage.put_datum("result", result), Err(NameError::NotStored { .. })));
}

#[test]
fn what_a_program_has_brought_servers_have_from_servers() {
    for elements in [SMALL, LARGE] {
        let mut stage = Stage::new(elements);
        stage.put("mesh");
        let (mesh, _, other) = stage.find("mesh");
        assert_eq!(stage.get(mesh), Ok(()));
        let task = stage.read(mesh, other);
        assert_eq!(stage.end_of(task), Ok(()), "a client that sends what is not its own is put out");
    }
}

#[test]
fn copies_go_with_their_name() {
    for (elements, faults) in [(SMALL, ""), (LARGE, ""), (SMALL, "at 1s restart agent"), (LARGE, "at 1s restart agent")]
    {
        let mut stage = Stage::new(elements);
        stage.put("mesh");
        let (mesh, _, other) = stage.find("mesh");
        let task = stage.read(mesh, other);
        assert_eq!(stage.end_of(task), Ok(()));
        stage.sim.command(stage.client, Command::Release { data: vec![mesh] });
        stage.fault(faults);
        stage.sim.advance(20 * SECOND_NS);
        assert!(stage.sim.value(other, mesh).is_some(), "a copy is kept while there is room");
        stage.delete_leaves_nothing("mesh", mesh);
    }
}

#[test]
fn a_copy_is_found_by_a_new_agent_when_the_first_server_is_lost() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let (mesh, holder, other) = stage.find("mesh");
    let task = stage.read(mesh, other);
    assert_eq!(stage.end_of(task), Ok(()));
    stage.fault("at 1s restart agent");
    stage.sim.advance(20 * SECOND_NS);
    stage.sim.kill(holder);
    stage.sim.advance(SECOND_NS);
    let found = stage.find("mesh");
    assert_eq!((found.0, found.1), (mesh, other));
}

#[test]
fn a_program_that_ends_while_it_reads_leaves_nothing() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let client = stage.client;
    stage.client = stage.sim.add_client(HostId(4), "second");
    stage.until_all_are_there();
    let (mesh, _, other) = stage.find("mesh");
    // One task runs, and the others wait.
    (0..3).for_each(|_| _ = stage.read(mesh, other));
    stage.sim.advance(SECOND_NS / 2);
    stage.sim.kill(stage.client);
    stage.client = client;
    stage.sim.advance(2 * SECOND_NS);
    assert_eq!(stage.ask(NameCommand::Delete { name: "mesh".into() }), Ok(CatalogAnswer::Deleted));
    // The client might return, as after a short break of its connection.
    assert!(stage.servers.iter().any(|server| stage.sim.value(*server, mesh).is_some()));
    stage.sim.advance(RECONNECT_NS_MAX);
    stage.has_nothing_of(mesh);
}

#[test]
fn a_program_reads_on_after_a_short_break_of_its_connection_to_the_agent() {
    for fault in ["at 0s reset client agent", "at 0s half-open agent client"] {
        let mut stage = Stage::new(LARGE);
        stage.put("mesh");
        let (mesh, _, other) = stage.find("mesh");
        assert_eq!(stage.ask(NameCommand::Delete { name: "mesh".into() }), Ok(CatalogAnswer::Deleted));
        stage.fault(fault);
        stage.sim.advance(3 * RECONNECT_NS_MAX);
        let task = stage.read(mesh, other);
        assert_eq!(stage.end_of(task), Ok(()), "{fault}");
        stage.sim.command(stage.client, Command::Release { data: vec![mesh] });
        stage.sim.advance(2 * SECOND_NS);
        stage.has_nothing_of(mesh);
    }
}

#[test]
fn a_task_whose_server_cannot_reach_the_data_ends() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let (mesh, _, other) = stage.find("mesh");
    stage.fault("at 0s cut host-1 host-2");
    let task = stage.read(mesh, other);
    let Err(error) = stage.end_of(task) else { panic!("it cannot run") };
    assert!(error.to_string().contains("cannot reach any server that has the datum"), "{error}");
}

#[test]
fn a_task_whose_server_has_lost_data_and_agent_ends() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let (mesh, _, other) = stage.find("mesh");
    let host = stage.host(other);
    stage.fault(&format!("at 0s cut host-1 host-2\nat 10ms cut host-0 {host}"));
    let task = stage.read(mesh, other);
    let Err(error) = stage.end_of(task) else { panic!("it cannot run") };
    assert!(error.to_string().contains("has lost the agent"), "{error}");
}

#[test]
fn a_program_that_cannot_reach_the_data_gets_an_error() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let (mesh, holder, _) = stage.find("mesh");
    let host = stage.host(holder);
    stage.fault(&format!("at 0s cut host-3 {host}"));
    stage.sim.advance(20 * SECOND_NS);
    let Err(error) = stage.get(mesh) else { panic!("it cannot come") };
    assert!(error.to_string().contains("cannot be reached from here"), "{error}");
}

#[test]
fn a_group_continues_when_what_one_call_reads_is_lost() {
    let mut stage = Stage::new(LARGE);
    for name in ["a", "b"] {
        stage.put(name);
    }
    let ((a, at_a, _), (b, at_b, _)) = (stage.find("a"), stage.find("b"));
    assert_ne!(at_a, at_b, "the one with most room has it");
    stage.sim.kill(at_a);
    stage.sim.advance(2 * SECOND_NS);
    let (lost, made) = (stage.read(a, at_b), stage.read(b, at_b));
    let ends = [made, lost].map(|task| {
        stage.until(|event| match event {
            Event::TaskEnded { report, .. } if report.task == task => Some(report.outcome.is_ok()),
            _ => None,
        })
    });
    assert_eq!(ends, [true, false]);
}

#[test]
fn a_session_without_an_agent_has_no_names() {
    let mut stage = Stage::new(SMALL);
    let servers = stage.servers.map(|server| stage.sim.address(server).to_string()).to_vec();
    stage.client = stage.sim.add_independent(HostId(4), "independent", servers);
    stage.until_all_are_there();
    for command in [
        NameCommand::Find { name: "mesh".into(), waits: true },
        NameCommand::Find { name: "mesh".into(), waits: false },
        NameCommand::Delete { name: "mesh".into() },
        NameCommand::List { prefix: String::new(), after: String::new() },
    ] {
        let answer = stage.ask(command.clone());
        assert!(matches!(answer, Err(NameError::NoAgent { .. })), "{command:?} gives {answer:?}");
    }
}

/// An agent that was paused is notified late that its client has asked whether a put exists.
#[test]
fn a_program_that_has_put_a_name_does_not_read_it() {
    let mut stage = Stage::new(LARGE);
    stage.fault("at 300us pause agent for 4s");
    stage.put("mesh");
    stage.sim.advance(5 * SECOND_NS);
    let (mesh, ..) = stage.find("mesh");
    stage.sim.command(stage.client, Command::Release { data: vec![mesh] });
    stage.delete_leaves_nothing("mesh", mesh);
    let agent = NodeId(1);
    assert_eq!(stage.sim.agent(agent).unwrap().leak_counts().iter().map(|(_, count)| count).sum::<usize>(), 0);
}

/// The agent gives up a silent server before the client does, and the copy is placed elsewhere.
#[test]
fn a_server_that_wakes_waits_for_no_copy_that_was_sent_to_another() {
    let mut stage = Stage::new(LARGE);
    stage.put("a");
    let (_, _, next) = stage.find("a");
    // A client that was stopped itself takes longer to give up a peer.
    let server = 1 + usize::from(next == stage.servers[1]);
    stage.fault(&format!("at 0s pause server-{server} for 14s\nat 400ms pause client for 4s"));
    stage.put("b");
    let (_, holder, _) = stage.find("b");
    assert_ne!(holder, next);
    stage.sim.advance(20 * SECOND_NS);
    let left = stage.sim.server(next).unwrap().leak_counts();
    assert!(left.iter().all(|(_, count)| *count == 0), "{left:?}");
}

/// A name is deleted while a program reads its datum; then the agent restarts.
#[test]
fn a_deleted_name_does_not_return_and_is_still_read() {
    for elements in [SMALL, LARGE] {
        let mut stage = Stage::new(elements);
        stage.put("mesh");
        let (mesh, holder, other) = stage.find("mesh");
        assert_eq!(stage.ask(NameCommand::Delete { name: "mesh".into() }), Ok(CatalogAnswer::Deleted));
        stage.fault("at 0s restart agent");
        stage.sim.advance(30 * SECOND_NS);
        let found = stage.ask(NameCommand::Find { name: "mesh".into(), waits: false });
        assert!(matches!(found, Err(NameError::Unknown { .. })), "{found:?}");
        let task = stage.read(mesh, other);
        assert_eq!(stage.end_of(task), Ok(()));
        stage.sim.command(stage.client, Command::Release { data: vec![mesh] });
        stage.sim.advance(2 * SECOND_NS);
        assert!([holder, other].iter().all(|server| stage.sim.value(*server, mesh).is_none()));
    }
}

/// Earlier, a server disconnected from a silent source after two heartbeats even if no other server had the data.
#[test]
fn a_silent_server_is_waited_for_if_no_other_has_the_data() {
    for has_other in [false, true] {
        let mut stage = Stage::new(LARGE);
        ["a", "b", "c", "d"].iter().for_each(|name| stage.put(name));
        let (a, holder, reader) = stage.find("a");
        let connect = stage.read(a, reader);
        assert_eq!(stage.end_of(connect), Ok(()));
        let same = ["c", "d"].into_iter().find(|name| stage.find(name).1 == holder).expect("one of them");
        let (datum, ..) = stage.find(same);
        if has_other {
            let third = stage.sim.add_server(HostId(4), spec("server-3"));
            stage.until(|event| match event {
                Event::Directory { grid, .. } => (grid.servers.len() == 3).then_some(()),
                _ => None,
            });
            let copy = stage.read(datum, third);
            assert_eq!(stage.end_of(copy), Ok(()));
        }
        let name = stage.host(holder).replace("host", "server");
        stage.fault(&format!("at 0s pause {name} for 6s"));
        stage.sim.advance(SECOND_NS / 100);
        let begun = stage.sim.now();
        let task = stage.read(datum, reader);
        stage.sim.advance(5 * SECOND_NS);
        assert_eq!(stage.sim.is_connected(reader, holder), !has_other);
        assert_eq!(stage.end_of(task), Ok(()));
        let seconds = stage.sim.now().since(begun) / SECOND_NS;
        assert!(if has_other { seconds < 6 } else { (6..8).contains(&seconds) }, "{seconds} s");
    }
}

/// The server of an older version is cut off from an agent that restarts, at which the name is put again.
#[test]
fn what_is_put_at_a_new_agent_holds_when_an_old_server_returns() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let (_, holder, _) = stage.find("mesh");
    let host = stage.host(holder);
    stage.fault(&format!("at 0s cut host-0 {host}\nat 14s restart agent\nat 40s heal host-0 {host}"));
    stage.sim.advance(30 * SECOND_NS);
    stage.put("mesh");
    let (new, at, _) = stage.find("mesh");
    assert_ne!(at, holder, "the other is cut off");
    stage.sim.advance(40 * SECOND_NS);
    assert_eq!(stage.find("mesh").0, new);
}

/// A server is cut off while the name of its datum is deleted.
#[test]
fn a_server_that_was_cut_off_does_not_bring_a_deleted_name_back() {
    let mut stage = Stage::new(LARGE);
    stage.put("mesh");
    let (mesh, holder, _) = stage.find("mesh");
    stage.sim.command(stage.client, Command::Release { data: vec![mesh] });
    let host = stage.host(holder);
    stage.fault(&format!("at 0s cut host-0 {host}\nat 40s heal host-0 {host}"));
    stage.sim.advance(30 * SECOND_NS);
    assert_eq!(stage.ask(NameCommand::Delete { name: "mesh".into() }), Ok(CatalogAnswer::Deleted));
    stage.sim.advance(40 * SECOND_NS);
    let found = stage.ask(NameCommand::Find { name: "mesh".into(), waits: false });
    assert!(matches!(found, Err(NameError::Unknown { .. })), "{found:?}");
    assert!(stage.sim.value(holder, mesh).is_none(), "it is dropped");
}
