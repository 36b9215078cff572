//! Hosts between which transfers take no time, and simulations in which virtual time stands still.

use std::sync::Arc;

use crate::lan;
use gridloom_base::machine::Machine;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, TaskId, Time};
use gridloom_conformance::grid::cases;
use gridloom_core::graph::{Argument, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Effect, Event, Input, Role, Timer};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, SimWorld, Simulation};

const IDL: &str = "Module t;
Define two(IN int n, IN double a[n], IN double b[n], OUT double c[n]) CalcOrder 1e9 Calls \"C\" two(n, a, b, c);";
const ELEMENTS: u64 = 250_000;

/// Returns a platform whose hosts are at the same place, without links.
fn same_place(hosts: usize) -> Arc<Platform> {
    let names = ["client".to_string()].into_iter().chain((1..hosts).map(|number| format!("server-{number}")));
    let hosts: String =
        names.map(|name| format!("<host id=\"{name}\" coordinates=\"0 0 0\" speed=\"10Gf\"/>")).collect();
    let text = format!("<platform version=\"4.1\"><zone id=\"z\" routing=\"Vivaldi\">{hosts}</zone></platform>");
    Arc::new(Platform::parse(&text, "same-place.xml", &mut |_| Err("no files".into())).unwrap())
}

#[test]
fn the_world_conforms_where_nothing_takes_time() {
    for (name, case) in cases() {
        println!("{name}");
        let platform = same_place(5);
        let storages = (0..platform.hosts().len() as u32).map(|number| (HostId(number), HostId(0))).collect();
        case(&mut SimWorld::new(platform, SimConfig { storages, ..SimConfig::default() }));
    }
}

#[test]
fn a_result_of_data_that_took_no_time_is_received() {
    let mut sim = Simulation::new(same_place(6), SimConfig::default());
    sim.add_agent(HostId(0), "agent");
    let functions = gridloom_idl::parse(IDL, "t.idl").unwrap();
    let hash = functions[0].signature.hash();
    for host in 1..6 {
        let (name, functions) = (format!("server-{host}"), functions.clone());
        sim.add_server(
            HostId(host),
            ServerSpec { name, slots: 1, is_stateless: false, memory_bytes: 1 << 30, disk_bytes: 0, functions },
        );
    }
    let client = sim.add_client(HostId(0), "client");
    lan::wait_for(&mut sim, client, |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == 5));
    let datum = |serial| DatumId { client, serial };
    let meta = Meta::array(Dtype::Float64, &[ELEMENTS]);
    let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: (ELEMENTS as i32).to_ne_bytes().to_vec() };
    sim.put(client, datum(100), meta.clone(), None);
    let task = |serial, a, b| Task {
        id: TaskId { client, serial },
        kind: TaskKind::call("t/two", hash),
        args: vec![n.clone(), Argument::Datum(a), Argument::Datum(b)],
        outputs: vec![Output { datum: datum(serial), meta: meta.clone() }],
        work_flops: Some(1e9),
        options: Default::default(),
    };
    let mut tasks: Vec<Task> = (1..=6).map(|serial| task(serial, datum(100), datum(100))).collect();
    tasks.push(task(7, datum(1), datum(2)));
    let sources = [(datum(100), Source { meta: meta.clone(), at: Vec::new() })].into_iter().collect();
    let group = Group { id: GroupId { client, serial: 1 }, tasks, sources, wanted: Vec::new() };
    sim.command(client, Command::Run { group, heuristic: "heft".into() });
    sim.command(client, Command::Get { datum: datum(7) });
    lan::wait_for(&mut sim, client, |event| matches!(event, Event::DatumAvailable { datum, .. } if datum.serial == 7));
    assert!((0.2..0.3).contains(&sim.now().seconds()), "at {}", sim.now());
}

/// A node that repeatedly sets a timer for the current time.
#[derive(Debug)]
struct Restless;

impl Machine for Restless {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, _: Input, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: Timer::Numbered(7), at: now });
    }
}

#[test]
fn a_node_whose_events_take_no_time_ends_the_simulation() {
    let config = SimConfig { events_at_one_time_max: 1000, ..SimConfig::default() };
    let mut sim = Simulation::new(same_place(3), config);
    sim.add_agent(HostId(0), "agent");
    sim.add_machine(HostId(1), Role::Server, "restless", 1, |_, _| Box::new(Restless));
    let client = sim.add_client(HostId(0), "client");
    while sim.next_event(client, None).is_some() {}
    assert!(!sim.step());
    sim.advance(1);
    let why = sim.standstill().expect("time does not move").to_string();
    for part in ["1000 events", "'restless': timer Numbered", "latency"] {
        assert!(why.contains(part), "{why}");
    }
}
