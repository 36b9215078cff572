//! Tests that waiting calls move to a server that has become idle, if that pays off.

use crate::lan;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId};
use gridloom_core::graph::{Argument, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::HostId;
use gridloom_sim::faults::Fault;
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str = "Module t;
Define work(IN int n, IN double a[n], OUT double b[n]) CalcOrder 1e9 Calls \"C\" work(n, a, b);";
/// One server is slower than known by this factor.
const SLOWED: f64 = 20.0;

struct Stage {
    sim: Simulation,
    client: NodeId,
    servers: Vec<NodeId>,
    signature_hash: u64,
    elements: u64,
}

impl Stage {
    /// Starts three servers of one slot each. `server-1` becomes slow once all servers are known.
    fn new(elements: u64) -> Stage {
        let mut sim = Simulation::new(lan::platform(5), SimConfig::default());
        let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let signature_hash = definitions[0].signature.hash();
        sim.add_agent(HostId(0), "agent");
        let mut servers = Vec::new();
        for number in 1..=3u32 {
            let (name, functions) = (format!("server-{number}"), definitions.clone());
            let spec =
                ServerSpec { name, slots: 1, is_stateless: false, memory_bytes: 1 << 36, disk_bytes: 0, functions };
            servers.push(sim.add_server(HostId(number), spec));
        }
        let client = sim.add_client(HostId(4), "client");
        let mut stage = Stage { sim, client, servers, signature_hash, elements };
        while !matches!(stage.next(), Event::Directory { grid, .. } if grid.servers.len() == 3) {}
        // By then speeds and links are measured.
        stage.sim.advance(5_000_000_000);
        stage.sim.apply_fault(&Fault::Slow { host: "host-1".into(), factor: 1.0 / SLOWED });
        stage
    }

    fn next(&mut self) -> Event {
        let deadline = self.sim.now() + 1_000_000_000_000;
        self.sim.next_event(self.client, Some(deadline)).expect("nothing more happens")
    }

    fn datum(&self, serial: u64) -> DatumId {
        DatumId { client: self.client, serial }
    }

    fn task(&self, serial: u64) -> Task {
        let n =
            Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: (self.elements as i32).to_ne_bytes().into() };
        Task {
            id: TaskId { client: self.client, serial },
            kind: TaskKind::call("t/work", self.signature_hash),
            args: vec![n, Argument::Datum(self.datum(serial))],
            outputs: vec![Output { datum: self.datum(1000 + serial), meta: self.meta() }],
            work_flops: Some(1e9),
            options: Default::default(),
        }
    }

    fn meta(&self) -> Meta {
        Meta::array(Dtype::Float64, &[self.elements])
    }

    /// Waits until `count` tasks have ended, each once. Returns the seconds that took, and the number of tasks on the slow server.
    fn ended(&mut self, count: usize) -> (f64, usize) {
        let began = self.sim.now();
        let (mut ended, mut slow) = (Vec::new(), 0);
        while ended.len() < count {
            if let Event::TaskEnded { server, report, .. } = self.next() {
                report.outcome.unwrap();
                slow += usize::from(server == Some(self.servers[0]));
                assert!(!ended.contains(&report.task));
                ended.push(report.task);
            }
        }
        (self.sim.now().since(began) as f64 * 1e-9, slow)
    }

    fn call(&mut self, count: u64) -> (f64, usize) {
        for serial in 1..=count {
            let (task, datum, meta) = (self.task(serial), self.datum(serial), self.meta());
            self.sim.put(self.client, datum, meta.clone(), None);
            let sources = vec![(datum, meta)];
            self.sim.command(self.client, Command::Call { task, sources, limits: Default::default(), deferral: None });
        }
        self.ended(count as usize)
    }

    fn group(&mut self, count: u64) -> (f64, usize) {
        let tasks: Vec<Task> = (1..=count).map(|serial| self.task(serial)).collect();
        let sources = (1..=count).map(|serial| self.datum(serial));
        let sources = sources.map(|datum| (datum, Source { meta: self.meta(), at: Vec::new() })).collect();
        for serial in 1..=count {
            self.sim.put(self.client, self.datum(serial), self.meta(), None);
        }
        let group = Group { id: GroupId { client: self.client, serial: 5000 }, tasks, sources, wanted: Vec::new() };
        self.sim.command(self.client, Command::Run { group, heuristic: "heft".into() });
        self.ended(count as usize)
    }
}

/// Another program's task runs there that takes a hundred times as long.
#[test]
fn a_call_does_not_wait_for_the_task_of_another_client() {
    let mut stage = Stage::new(1);
    let (first, (task, datum, meta)) = (stage.client, (stage.task(1), stage.datum(1), stage.meta()));
    let others: Vec<NodeId> = (0..2).map(|_| stage.sim.add_client(HostId(4), "another")).collect();
    stage.sim.put(first, datum, meta.clone(), None);
    let long = Task { work_flops: Some(1e11), ..task };
    stage.sim.command(
        first,
        Command::Call { task: long, sources: vec![(datum, meta)], limits: Default::default(), deferral: None },
    );
    for other in others {
        stage.client = other;
        while !matches!(stage.next(), Event::Directory { grid, .. } if grid.servers.len() == 3) {}
        let (seconds, slow) = stage.call(2);
        assert!(seconds < 2.0 && slow == 0, "two calls of 1 s, two idle servers: {seconds} s");
    }
}

/// Without moving, a third of the tasks would take 20 s each on the slow server, one after the other.
#[test]
fn calls_leave_a_server_that_turns_out_to_be_slow() {
    let (seconds, slow) = Stage::new(1).call(12);
    assert!(seconds < 1.1 * SLOWED && slow == 1, "{seconds} s, {slow} on the slow server");
}

/// Instead they are mapped again once the server has reported its speed.
#[test]
fn tasks_of_a_group_do_not_move_one_by_one() {
    let (seconds, slow) = Stage::new(1).group(12);
    assert!(seconds < 12.0 / 3.0 * SLOWED && slow >= 1, "{seconds} s, {slow} on the slow server");
}

/// Once its data are at the slow server, a call is known to wait for its slot.
#[test]
fn calls_with_data_move_if_that_takes_less_than_the_wait() {
    for (elements, expected) in [(100_000, 1), (200_000_000, 2)] {
        let (seconds, slow) = Stage::new(elements).call(4);
        assert_eq!(slow, expected, "of 4 calls on {elements} elements, {seconds} s");
    }
}
