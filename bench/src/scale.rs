//! How far one agent goes, in simulation: many servers register, and a group is mapped onto the fastest of them.
//!
//! The simulated network is a switch with 1 Gb/s to each host. One server in a hundred is twenty times faster than the others, and
//! there are enough tasks for these only. Times of the grid are virtual; those of the machine are of this process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId, Time};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

use super::Figure;

const IDL: &str = "Module t;\nDefine makes(IN int n, OUT double x[n]) CalcOrder 1e10 Calls \"C\" p(n, x);\n";
/// One server in this many is fast.
const FAST_OF: u32 = 100;
const TASKS_PER_FAST_SERVER: u32 = 10;

/// Returns the figures of a grid with that many servers.
pub fn figures(servers: u32) -> Vec<Figure> {
    let fast = servers / FAST_OF;
    let text = format!(
        "[[cluster]]\nname = 'c'\nhosts = 'c-[0-{}]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n\
         [[cluster]]\nname = 'fast'\nhosts = 'fast-[0-{}]'\nspeed = '20Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n\
         [[link]]\nname = 'wire'\nbandwidth = '100Gbps'\nlatency = '50us'\nsharing = 'splitduplex'\n\
         [[route]]\nfrom = 'c'\nto = 'fast'\nlinks = ['wire:up']\n",
        servers - fast + 1,
        fast - 1
    );
    let platform = Platform::parse(&text, "scale.toml", &mut |_| Err("no files".into())).expect("it parses");
    let functions = gridloom_idl::parse(IDL, "t.idl").expect("it parses");
    let host = |name: &str| platform.host(name).expect("it has been described");
    let (head, laptop) = (host("c-0"), host("c-1"));
    let mut hosts: Vec<HostId> = (2..=servers - fast + 1).map(|n| host(&format!("c-{n}"))).collect();
    hosts.extend((0..fast).map(|n| host(&format!("fast-{n}"))));
    let mut sim = Simulation::new(Arc::new(platform), SimConfig::default());
    let began = Instant::now();
    sim.add_agent(head, "agent");
    let mut fast_nodes = BTreeSet::new();
    for (number, host) in hosts.iter().enumerate() {
        let spec = ServerSpec {
            name: format!("server-{number}"),
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            functions: functions.clone(),
        };
        let node = sim.add_server(*host, spec);
        if number >= hosts.len() - fast as usize {
            fast_nodes.insert(node);
        }
    }
    let client = sim.add_client(laptop, "client");
    let all = |event: &Event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == servers as usize);
    while !sim.next_event(client, Some(Time::NEVER)).as_ref().is_some_and(all) {}
    let registered = (ns_to_seconds(sim.now().0), began.elapsed().as_secs_f64());

    let count = fast * TASKS_PER_FAST_SERVER;
    let began = (sim.now(), Instant::now());
    let signature = &functions[0].signature;
    let tasks = (0..count).map(|n| task(client, u64::from(n), &signature.name, signature.hash())).collect();
    let id = GroupId { client, serial: 1 };
    let group = Group { id, tasks, sources: Default::default(), wanted: Vec::new() };
    sim.command(client, Command::Run { group, heuristic: "auto".into() });
    let plan = loop {
        match sim.next_event(client, Some(Time::NEVER)) {
            Some(Event::GroupPlanned { plan, .. }) => break plan,
            Some(_) => {}
            None => panic!("no plan"),
        }
    };
    let mapped = (ns_to_seconds(sim.now().since(began.0)), began.1.elapsed().as_secs_f64());
    let used: BTreeSet<NodeId> = plan.tasks.iter().map(|task| task.server).collect();
    let right = used.intersection(&fast_nodes).count();
    let figure = |name: String, (virtual_s, machine_s): (f64, f64), aim: &'static str, more: String| Figure {
        name: name.leak(),
        ours: format!("{virtual_s:.2} s, {machine_s:.1} s of machine{more}"),
        limit: String::new(),
        ratios: vec![f64::NAN],
        aim,
    };
    vec![
        figure(format!("{servers} servers register"), registered, "10 s for 10,000", String::new()),
        figure(
            format!("{count} tasks mapped, {servers} servers"),
            mapped,
            "1 s for 1,000 tasks on 10,000 servers",
            format!(", {right} of {} used are fast", used.len()),
        ),
    ]
}

fn task(client: NodeId, serial: u64, function: &str, hash: u64) -> Task {
    let meta = Meta::scalar(Dtype::Int32);
    let bytes = 1000i32.to_ne_bytes().to_vec();
    Task {
        id: TaskId { client, serial: 1 + serial },
        kind: TaskKind::call(function, hash),
        args: vec![Argument::Inline { meta, bytes }],
        outputs: vec![Output {
            datum: DatumId { client, serial: 1_000_000 + serial },
            meta: Meta::array(Dtype::Float64, &[1000]),
        }],
        work_flops: Some(1e10),
        options: CallOptions::default(),
    }
}
