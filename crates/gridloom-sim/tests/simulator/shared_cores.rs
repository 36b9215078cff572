//! Plans for servers with more slots than cores, before any call was measured: tasks side by side share the cores.

use std::sync::Arc;

use gridloom_base::{GroupId, TaskId};
use gridloom_core::graph::{Group, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str = "Module t;\nDefine work() CalcOrder 1e9 Calls \"C\" work();";
const SECOND_NS: u64 = 1_000_000_000;
const HEURISTICS: [&str; 6] = ["auto", "heft", "greedy_map", "min-min", "cpop", "round-robin"];

/// Runs independent tasks of one second on servers with these speeds (Gf) and two slots for each core. Returns the predicted
/// and the actual time, seconds.
fn run(heuristic: &str, tasks: u64, speeds: &[f64], cores: u32) -> (f64, f64) {
    // Data are a few bytes: one slow link is enough.
    let host = |name: &str, speed: f64| format!("[[host]]\nname = '{name}'\nspeed = '{speed}Gf'\ncores = {cores}\n");
    let mut text = host("client", 1.0) + "[[link]]\nname = 'lan'\nbandwidth = '1GBps'\nlatency = '10us'\n";
    let names: Vec<String> = (0..speeds.len()).map(|number| format!("server-{number}")).collect();
    names.iter().zip(speeds).for_each(|(name, speed)| text += &host(name, *speed));
    let all: Vec<&str> = ["client"].into_iter().chain(names.iter().map(String::as_str)).collect();
    for (number, from) in all.iter().enumerate() {
        for to in &all[number + 1..] {
            text += &format!("[[route]]\nfrom = '{from}'\nto = '{to}'\nlinks = ['lan']\n");
        }
    }
    let platform = Platform::parse(&text, "cores.toml", &mut |_| Err("no files".into())).unwrap();
    let mut sim = Simulation::new(Arc::new(platform), SimConfig::default());
    let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    sim.add_agent(HostId(0), "agent");
    for number in 0..speeds.len() as u32 {
        let (name, functions) = (format!("server-{number}"), definitions.clone());
        let spec =
            ServerSpec { name, slots: 2 * cores, is_stateless: false, memory_bytes: 1 << 30, disk_bytes: 0, functions };
        sim.add_server(HostId(1 + number), spec);
    }
    let client = sim.add_client(HostId(0), "client");
    let wait = |sim: &mut Simulation, is_it: &dyn Fn(&Event) -> bool| loop {
        let deadline = sim.now() + 100 * SECOND_NS;
        let event = sim.next_event(client, Some(deadline)).expect("nothing more happens");
        if is_it(&event) {
            return event;
        }
    };
    wait(&mut sim, &|event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == speeds.len()));
    sim.advance(5 * SECOND_NS);
    let task = |serial| Task {
        id: TaskId { client, serial },
        kind: TaskKind::call("t/work", definitions[0].signature.hash()),
        args: Vec::new(),
        outputs: Vec::new(),
        work_flops: Some(1e9),
        options: Default::default(),
    };
    let group = Group {
        id: GroupId { client, serial: 100 },
        tasks: (1..=tasks).map(task).collect(),
        sources: Default::default(),
        wanted: Vec::new(),
    };
    sim.command(client, Command::Run { group, heuristic: heuristic.into() });
    let planned = wait(&mut sim, &|event| matches!(event, Event::GroupPlanned { .. }));
    let Event::GroupPlanned { plan, .. } = planned else { unreachable!("waited for above") };
    let began = sim.now();
    wait(&mut sim, &|event| matches!(event, Event::GroupEnded { .. }));
    (plan.makespan_s, sim.now().since(began) as f64 / SECOND_NS as f64)
}

fn check(heuristic: &str, found: (f64, f64), expected_s: f64) {
    let (predicted_s, took_s) = found;
    let is_near = |seconds: f64| (seconds / expected_s - 1.0).abs() < 0.02;
    let what = format!("{heuristic}: {predicted_s:.3} s predicted, {took_s:.3} s taken, {expected_s} s expected");
    assert!(is_near(predicted_s) && is_near(took_s), "{what}");
}

#[test]
fn two_tasks_on_one_core_take_twice_as_long() {
    for heuristic in HEURISTICS {
        check(heuristic, run(heuristic, 2, &[1.0], 1), 2.0);
        check(heuristic, run(heuristic, 2, &[1.0], 2), 1.0);
        check(heuristic, run(heuristic, 4, &[1.0], 2), 2.0);
    }
}

/// One task on each is faster than both on the fast server. Published heuristics do not know this, but their plans have the right
/// times.
#[test]
fn a_slower_server_is_used_if_its_core_is_free() {
    check("auto", run("auto", 2, &[1.0, 0.6], 1), 1.0 / 0.6);
    for heuristic in HEURISTICS {
        let (predicted_s, took_s) = run(heuristic, 2, &[1.0, 0.6], 1);
        assert!((predicted_s / took_s - 1.0).abs() < 0.02, "{heuristic}: {predicted_s} s predicted, {took_s} s taken");
    }
}
