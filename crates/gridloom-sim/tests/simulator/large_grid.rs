//! Tests of grids in which not all servers are considered for each group: the agent's work grows with the number of servers, not
//! with its square, and the fast servers are found.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::lan;
use gridloom_base::limits::PROBE_PEERS_LARGE;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId, Time};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::Platform;
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str = "Module t;\nDefine makes(IN int n, OUT double x[n]) CalcOrder 1e10 Calls \"C\" p(n, x);\n";
/// One server in this many is twenty times as fast as the others.
const FAST_OF: u32 = 50;
const TASKS_PER_FAST_SERVER: u32 = 5;

/// What a grid of that many servers has cost the agent until a group was mapped.
#[derive(Clone, Copy, Debug)]
struct Cost {
    links: usize,
    /// Inputs and effects of the agent.
    steps: usize,
}

/// Registers that many servers at once, and maps as many tasks as the fast ones among them can run meanwhile.
fn cost(servers: u32) -> Cost {
    let text = format!(
        "[[cluster]]\nname = 'c'\nhosts = 'c-[0-{servers}]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n\
         [[cluster]]\nname = 'fast'\nhosts = 'fast-[0-{servers}]'\nspeed = '20Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n\
         [[link]]\nname = 'wire'\nbandwidth = '100Gbps'\nlatency = '50us'\nsharing = 'splitduplex'\n\
         [[route]]\nfrom = 'c'\nto = 'fast'\nlinks = ['wire:up']\n"
    );
    let platform = Arc::new(Platform::parse(&text, "large.toml", &mut |_| Err("no files".into())).unwrap());
    let functions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let mut sim = Simulation::new(platform.clone(), SimConfig::default());
    sim.keep_records();
    let agent = sim.add_agent(platform.host("c-0").unwrap(), "agent");
    let mut fast = BTreeSet::new();
    for number in 1..=servers {
        let is_fast = number % FAST_OF == 0;
        let host = format!("{}-{number}", if is_fast { "fast" } else { "c" });
        let spec = ServerSpec {
            name: format!("server-{number}"),
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            functions: functions.clone(),
        };
        let node = sim.add_server(platform.host(&host).unwrap(), spec);
        if is_fast {
            fast.insert(node);
        }
    }
    let client = sim.add_client(platform.host("fast-0").unwrap(), "client");
    let is_complete =
        |event: &Event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == servers as usize);
    lan::wait_for(&mut sim, client, is_complete);
    let began = sim.now();
    let signature = &functions[0].signature;
    let tasks = (0..fast.len() as u32 * TASKS_PER_FAST_SERVER).map(|n| Task {
        id: TaskId { client, serial: 1 + u64::from(n) },
        kind: TaskKind::call(&signature.name, signature.hash()),
        args: vec![Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 9i32.to_ne_bytes().to_vec() }],
        outputs: vec![Output {
            datum: DatumId { client, serial: 1_000_000 + u64::from(n) },
            meta: Meta::array(Dtype::Float64, &[9]),
        }],
        work_flops: Some(1e10),
        options: CallOptions::default(),
    });
    let id = GroupId { client, serial: 1 };
    let group = Group { id, tasks: tasks.collect(), sources: Default::default(), wanted: Vec::new() };
    sim.command(client, Command::Run { group, heuristic: "auto".into() });
    let Event::GroupPlanned { plan, .. } =
        lan::wait_for(&mut sim, client, |event| matches!(event, Event::GroupPlanned { .. }))
    else {
        unreachable!("it was waited for")
    };
    let used: BTreeSet<NodeId> = plan.tasks.iter().map(|task| task.server).collect();
    assert_eq!(used, fast, "the plan uses the fast servers");
    assert!(sim.now().since(began) < SECOND_NS, "the plan took {} ns", sim.now().since(began));
    let steps = sim.records().iter().filter(|record| record.node == agent).count();
    sim.command(client, Command::Links);
    let Event::Links { links } = lan::wait_for(&mut sim, client, |event| matches!(event, Event::Links { .. })) else {
        unreachable!("it was waited for")
    };
    assert!(sim.now() < Time(5 * SECOND_NS));
    Cost { links: links.len(), steps }
}

#[test]
fn the_agents_work_grows_with_the_number_of_servers() {
    let [few, more, most] = [200, 400, 600].map(cost);
    let grown = |from: Cost, to: Cost| (to.links - from.links, to.steps - from.steps);
    let (first, second) = (grown(few, more), grown(more, most));
    // A measurement that others disturbed may be made again.
    assert!(first.0.max(second.0) <= 200 * (PROBE_PEERS_LARGE + 1), "{few:?}, {more:?}, {most:?}");
    assert!(second.1 <= first.1 * 5 / 4, "{few:?}, {more:?}, {most:?}");
}
