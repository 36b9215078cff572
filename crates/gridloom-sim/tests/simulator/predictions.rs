//! Compares the predicted with the actual time of groups that read a shared datum, for each transfer method.

use crate::lan;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, METHODS, Meta, Method, NodeId, TaskId};
use gridloom_core::graph::{Argument, CallOptions, Group, Source, Task, TaskKind};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_idl::{ActualArgument, Definition};
use gridloom_platform::HostId;
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str = "Module t;\n\
    Define gets(IN int n) CalcOrder 1e7 Gets(\"mesh\", 8*n) Calls \"C\" p(n);\n\
    Define opens(IN int n) CalcOrder 1e7 Gets(\"small\", 8) Calls \"C\" p(n);\n\
    Define makes(IN int n) CalcOrder 1e7 Puts(\"made\", 8*n) Calls \"C\" p(n);\n\
    Define makes_direct(IN int n) CalcOrder 1e7 Puts(\"made\", 8*n, method direct) Calls \"C\" p(n);\n\
    Define gets_made(IN int n) CalcOrder 1e7 Gets(\"made\", 8*n) Calls \"C\" p(n);\n\
    Define reads(IN int n, IN double x[n]) CalcOrder 1e7 Calls \"C\" p(n, x);\n";
/// 80 MB, which take 0.8 s over a link.
const ELEMENTS: i32 = 10_000_000;

struct Stage {
    sim: Simulation,
    client: NodeId,
    servers: Vec<NodeId>,
    functions: Vec<Definition>,
    next: u64,
}

impl Stage {
    fn new(servers: u32) -> Stage {
        let functions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let storages = (1..=servers).map(|host| (HostId(host), HostId(0))).collect();
        let mut sim = Simulation::new(lan::platform(50), SimConfig { storages, ..SimConfig::default() });
        sim.add_agent(HostId(0), "agent");
        let spec = |host| ServerSpec {
            name: format!("server-{host:02}"),
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            functions: functions.clone(),
        };
        let nodes: Vec<NodeId> = (1..=servers).map(|host| sim.add_server(HostId(host), spec(host))).collect();
        let client = sim.add_client(HostId(servers + 1), "client");
        let all =
            |event: &Event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == servers as usize);
        lan::wait_for(&mut sim, client, all);
        sim.advance(30 * SECOND_NS);
        Stage { sim, client, servers: nodes, functions, next: 0 }
    }

    fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn ask(&mut self, command: NameCommand) -> CatalogAnswer {
        let number = self.serial();
        self.sim.command(self.client, Command::Name { request: number, command });
        let is_it = |event: &Event| matches!(event, Event::NameResult { request, .. } if *request == number);
        match lan::wait_for(&mut self.sim, self.client, is_it) {
            Event::NameResult { answer, .. } => answer.unwrap(),
            _ => unreachable!("looked for above"),
        }
    }

    fn meta() -> Meta {
        Meta::array(Dtype::Float64, &[ELEMENTS as u64])
    }

    /// Makes the functions of each server get a small datum: their sessions measure links when they begin.
    fn open_sessions(&mut self) {
        self.put("small", Meta::array(Dtype::Float64, &[1]), Method::Auto, 1);
        let tasks = self.servers.clone().into_iter().map(|server| self.call("t/opens", None, server)).collect();
        self.run("heft", tasks, None);
        self.sim.advance(30 * SECOND_NS);
    }

    /// Puts a name. Returns its datum, and the servers that have it.
    fn put(&mut self, name: &str, meta: Meta, method: Method, replicas: u16) -> (DatumId, Vec<NodeId>) {
        let (client, serial) = (self.client, self.serial());
        let datum = DatumId { client, serial };
        self.sim.put(client, datum, meta.clone(), None);
        let put = NameCommand::Put {
            name: name.into(),
            datum,
            meta,
            replaces: false,
            replicas,
            is_durable: false,
            method,
            made_by: None,
            task: TaskId { client, serial },
            group: GroupId { client, serial },
        };
        assert_eq!(self.ask(put), CatalogAnswer::Put);
        match self.ask(NameCommand::Find { name: name.into(), waits: false }) {
            CatalogAnswer::Found { named, holders } => {
                (named.datum, holders.into_iter().map(|(node, _)| node).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns a call that gets the datum by its name, or has it as an argument.
    fn call(&mut self, function: &str, argument: Option<DatumId>, only: NodeId) -> Task {
        let (client, serial) = (self.client, self.serial());
        let found = self.functions.iter().find(|definition| definition.signature.name == function).unwrap();
        let (meta, bytes) = (Meta::scalar(Dtype::Int32), ELEMENTS.to_ne_bytes().to_vec());
        let count = ActualArgument { meta: meta.clone(), inline: Some(bytes.clone()) };
        let value = argument.map(|_| ActualArgument { meta: Stage::meta(), inline: None });
        let actual: Vec<ActualArgument> = [count].into_iter().chain(value).collect();
        let uses = found.signature.bind(&actual, &[]).unwrap().uses;
        let inline = Argument::Inline { meta, bytes };
        Task {
            id: TaskId { client, serial },
            kind: TaskKind::call(function, found.signature.hash()),
            args: [inline].into_iter().chain(argument.map(Argument::Datum)).collect(),
            outputs: Vec::new(),
            work_flops: Some(1e7),
            options: CallOptions { bound_to: Some(only), uses: uses.into(), ..CallOptions::default() },
        }
    }

    /// Returns the predicted and the actual time of a group, seconds.
    fn run(&mut self, heuristic: &str, tasks: Vec<Task>, argument: Option<DatumId>) -> (f64, f64) {
        let id = GroupId { client: self.client, serial: self.serial() };
        let sources =
            argument.map(|datum| (datum, Source { meta: Stage::meta(), at: Vec::new() })).into_iter().collect();
        let group = Group { id, tasks, sources, wanted: Vec::new() };
        self.sim.command(self.client, Command::Run { group, heuristic: heuristic.into() });
        let planned = lan::wait_for(&mut self.sim, self.client, |event| matches!(event, Event::GroupPlanned { .. }));
        let Event::GroupPlanned { plan, .. } = planned else { unreachable!("looked for above") };
        let began = self.sim.now();
        lan::wait_for(&mut self.sim, self.client, |event| matches!(event, Event::GroupEnded { .. }));
        (plan.makespan_s, self.sim.now().since(began) as f64 / SECOND_NS as f64)
    }
}

/// Calls a function on all servers that do not have the datum. The prediction must be within a tenth of the actual time.
fn check(method: Method, servers: u32, replicas: u16, by_name: bool) {
    let mut stage = Stage::new(servers);
    stage.open_sessions();
    let (datum, holders) = stage.put("mesh", Stage::meta(), method, replicas);
    let argument = (!by_name).then_some(datum);
    let readers: Vec<NodeId> = stage.servers.iter().copied().filter(|server| !holders.contains(server)).collect();
    let function = if by_name { "t/gets" } else { "t/reads" };
    let tasks = readers.iter().map(|server| stage.call(function, argument, *server)).collect();
    let (predicted_s, took_s) = stage.run("auto", tasks, argument);
    let how = if by_name { "by name" } else { "as an argument" };
    let what =
        format!("{method}, {servers} servers, {replicas} with it, {how}: {predicted_s:.3} s predicted, {took_s:.3} s");
    println!("{what}");
    assert!((predicted_s - took_s).abs() < 0.1 * took_s, "{what}");
}

#[test]
fn a_plan_has_the_time_of_the_method() {
    for entry in METHODS {
        for (servers, replicas) in [(2, 1), (5, 1), (16, 1), (3, 2)] {
            check(entry.method, servers, replicas, true);
            check(entry.method, servers, replicas, false);
        }
    }
}

#[test]
fn a_plan_has_the_time_of_the_method_that_a_function_declares_for_what_it_puts() {
    let run = |makes: &str| {
        let mut stage = Stage::new(5);
        stage.open_sessions();
        let servers = stage.servers.clone();
        let made = stage.call(makes, None, servers[0]);
        let gets: Vec<Task> = servers[1..].iter().map(|server| stage.call("t/gets_made", None, *server)).collect();
        let tasks = [vec![made], gets].concat();
        stage.run("auto", tasks, None)
    };
    for (makes, least_s) in [("t/makes", 0.8), ("t/makes_direct", 3.2)] {
        let (predicted_s, took_s) = run(makes);
        let what = format!("{makes}: {predicted_s:.3} s predicted, {took_s:.3} s");
        println!("{what}");
        assert!((predicted_s - took_s).abs() < 0.1 * took_s && (1.0..1.15).contains(&(took_s / least_s)), "{what}");
    }
}

/// The last server is fewer parts behind than in a chain.
#[test]
fn a_plan_has_the_time_of_two_trees_to_many_servers() {
    check(Method::Swarm, 48, 1, true);
    check(Method::Auto, 48, 1, true);
}
