//! What a client keeps and what it says when a lost result cannot be made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_core::graph::{Argument, Group, Output, Task, TaskKind};

use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{Bodies, SimConfig, Simulation};

const PLATFORM: &str = r#"
[[cluster]]
name = "lan"
hosts = "host-[0-3]"
speed = "1Gf"
bandwidth = "100MBps"
latency = "100us"
"#;

const IDL: &str = "Module t;
Define two(IN int n, OUT double a[n], OUT double b[n]) CalcOrder 1e6 Calls \"C\" two(n, a, b);
Define sum(IN int n, IN double x[n], OUT double *s) CalcOrder 1e6 Calls \"C\" sum(n, x, s);";
const ELEMENTS: u64 = 20_000;

/// `two` works once and then fails.
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

fn wait_for(sim: &mut Simulation, client: NodeId, is_it: impl Fn(&Event) -> bool) -> Event {
    let deadline = sim.now() + 120_000_000_000;
    loop {
        let event = sim.next_event(client, Some(deadline)).expect("nothing more happens");
        if is_it(&event) {
            return event;
        }
    }
}

#[test]
fn a_failed_second_run_leaves_what_the_first_has_made() {
    let platform = Platform::parse(PLATFORM, "lan.toml", &mut |_| Err("no files".into())).unwrap();
    let mut sim = Simulation::new(Arc::new(platform), SimConfig::default());
    let runs = Arc::new(AtomicU32::new(0));
    sim.set_bodies(Box::new(FailsLater { runs: runs.clone() }));
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    sim.add_agent(HostId(0), "agent");
    let mut servers = Vec::new();
    for number in 1..=2u32 {
        let (name, functions) = (format!("server-{number}"), definitions.clone());
        let spec = ServerSpec { name, slots: 1, plain: false, memory_bytes: 1 << 30, functions };
        servers.push(sim.add_server(HostId(number), spec));
    }
    let client = sim.add_client(HostId(3), "client");
    wait_for(&mut sim, client, |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == 2));
    let [a, b, s] = [1, 2, 3].map(|serial| DatumId { client, serial });
    let array = Meta::array(Dtype::Float64, &[ELEMENTS]);
    let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: (ELEMENTS as i32).to_ne_bytes().to_vec() };
    let two = Task {
        id: TaskId { client, serial: 1 },
        kind: TaskKind::call("t/two", definitions[0].signature.hash()),
        args: vec![n.clone()],
        outputs: [a, b].map(|datum| Output { datum, meta: array.clone() }).to_vec(),
        work_flops: Some(1e6),
        only: None,
    };
    let sum = |serial, datum| Task {
        id: TaskId { client, serial },
        kind: TaskKind::call("t/sum", definitions[1].signature.hash()),
        args: vec![n.clone(), Argument::Datum(datum)],
        outputs: vec![Output {
            datum: DatumId { client, serial: s.serial + serial },
            meta: Meta::scalar(Dtype::Float64),
        }],
        work_flops: Some(1e6),
        only: None,
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
    wait_for(&mut sim, client, |event| matches!(event, Event::DatumHere { .. }));
    sim.kill(server);
    // Only b is lost with its server; what it is made by fails now.
    sim.command(client, Command::Get { datum: b });
    let lost = wait_for(&mut sim, client, |event| matches!(event, Event::DatumHere { .. } | Event::DatumLost { .. }));
    assert!(matches!(lost, Event::DatumLost { datum, .. } if datum == b), "{lost:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    // a stays: for the program, and for later calls.
    sim.command(client, Command::Get { datum: a });
    let here = wait_for(&mut sim, client, |event| matches!(event, Event::DatumHere { .. } | Event::DatumLost { .. }));
    assert!(matches!(here, Event::DatumHere { datum, .. } if datum == a), "{here:?}");
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
