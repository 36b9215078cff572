//! Tests that programs share the slots of a server: a program that queues many calls delays the others only briefly.

use crate::lan;
use std::collections::BTreeMap;

use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::HostId;
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str = "Module t;
Define work(IN int n, OUT double b[n]) CalcOrder 3e8 Calls \"C\" work(n, b);";
/// Duration of a single call in seconds, if no other call runs. All slots share one processor.
const CALL_S: f64 = 0.3;

struct Stage {
    sim: Simulation,
    clients: Vec<NodeId>,
    signature_hash: u64,
}

impl Stage {
    /// Starts a server with this number of slots, and this number of clients.
    fn new(slots: u32, clients: usize) -> Stage {
        let mut sim = Simulation::new(lan::platform(4), SimConfig::default());
        let functions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let signature_hash = functions[0].signature.hash();
        sim.add_agent(HostId(0), "agent");
        let spec = ServerSpec {
            name: "server".into(),
            slots,
            is_stateless: false,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            functions,
        };
        sim.add_server(HostId(1), spec);
        let clients: Vec<NodeId> = (0..clients).map(|_| sim.add_client(HostId(2), "client")).collect();
        for client in &clients {
            lan::wait_for(
                &mut sim,
                *client,
                |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == 1),
            );
        }
        sim.advance(5_000_000_000);
        Stage { sim, clients, signature_hash }
    }

    fn task(&self, client: usize, serial: u64) -> Task {
        let client = self.clients[client];
        let meta = Meta::array(Dtype::Float64, &[1]);
        let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 1i32.to_ne_bytes().into() };
        Task {
            id: TaskId { client, serial },
            kind: TaskKind::call("t/work", self.signature_hash),
            args: vec![n],
            outputs: vec![Output { datum: DatumId { client, serial }, meta }],
            work_flops: Some(3e8),
            options: CallOptions::default(),
        }
    }

    /// Submits these calls of a client, as a group or one by one.
    fn start(&mut self, client: usize, serials: std::ops::Range<u64>, is_group: bool) {
        let tasks: Vec<Task> = serials.clone().map(|serial| self.task(client, serial)).collect();
        let node = self.clients[client];
        if is_group {
            let id = GroupId { client: node, serial: 5000 + serials.start };
            let group = Group { id, tasks, sources: BTreeMap::new(), wanted: Vec::new() };
            return self.sim.command(node, Command::Run { group, heuristic: "heft".into() });
        }
        for task in tasks {
            self.sim.command(node, Command::Call { task, sources: vec![], limits: Default::default(), deferral: None });
        }
    }

    /// Waits until this number of calls of a client have ended. Returns the serials in order and the current time in seconds.
    fn ended(&mut self, client: usize, count: usize) -> (Vec<u64>, f64) {
        let mut serials = Vec::new();
        while serials.len() < count {
            let ended =
                lan::wait_for(&mut self.sim, self.clients[client], |event| matches!(event, Event::TaskEnded { .. }));
            let Event::TaskEnded { report, .. } = ended else { unreachable!("asked for") };
            report.outcome.unwrap();
            serials.push(report.task.serial);
        }
        (serials, self.seconds())
    }

    fn seconds(&self) -> f64 {
        self.sim.now().0 as f64 * 1e-9
    }
}

#[test]
fn a_single_call_does_not_wait_for_all_calls_of_another_program() {
    for (is_group, slots) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
        let mut stage = Stage::new(slots, 2);
        let begin = stage.seconds();
        stage.start(0, 1..301, is_group);
        stage.ended(0, 10);
        for serial in 1..=3 {
            let called = stage.seconds();
            stage.start(1, serial..serial + 1, serial == 2);
            let waited_s = stage.ended(1, 1).1 - called;
            // It waits for the running call, and then runs itself.
            assert!(waited_s < 2.2 * CALL_S * f64::from(slots), "{waited_s} s, group: {is_group}, {slots} slots");
        }
        let (serials, end) = stage.ended(0, 290);
        assert!(serials.is_sorted(), "a program's own calls keep their order");
        let expected_s = 303.0 * CALL_S;
        assert!((end - begin - expected_s).abs() < 1.0, "{} s of {expected_s}", end - begin);
    }
}

#[test]
fn ten_programs_get_equal_shares() {
    for is_group in [true, false] {
        let mut stage = Stage::new(2, 10);
        let begin = stage.seconds();
        // The first program has queued all its calls before the others start.
        stage.start(0, 1..101, is_group);
        stage.sim.advance(1_000_000_000);
        (1..10).for_each(|client| stage.start(client, 1..21, client % 2 == 0));
        let ends: Vec<f64> = (1..10).map(|client| stage.ended(client, 20).1 - begin).collect();
        // Each program has one call in each round. Twenty rounds take 60 s.
        assert!(ends.iter().all(|end_s| (57.0..63.0).contains(end_s)), "{ends:?}");
        let (_, end) = stage.ended(0, 100);
        let expected_s = 280.0 * CALL_S;
        assert!((end - begin - expected_s).abs() < 1.0, "{} s of {expected_s}", end - begin);
    }
}

/// The calls that a function makes count as calls of the program that called the function.
#[test]
fn nested_calls_count_as_calls_of_their_program() {
    let mut stage = Stage::new(1, 4);
    for nested in [0, 1, 2] {
        let node = stage.clients[nested];
        for serial in 1..=100 {
            let mut task = stage.task(nested, serial);
            if nested > 0 {
                task.options = CallOptions { depth: 1, program: Some(stage.clients[0]), ..CallOptions::default() };
            }
            let group = Group {
                id: GroupId { client: node, serial: 5000 + serial },
                tasks: vec![task],
                sources: BTreeMap::new(),
                wanted: Vec::new(),
            };
            stage.sim.command(node, Command::Run { group, heuristic: "heft".into() });
        }
    }
    stage.ended(1, 5);
    let called = stage.seconds();
    stage.start(3, 1..21, true);
    let took_s = stage.ended(3, 20).1 - called;
    assert!((39.0..42.0).contains(&(took_s / CALL_S)), "{took_s} s: every second call is one of this program");
    // Some calls have started before the nested calls arrived.
    stage.ended(0, 3);
    let ended = stage.seconds() - called;
    assert!(ended > 150.0 * CALL_S, "nested calls go first: {ended} s");
}
