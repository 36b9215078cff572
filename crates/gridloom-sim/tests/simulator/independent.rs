//! Tests of clients without an agent, in simulation: they learn of the servers from the servers themselves, map calls,
//! and recover lost results.

use crate::lan;
use std::collections::BTreeSet;

use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId};
use gridloom_core::graph::{Argument, Group, Output, Task, TaskKind};
use gridloom_core::node::{ClientWithAgent, ClientWithAgentConfig, Command, Event, Role, Server, ServerConfig};
use gridloom_idl::Definition;
use gridloom_platform::HostId;
use gridloom_sim::Simulation;

const IDL: &str = "Module t;
Define made(IN int n, OUT double a[n]) CalcOrder 5e8 Calls \"C\" made(n, a);
Define next(IN int n, IN double a[n], OUT double b[n]) CalcOrder 5e8 Calls \"C\" next(n, a, b);";
const ELEMENTS: u64 = 200_000;
/// Number of tasks per chain; each takes half a second.
const LENGTH: u64 = 4;
const CHAINS: u64 = 3;

struct Test {
    sim: Simulation,
    servers: Vec<NodeId>,
    definitions: Vec<Definition>,
}

impl Test {
    /// Starts three servers on hosts of their own.
    fn new(seed: u64) -> Test {
        let mut sim = lan::hosts(seed);
        let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let servers = (0..3).map(|number| Test::serve(&mut sim, &definitions, number)).collect();
        Test { sim, servers, definitions }
    }

    fn serve(sim: &mut Simulation, definitions: &[Definition], number: u32) -> NodeId {
        Test::serve_as(sim, definitions, number, format!("server-{number}"))
    }

    fn serve_as(sim: &mut Simulation, definitions: &[Definition], number: u32, name: String) -> NodeId {
        let functions = definitions.iter().map(|definition| definition.signature.clone()).collect();
        sim.add_machine(HostId(number), Role::Server, &name.clone(), 1, |id, address| {
            Box::new(Server::new(ServerConfig {
                id,
                name,
                address: address.into(),
                agent: String::new(),
                slots: 1,
                cores: 0,
                queue_depth: 1,
                is_stateless: false,
                memory_bytes: 1 << 30,
                disk_bytes: 0,
                data_max: u64::MAX,
                slowdown: 1.0,
                separation: Default::default(),
                functions,
                code_hashes: Default::default(),
                models: Default::default(),
                durable: None,
                damaged: Vec::new(),
                storage: None,
            }))
        })
    }

    /// Starts a client for these servers and waits until it knows all of them.
    fn client(&mut self, host: u32, servers: &[NodeId]) -> NodeId {
        let client = self.new_client(host, servers);
        let count = servers.len();
        self.wait_for(client, |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == count));
        client
    }

    /// Starts a client that is given these servers.
    fn new_client(&mut self, host: u32, servers: &[NodeId]) -> NodeId {
        let addresses: Vec<String> = servers.iter().map(|node| self.sim.address(*node).to_string()).collect();
        self.sim.add_machine(HostId(host), Role::Client, "client", 0, |id, _| {
            Box::new(ClientWithAgent::new(ClientWithAgentConfig { id, name: "client".into(), servers: addresses }))
        })
    }

    fn wait_for(&mut self, client: NodeId, is_it: impl Fn(&Event) -> bool) -> Event {
        lan::wait_for(&mut self.sim, client, is_it)
    }

    /// Begins a group of chains. Returns their last results.
    fn run(&mut self, client: NodeId) -> Vec<DatumId> {
        let meta = Meta::array(Dtype::Float64, &[ELEMENTS]);
        let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: (ELEMENTS as i32).to_ne_bytes().to_vec() };
        let mut tasks = Vec::new();
        let mut last = Vec::new();
        for serial in 1..=CHAINS * LENGTH {
            let is_first = serial % LENGTH == 1;
            let definition = &self.definitions[usize::from(!is_first)].signature;
            let mut args = vec![n.clone()];
            if !is_first {
                args.push(Argument::Datum(DatumId { client, serial: serial - 1 }));
            }
            let datum = DatumId { client, serial };
            tasks.push(Task {
                id: TaskId { client, serial },
                kind: TaskKind::call(definition.name.clone(), definition.hash()),
                args,
                outputs: vec![Output { datum, meta: meta.clone() }],
                work_flops: Some(5e8),
                options: Default::default(),
            });
            if serial % LENGTH == 0 {
                last.push(datum);
            }
        }
        let group =
            Group { id: GroupId { client, serial: 1 }, tasks, sources: Default::default(), wanted: last.clone() };
        self.sim.command(client, Command::Run { group, heuristic: "heft".into() });
        last
    }

    /// Gets these results.
    fn get(&mut self, client: NodeId, data: &[DatumId]) {
        for datum in data {
            self.sim.command(client, Command::Get { datum: *datum });
            let got = self.wait_for(client, |event| match event {
                Event::DatumAvailable { datum: here, .. } | Event::DatumLost { datum: here, .. } => here == datum,
                _ => false,
            });
            assert!(matches!(got, Event::DatumAvailable { .. }), "{got:?}");
        }
    }
}

#[test]
fn a_group_is_mapped_onto_all_servers_and_measured_links() {
    let mut test = Test::new(1);
    let servers = test.servers.clone();
    let client = test.client(3, &servers);
    let data = test.run(client);
    let planned = test.wait_for(client, |event| matches!(event, Event::GroupPlanned { .. }));
    let Event::GroupPlanned { plan, .. } = planned else { unreachable!("asked for") };
    let used: BTreeSet<NodeId> = plan.tasks.iter().map(|task| task.server).collect();
    assert_eq!(used, servers.iter().copied().collect());
    let begin = test.sim.now();
    test.get(client, &data);
    // One chain per server. The last results reach the client over its link.
    let seconds = test.sim.now().seconds() - begin.seconds();
    assert!((2.0..2.2).contains(&seconds), "{seconds} s; planned {}", plan.makespan_s);
}

#[test]
fn what_a_killed_server_had_runs_on_another_server_with_every_seed() {
    for seed in 0..20 {
        let mut test = Test::new(seed);
        let servers = test.servers.clone();
        let client = test.client(3, &servers);
        let data = test.run(client);
        // At some moment while it works.
        let ended = test.wait_for(client, |event| matches!(event, Event::TaskEnded { .. }));
        let Event::TaskEnded { server: Some(killed), .. } = ended else { panic!("{ended:?}") };
        test.sim.advance(seed * 70_000_000);
        test.sim.kill(killed);
        test.get(client, &data);
    }
}

#[test]
fn a_server_whose_name_is_taken_is_used_once_it_is_free() {
    for seed in 0..20 {
        let mut test = Test::new(seed);
        let first = test.servers[0];
        let second = Test::serve_as(&mut test.sim, &test.definitions, 3, "server-0".into());
        let client = test.new_client(4, &[first, second]);
        let refused = test.wait_for(client, |event| matches!(event, Event::ServerNotReached { .. }));
        let Event::ServerNotReached { address, why } = refused else { unreachable!("asked for") };
        assert!(why.contains("has the name 'server-0'"), "{why}");
        let is_second = address == test.sim.address(second);
        let (used, other) = if is_second { (first, second) } else { (second, first) };
        let is_used = |node: NodeId| move |event: &Event| matches!(event, Event::Directory { grid, .. } if grid.server(node).is_some());
        test.wait_for(client, is_used(used));
        test.sim.advance(seed * 70_000_000);
        test.sim.kill(used);
        test.wait_for(client, |event| matches!(event, Event::ServerReached { server, .. } if *server == other));
        test.wait_for(client, is_used(other));
        let data = test.run(client);
        test.get(client, &data);
    }
}

#[test]
fn two_clients_share_servers_and_each_has_its_own() {
    let mut test = Test::new(7);
    let servers = test.servers.clone();
    let (one, other) = (test.client(3, &servers), test.client(4, &servers[1..]));
    let (data, others) = (test.run(one), test.run(other));
    test.get(one, &data);
    test.get(other, &others);
}
