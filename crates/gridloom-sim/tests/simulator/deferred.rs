//! Tests of deferred calls, which wait in the client until a server has a free slot.

use std::sync::Arc;

use gridloom_base::{NodeId, TaskError, TaskId, Time};
use gridloom_core::call::{CallTimeouts, Deferral};
use gridloom_core::graph::{Failures, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

const PLATFORM: &str = r#"
[[cluster]]
name = "lan"
hosts = "host-[0-3]"
speed = "1Gf"
bandwidth = "100MBps"
latency = "100us"
"#;
const IDL: &str = "Module t;\nDefine work() CalcOrder 1e9 Calls \"C\" work();";
const SECOND_NS: u64 = 1_000_000_000;

/// Two servers of one slot each, and a client. A call takes one second.
struct Stage {
    sim: Simulation,
    client: NodeId,
    servers: Vec<NodeId>,
    signature_hash: u64,
    /// Reported events, in order.
    sent: Vec<(u64, Time)>,
    ended: Vec<(u64, Option<NodeId>, Result<(), TaskError>)>,
}

impl Stage {
    fn new() -> Stage {
        let platform = Platform::parse(PLATFORM, "lan.toml", &mut |_| Err("no files".into())).unwrap();
        let mut sim = Simulation::new(Arc::new(platform), SimConfig::default());
        let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let signature_hash = definitions[0].signature.hash();
        sim.add_agent(HostId(0), "agent");
        let mut servers = Vec::new();
        for number in 1..=2u32 {
            let (name, functions) = (format!("server-{number}"), definitions.clone());
            let spec =
                ServerSpec { name, slots: 1, is_stateless: false, memory_bytes: 1 << 30, disk_bytes: 0, functions };
            servers.push(sim.add_server(HostId(number), spec));
        }
        let client = sim.add_client(HostId(3), "client");
        let mut stage = Stage { sim, client, servers, signature_hash, sent: Vec::new(), ended: Vec::new() };
        while !matches!(stage.next(), Event::Directory { grid, .. } if grid.servers.len() == 2) {}
        stage.sim.advance(5 * SECOND_NS);
        stage
    }

    fn next(&mut self) -> Event {
        let deadline = self.sim.now() + 1_000 * SECOND_NS;
        let event = self.sim.next_event(self.client, Some(deadline)).expect("nothing more happens");
        match &event {
            Event::CallSent { at, task } => self.sent.push((task.serial, *at)),
            Event::TaskEnded { report, server, .. } => {
                self.ended.push((report.task.serial, *server, report.outcome.clone().map(drop)));
            }
            _ => {}
        }
        event
    }

    fn id(&self, serial: u64) -> TaskId {
        TaskId { client: self.client, serial }
    }

    fn call(&mut self, serial: u64, limits: CallTimeouts, deferral: Deferral) {
        let kind = TaskKind::call("t/work", self.signature_hash);
        let (args, outputs, work_flops) = (Vec::new(), Vec::new(), Some(1e9));
        let task = Task { id: self.id(serial), kind, args, outputs, work_flops, options: Default::default() };
        let deferral = Some(Box::new(deferral));
        self.sim.command(self.client, Command::Call { task, sources: Vec::new(), limits, deferral });
    }

    fn calls(&mut self, serials: std::ops::RangeInclusive<u64>) {
        serials.for_each(|serial| self.call(serial, CallTimeouts::default(), Deferral::default()));
    }

    /// Waits until `count` calls have ended since the start.
    fn wait(&mut self, count: usize) {
        while self.ended.len() < count {
            self.next();
        }
    }

    fn sent_serials(&self) -> Vec<u64> {
        self.sent.iter().map(|(serial, _)| *serial).collect()
    }
}

#[test]
fn calls_are_sent_as_slots_become_free() {
    let mut stage = Stage::new();
    let begin = stage.sim.now();
    stage.calls(1..=6);
    stage.wait(6);
    assert_eq!(stage.sent_serials(), [1, 2, 3, 4, 5, 6]);
    let rounds: Vec<u64> = stage.sent.iter().map(|(_, at)| at.since(begin) / SECOND_NS).collect();
    assert_eq!(rounds, [0, 0, 1, 1, 2, 2], "two slots, and calls of a second");
    assert!(stage.ended.iter().all(|(_, server, outcome)| server.is_some() && outcome.is_ok()));
}

#[test]
fn a_call_that_was_not_sent_is_cancelled_or_held_back_without_a_server() {
    let mut stage = Stage::new();
    stage.calls(1..=6);
    let client = stage.client;
    let tasks = vec![stage.id(1), stage.id(3)];
    stage.sim.command(client, Command::CancelUnsent { tasks });
    let held = vec![stage.id(2), stage.id(4)];
    stage.sim.command(client, Command::Hold { tasks: held.clone(), is_held: true });
    stage.wait(5);
    assert_eq!(stage.ended[0], (3, None, Err(TaskError::Cancelled)), "1 was sent and is not cancelled");
    assert_eq!(stage.sent_serials(), [1, 2, 5, 6], "2 was sent and is not held back");
    stage.sim.command(client, Command::Hold { tasks: held, is_held: false });
    stage.wait(6);
    assert_eq!(stage.sent.last().unwrap().0, 4);
}

#[test]
fn a_limit_begins_when_the_call_is_sent() {
    let mut stage = Stage::new();
    let limits = CallTimeouts::from(Some(SECOND_NS + SECOND_NS / 2));
    for serial in 1..=4 {
        stage.call(serial, limits, Deferral::default());
    }
    stage.call(5, limits, Deferral { limit_begins: true, ..Deferral::default() });
    stage.wait(5);
    for (serial, server, outcome) in &stage.ended {
        let is_late = *serial == 5;
        assert_eq!((server.is_none(), outcome.is_err()), (is_late, is_late), "{serial}: {outcome:?}");
    }
}

#[test]
fn a_repeated_call_goes_first_and_elsewhere() {
    let mut stage = Stage::new();
    stage.calls(1..=4);
    let failures = Failures::of_attempts([stage.servers[0]], []);
    stage.call(9, CallTimeouts::default(), Deferral { goes_first: true, limit_begins: true, failures });
    stage.wait(5);
    assert_eq!(stage.sent_serials()[2], 9);
    let (_, server, _) = stage.ended.iter().find(|(serial, ..)| *serial == 9).unwrap();
    assert_eq!(*server, Some(stage.servers[1]));
}

#[test]
fn calls_of_a_lost_server_run_elsewhere_and_the_others_follow() {
    let mut stage = Stage::new();
    stage.calls(1..=5);
    while stage.sent.len() < 2 {
        stage.next();
    }
    stage.sim.kill(stage.servers[0]);
    stage.wait(5);
    assert!(stage.ended.iter().all(|(_, server, outcome)| *server == Some(stage.servers[1]) && outcome.is_ok()));
}
