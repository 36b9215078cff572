//! Tests of sending a shared datum to many servers by each method, while one server is killed.

use std::collections::BTreeMap;

use crate::lan;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, Method, NodeId, SplitMix64, TaskId, Time};
use gridloom_core::graph::{Argument, CopyLifetime, Group, Source, Task, TaskKind};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_platform::HostId;
use gridloom_sim::faults::Scenario;
use gridloom_sim::{SimConfig, Simulation};

const SERVERS: u32 = 12;
/// 32 MB, which take 0.33 s to send.
const ELEMENTS: u64 = 4_000_000;
const PATIENCE_NS: u64 = 200 * SECOND_NS;

struct Stage {
    sim: Simulation,
    servers: Vec<NodeId>,
    client: NodeId,
    next: u64,
    ended: BTreeMap<TaskId, bool>,
}

impl Stage {
    fn new() -> Stage {
        let storages = (1..=SERVERS).map(|host| (HostId(host), HostId(0))).collect();
        let mut sim = Simulation::new(lan::platform(14), SimConfig { storages, ..SimConfig::default() });
        sim.add_agent(HostId(0), "agent");
        let server = |host| ServerSpec {
            name: format!("server-{host}"),
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            functions: Vec::new(),
        };
        let servers: Vec<NodeId> = (1..=SERVERS).map(|host| sim.add_server(HostId(host), server(host))).collect();
        let client = sim.add_client(HostId(SERVERS + 1), "client");
        let mut stage = Stage { sim, servers, client, next: 0, ended: BTreeMap::new() };
        stage.until(|event| match event {
            Event::Directory { grid, .. } => (grid.servers.len() == SERVERS as usize).then_some(()),
            _ => None,
        });
        // Waits until the servers have measured the links between them.
        stage.sim.advance(30 * SECOND_NS);
        stage
    }

    fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn until<T>(&mut self, mut is_it: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = self.sim.now() + PATIENCE_NS;
        loop {
            let event = self.sim.next_event(self.client, Some(deadline)).expect("it comes in time");
            if let Event::TaskEnded { report, .. } = &event {
                self.ended.insert(report.task, report.outcome.is_ok());
            }
            if let Some(found) = is_it(&event) {
                return found;
            }
        }
    }

    fn ask(&mut self, command: NameCommand) -> Result<CatalogAnswer, gridloom_base::NameError> {
        let ask = self.serial();
        self.sim.command(self.client, Command::Name { request: ask, command });
        self.until(|event| match event {
            Event::NameResult { request: answered, answer } if *answered == ask => Some(answer.clone()),
            _ => None,
        })
    }

    /// Puts a datum that two servers keep.
    fn put(&mut self, method: Method) -> (DatumId, Vec<NodeId>) {
        let (client, serial, meta) = (self.client, self.serial(), Meta::array(Dtype::Float64, &[ELEMENTS]));
        let datum = DatumId { client, serial };
        self.sim.put(client, datum, meta.clone(), None);
        let (task, group) = (TaskId { client, serial }, GroupId { client, serial });
        let name = "mesh".to_string();
        let put = NameCommand::Put {
            name: name.clone(),
            datum,
            meta,
            replaces: false,
            replicas: 2,
            is_durable: false,
            method,
            made_by: None,
            task,
            group,
        };
        assert_eq!(self.ask(put), Ok(CatalogAnswer::Put));
        match self.ask(NameCommand::Find { name, waits: false }) {
            Ok(CatalogAnswer::Found { named, holders }) => {
                (named.datum, holders.into_iter().map(|(node, _)| node).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Makes a server take a copy.
    fn place(&mut self, datum: DatumId, server: NodeId) -> TaskId {
        let (client, serial) = (self.client, self.serial());
        let id = TaskId { client, serial };
        let task = Task {
            id,
            kind: TaskKind::Replicate(CopyLifetime::Kept),
            args: vec![Argument::Datum(datum)],
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        };
        let meta = Meta::array(Dtype::Float64, &[ELEMENTS]);
        let sources = [(datum, Source { meta, at: Vec::new() })].into();
        let group = Group { id: GroupId { client, serial }, tasks: vec![task], sources, wanted: Vec::new() };
        let from = Default::default();
        self.sim.command(client, Command::RunPlanned { group, server, from, heuristic: "heft".into(), plan: None });
        id
    }

    fn bytes_to_and_from_storage(&self) -> [f64; 2] {
        ["lan_link_0_DOWN", "lan_link_0_UP"].map(|name| {
            let links = self.sim.bytes_by_link();
            links.iter().find(|(link, _)| link == name).unwrap_or_else(|| panic!("{name} in {links:?}")).1
        })
    }

    fn ended(&mut self, task: TaskId) -> bool {
        if let Some(is_ok) = self.ended.get(&task) {
            return *is_ok;
        }
        self.until(|event| match event {
            Event::TaskEnded { report, .. } if report.task == task => Some(report.outcome.is_ok()),
            _ => None,
        })
    }
}

#[test]
fn a_killed_relay_seed_or_reader_keeps_nobody_from_a_swarm() {
    killed_by_seeds(Method::Swarm);
}

/// All links of the relay are cut. Its receivers must not wait until it counts as dead.
#[test]
fn a_relay_that_is_cut_off_is_replaced_soon() {
    for method in [Method::Tree, Method::Swarm] {
        let (mut slowest_s, mut hit) = (0.0f64, 0);
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            let mut stage = Stage::new();
            let (datum, _) = stage.put(method);
            let servers = stage.servers.clone();
            let began = stage.sim.now();
            let tasks: Vec<TaskId> = servers.iter().map(|server| stage.place(datum, *server)).collect();
            let (cut, at_ms) = (random.below(u64::from(SERVERS)) as usize, 20 + random.below(300));
            let others = (0..SERVERS + 2).filter(|host| *host as usize != cut + 1);
            let lines = others.map(|host| format!("at {at_ms}ms cut host-{} host-{host} for 100s\n", cut + 1));
            let scenario = Scenario::parse(&lines.collect::<String>(), "faults").unwrap();
            let strikes = scenario.strikes(&Default::default(), &mut random, stage.sim.now());
            stage.sim.schedule(strikes);
            for (number, task) in tasks.into_iter().enumerate() {
                assert!(number == cut || stage.ended(task), "{method:?}, seed {seed}");
            }
            let took_s = (stage.sim.now().0 - began.0) as f64 * 1e-9;
            hit += u32::from(took_s > 2.0);
            slowest_s = slowest_s.max(took_s);
            stage.sim.check();
        }
        // The silence is detected at a heartbeat, and the transfer restarts.
        assert!(hit > 5 && slowest_s < 6.0, "{method:?}: {hit} of 60 relays were cut, {slowest_s} s");
    }
}

#[test]
fn a_killed_writer_or_reader_keeps_nobody_from_a_storage() {
    killed_by_seeds(Method::Storage);
}

#[test]
fn a_storage_gets_a_datum_once_and_gives_it_to_all() {
    let mut stage = Stage::new();
    let (datum, holders) = stage.put(Method::Storage);
    let (bytes, before) = (8 * ELEMENTS as usize, stage.bytes_to_and_from_storage());
    let readers: Vec<NodeId> = stage.servers.iter().copied().filter(|server| !holders.contains(server)).collect();
    let began = stage.sim.now();
    let tasks: Vec<TaskId> = readers.iter().map(|server| stage.place(datum, *server)).collect();
    assert!(tasks.into_iter().all(|task| stage.ended(task)));
    let [to, from] = stage.bytes_to_and_from_storage().map(|bytes| bytes as usize);
    assert_eq!(to - before[0] as usize, bytes);
    assert_eq!(from - before[1] as usize, readers.len() * bytes);
    // The network interface of its host sends it ten times.
    let takes_s = bytes as f64 / 100e6 * (1 + readers.len()) as f64;
    let took_s = (stage.sim.now().0 - began.0) as f64 / 1e9;
    assert!((1.0..1.1).contains(&(took_s / takes_s)), "{took_s} s, {takes_s} s expected");
}

fn killed_by_seeds(method: Method) {
    let (mut in_time, mut hit) = (0, 0);
    for seed in 0..100 {
        let mut random = SplitMix64::new(seed);
        let mut stage = Stage::new();
        let (datum, holders) = stage.put(method);
        let servers = stage.servers.clone();
        let tasks: Vec<(NodeId, TaskId)> =
            servers.iter().map(|server| (*server, stage.place(datum, *server))).collect();
        let (killed, at_ms) = (random.below(u64::from(SERVERS)) as usize, random.below(500));
        let scenario = Scenario::parse(&format!("at {at_ms}ms kill server-{}", killed + 1), "faults").unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut random, stage.sim.now());
        stage.sim.schedule(strikes);
        for (_, task) in tasks.iter().filter(|(server, _)| *server != servers[killed]) {
            assert!(stage.ended(*task), "seed {seed}");
        }
        for server in servers.iter().filter(|server| **server != servers[killed]) {
            assert!(stage.sim.value(*server, datum).is_some(), "seed {seed}: {server} has nothing");
            let is_left = datum.slices().iter().any(|slice| stage.sim.value(*server, *slice).is_some());
            assert!(!is_left, "seed {seed}: {server} has a slice still");
        }
        stage.sim.check();
        hit += u32::from(at_ms < 400 && !holders.contains(&servers[killed]));
        in_time += u32::from(stage.sim.now() < Time(60 * SECOND_NS));
    }
    assert!(hit > 50 && in_time == 100, "{hit} were hit, {in_time} of 100 ended soon");
}
