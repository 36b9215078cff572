//! How far one agent goes, in simulation: many servers register, and a group is mapped onto the fastest of them.
//!
//! The simulated network is a switch with 1 Gb/s to each host. One server in a hundred is twenty times faster than the others, and
//! there are enough tasks for these only. Times of the grid are virtual; processor times are of this process, and so include the
//! simulated network, the servers and the client. Those of the agent alone are measured without a network ([`LoneAgent`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId, Time};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

use super::Figure;
use super::lone_agent::LoneAgent;

const IDL: &str = "Module t;\nDefine makes(IN int n, OUT double x[n]) CalcOrder 1e10 Calls \"C\" p(n, x);\n";
/// One server in this many is fast.
const FAST_OF: u32 = 100;
const TASKS_PER_FAST_SERVER: u32 = 10;
/// Work of each task, and the speeds of servers in floating-point operations per second.
const WORK_FLOPS: f64 = 1e10;
const SLOW_FLOPS: f64 = 1e9;
const FAST_FLOPS: f64 = 2e10;
/// Number of times that a change of a large grid is measured.
const CHANGES: u64 = 25;

/// Returns the figures of a grid with that many servers.
pub fn figures(servers: u32) -> Vec<Figure> {
    // The memory of the first agent is not reused memory of others.
    let mut of_agents: Vec<Figure> = [1, 2].into_iter().flat_map(|sites| of_agent(servers, sites)).collect();
    of_agents.push(equal_servers(servers));
    let mut figures = simulated(servers);
    figures.append(&mut of_agents);
    figures
}

fn simulated(servers: u32) -> Vec<Figure> {
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
    let began = processor_s();
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
    let registered = (ns_to_seconds(sim.now().0), processor_s() - began);

    let count = fast * TASKS_PER_FAST_SERVER;
    let began = (sim.now(), processor_s());
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
    let mapped = (ns_to_seconds(sim.now().since(began.0)), processor_s() - began.1);
    let used: BTreeSet<NodeId> = plan.tasks.iter().map(|task| task.server).collect();
    let right = used.intersection(&fast_nodes).count();
    let times = |(virtual_s, machine_s): (f64, f64)| format!("{virtual_s:.2} s, {machine_s:.1} s of processor");
    vec![
        figure(format!("{servers} servers register"), times(registered), "10 s for 10,000"),
        figure(
            format!("{count} tasks mapped, {servers} servers"),
            format!("{}, {right} of {} used are fast", times(mapped), used.len()),
            "1 s for 1,000 tasks on 10,000 servers",
        ),
    ]
}

/// Returns what a grid costs the agent, with servers that belong to that many sites in turn.
fn of_agent(servers: u32, sites: u64) -> Vec<Figure> {
    let functions = gridloom_idl::parse(IDL, "t.idl").expect("it parses");
    let mut agent = LoneAgent::new(functions[0].signature.clone(), sites);
    let (count, fast) = (u64::from(servers), u64::from(servers / FAST_OF));
    let flops = |number: u64| if number % u64::from(FAST_OF) == 7 { FAST_FLOPS } else { SLOW_FLOPS };
    let memory = resident_mib();
    let began = processor_s();
    (0..count).for_each(|number| agent.add_server(number, flops(number)));
    agent.pass(1_000_000_000);
    let registered_s = processor_s() - began;
    let (sent, links) = (agent.sent, agent.links().len());
    let tasks = fast as usize * TASKS_PER_FAST_SERVER as usize;
    let map = |agent: &mut LoneAgent| {
        let began = processor_s();
        let plan = agent.map(tasks, WORK_FLOPS);
        let used: BTreeSet<NodeId> = plan.tasks.iter().map(|task| task.server).collect();
        let right = used.iter().filter(|node| flops(node.0 - 1) == FAST_FLOPS).count();
        format!("{:.2} s, {right} of {} used are fast", processor_s() - began, used.len())
    };
    let mapped = map(&mut agent);
    let began = processor_s();
    for number in 0..count {
        agent.report_model(number, WORK_FLOPS, WORK_FLOPS / flops(number));
    }
    agent.pass(20_000_000_000);
    let reported_s = processor_s() - began;
    let mapped_by_models = map(&mut agent);
    let resident = resident_mib() - memory;
    // Each change with all that follows within a second of virtual time, beside what a second without changes costs.
    let mut milliseconds = |change: &dyn Fn(&mut LoneAgent, u64)| {
        let mut times = Vec::new();
        for n in 0..CHANGES {
            let began = processor_s();
            change(&mut agent, n);
            agent.pass(1_000_000_000);
            times.push(1e3 * (processor_s() - began));
        }
        times.sort_by(f64::total_cmp);
        format!("{:.1} ms ({:.1}..{:.1})", times[times.len() / 2], times[0], times[times.len() - 1])
    };
    let added = |agent: &mut LoneAgent, n: u64| agent.add_server(count + n, SLOW_FLOPS);
    let lost = |agent: &mut LoneAgent, n: u64| agent.lose_server(count / 2 + 3 * n);
    let model = |agent: &mut LoneAgent, n: u64| agent.report_model(count / 3 + n, WORK_FLOPS, 0.9);
    let name = |what: &str| format!("agent, {servers} servers, {sites} sites: {what}");
    let mut figures = vec![
        figure(
            name("all register"),
            format!(
                "{registered_s:.2} s, {:.1} messages and {:.1} links each",
                sent as f64 / count as f64,
                links as f64 / count as f64
            ),
            "10 s for 10,000",
        ),
        figure(name(&format!("{tasks} tasks mapped")), mapped, "1 s for 10,000"),
        figure(name("all report a model"), format!("{reported_s:.2} s"), ""),
        figure(name(&format!("{tasks} tasks mapped by models")), mapped_by_models, "1 s for 10,000"),
        figure(name("a second without changes"), milliseconds(&|_, _| ()), ""),
        figure(name("a second with a registration"), milliseconds(&added), ""),
        figure(name("a second with a loss"), milliseconds(&lost), ""),
        figure(name("a second with a model"), milliseconds(&model), ""),
    ];
    if sites == 1 {
        figures.push(figure(name("memory, with two plans"), format!("{resident:.0} MiB"), ""));
    }
    figures
}

/// Returns what a group costs the agent that could use any of the servers.
fn equal_servers(servers: u32) -> Figure {
    let functions = gridloom_idl::parse(IDL, "t.idl").expect("it parses");
    let mut agent = LoneAgent::new(functions[0].signature.clone(), 1);
    (0..u64::from(servers)).for_each(|number| agent.add_server(number, SLOW_FLOPS));
    agent.pass(1_000_000_000);
    let tasks = (servers / FAST_OF * TASKS_PER_FAST_SERVER) as usize;
    let began = processor_s();
    let plan = agent.map(tasks, WORK_FLOPS);
    let mapped_s = processor_s() - began;
    let used: BTreeSet<NodeId> = plan.tasks.iter().map(|task| task.server).collect();
    let ours = format!("{mapped_s:.2} s, {} used", used.len());
    figure(format!("agent, {servers} equal servers: {tasks} tasks mapped"), ours, "1 s for 10,000")
}

fn figure(name: String, ours: String, aim: &'static str) -> Figure {
    Figure { name: name.leak(), ours, limit: String::new(), ratios: vec![f64::NAN], aim }
}

/// Returns the processor time of this thread, in seconds.
fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// Returns the memory of this process, in MiB.
fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("it is always listed");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("a number follows") / 1024.0
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
        work_flops: Some(WORK_FLOPS),
        options: CallOptions::default(),
    }
}
