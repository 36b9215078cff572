//! Tests of the effect of each fault on scripted machines, and on a grid.

use crate::scripted;
use std::sync::Arc;

use crate::scripted::{Grid, datum, dial, ms, ping, platform, second, send_datum, start, task, task_id};
use gridloom_base::Meta;
use gridloom_base::limits::PARTS;
use gridloom_core::node::message::DataMessage;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Effect, Event, Input};
use gridloom_platform::HostId;
use gridloom_sim::faults::{Fault, Scenario};
use gridloom_sim::{Files, SimConfig, Simulation};

const SIZE_BYTES: u64 = 8 << 20;

/// Node a on host a has dialled b on host b and pings it at 100, 200, 300 and 400 ms; b pings back at 250 ms.
fn pinging() -> Grid {
    let mut grid = Grid::new();
    let (a, b) = (gridloom_base::NodeId(1), second());
    let mut script = vec![(0, dial("b", b))];
    script.extend([100, 200, 300, 400].map(|at| (at, ping(b, at))));
    grid.node("a", script);
    grid.node("b", vec![(250, ping(a, 250))]);
    grid
}

fn with_faults(mut grid: Grid, faults: &str) -> Grid {
    let scenario = Scenario::parse(faults, "faults").unwrap();
    let strikes = scenario.strikes(&Default::default(), &mut gridloom_base::SplitMix64::new(0), grid.sim.now());
    grid.sim.schedule(strikes);
    grid.run();
    grid
}

fn heard(grid: &Grid, node: u64) -> Vec<(u64, String)> {
    let all = grid.heard(gridloom_base::NodeId(node));
    all.iter().map(|(at, input)| (at.0 / ms(1), scripted::short(input))).filter(|(_, what)| what != "start").collect()
}

fn said(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(at, what)| (*at, what.to_string())).collect()
}

#[test]
fn a_healed_cut_is_a_delay() {
    let grid = with_faults(pinging(), "at 150ms cut a b for 200ms");
    assert_eq!(
        heard(&grid, 2),
        said(&[(2, "up"), (101, "ping 100"), (350, "ping 200"), (350, "ping 300"), (401, "ping 400")])
    );
    assert_eq!(heard(&grid, 1), said(&[(2, "up"), (350, "ping 250")]));
}

#[test]
fn a_cut_that_does_not_heal_swallows() {
    let grid = with_faults(pinging(), "at 150ms cut a b");
    assert_eq!(heard(&grid, 2), said(&[(2, "up"), (101, "ping 100")]));
    assert_eq!(heard(&grid, 1), said(&[(2, "up")]));
}

#[test]
fn a_one_way_loss_leaves_the_way_back() {
    let grid = with_faults(pinging(), "at 150ms lose a -> b");
    assert_eq!(heard(&grid, 2), said(&[(2, "up"), (101, "ping 100")]));
    assert_eq!(heard(&grid, 1), said(&[(2, "up"), (251, "ping 250")]));
}

#[test]
fn bulk_that_a_cut_stopped_starts_again() {
    let mut grid = Grid::new();
    let a = grid.node("a", vec![(0, dial("b", second())), (100, send_datum(second(), datum(1)))]);
    let b = grid.node("b", vec![]);
    grid.put(a, datum(1), 100_000);
    let undisturbed = {
        let mut grid = Grid::new();
        let a = grid.node("a", vec![(0, dial("b", second())), (100, send_datum(second(), datum(1)))]);
        let b = grid.node("b", vec![]);
        grid.put(a, datum(1), 100_000);
        grid.run();
        grid.when(b, "d1")[0]
    };
    let grid = with_faults(grid, "at 150ms cut a b for 1s");
    assert_eq!(grid.when(b, "d1"), [undisturbed + ms(1050)]);
}

/// A corrupted large datum breaks off and arrives when it is sent again after the fault; a corrupted small one closes
/// its connection.
#[test]
fn changed_data_are_not_taken() {
    let run = |size_bytes: u64, sends: &[u64]| {
        let mut grid = Grid::new();
        let mut script = vec![(0, dial("b", second()))];
        script.extend(sends.iter().map(|at| (*at, send_datum(second(), datum(1)))));
        let a = grid.node("a", script);
        grid.node("b", vec![]);
        grid.sim.put(a, datum(1), Meta::Bytes { size_bytes }, Some(vec![7; size_bytes as usize].into()));
        let grid = with_faults(grid, "at 500ms corrupt a b 1 for 1s");
        let bytes = grid.sim.value(second(), datum(1)).map(|(_, bytes)| bytes.expect("it has bytes"));
        let heard: Vec<String> = heard(&grid, 2).into_iter().map(|(_, what)| what).collect();
        (heard.join(", "), bytes.map(|bytes| bytes.iter().all(|byte| *byte == 7)))
    };
    assert_eq!(run(100_000, &[10]), ("up, d1".into(), Some(true)));
    assert_eq!(run(100_000, &[600, 1700]), ("up, broken, d1".into(), Some(true)));
    assert_eq!(run(1000, &[600]), ("up, lost".into(), None));
}

/// A connection breaks after half of a datum has arrived. Only the rest is sent when the reader requests it again.
#[test]
fn a_datum_that_broke_off_continues_where_it_was() {
    let (reader, sent, sent_again) = (second(), ms(100), ms(60_000));
    let run = |faults: &str, asks: bool| {
        let mut grid = Grid::new();
        let a = gridloom_base::NodeId(1);
        let script = vec![
            (0, dial("b", reader)),
            (100, send_datum(reader, datum(1))),
            (50_000, dial("b", reader)),
            (60_000, send_datum(reader, datum(1))),
        ];
        grid.node("a", script);
        let fetch =
            Effect::Send { to: a, message: DataMessage::Fetch { datum: datum(1), hops: 1, by_storage: false }.into() };
        grid.node("b", if asks { vec![(55_000, fetch)] } else { vec![] });
        grid.sim.put(a, datum(1), Meta::Bytes { size_bytes: SIZE_BYTES }, Some(vec![7; SIZE_BYTES as usize].into()));
        let grid = with_faults(grid, faults);
        grid.when(reader, "d1")
    };
    let takes = run("", false)[0] - sent;
    let reset = format!("at {}ms reset a b", (sent + takes / 2) / ms(1));
    let [whole, rest] = [false, true].map(|asks| run(&reset, asks)[0] - sent_again);
    assert_eq!(whole, takes);
    let part_ns = takes * PARTS.part_bytes(SIZE_BYTES) / SIZE_BYTES;
    assert!((takes / 2..takes / 2 + 2 * part_ns + ms(2)).contains(&rest), "{rest} of {takes}");
}

#[test]
fn half_open_is_noticed_by_who_sends() {
    let grid = with_faults(pinging(), "at 150ms half-open b a");
    assert_eq!(heard(&grid, 2), said(&[(2, "up"), (101, "ping 100"), (150, "lost")]));
    // After a round trip.
    assert_eq!(heard(&grid, 1), said(&[(2, "up"), (202, "lost")]));
    // Node b does not know that its connection is gone: its ping at 250 ms is lost. In the opposite case, b learns of
    // it by sending.
    let grid = with_faults(pinging(), "at 210ms half-open a b");
    assert_eq!(heard(&grid, 1), said(&[(2, "up"), (210, "lost")]));
    assert_eq!(heard(&grid, 2), said(&[(2, "up"), (101, "ping 100"), (201, "ping 200"), (252, "lost")]));
}

#[test]
fn a_paused_node_handles_late_what_came() {
    let grid = with_faults(pinging(), "at 150ms pause b for 200ms");
    let late = said(&[(2, "up"), (101, "ping 100"), (350, "ping 200"), (350, "ping 300"), (401, "ping 400")]);
    assert_eq!(heard(&grid, 2), late);
}

#[test]
fn a_slow_host_takes_longer() {
    let run = |faults: &str| {
        let mut grid = Grid::new();
        let node = grid.node("a", vec![(0, start(1, 1e9))]);
        let grid = with_faults(grid, faults);
        grid.when(node, "t1")
    };
    assert_eq!(run(""), [ms(1000)]);
    // Half of the work runs at full speed, the rest at a quarter.
    assert_eq!(run("at 500ms slow a 0.25"), [ms(2500)]);
    assert_eq!(run("at 500ms slow a 0.25 for 1s"), [ms(1750)]);
    assert_eq!(task_id(1).serial, 1);
}

#[test]
fn a_slow_disk_delays_tasks_with_files_only() {
    let run = |faults: &str, has_files: bool| {
        let mut grid = Grid::new();
        let node = grid.node("a", vec![(0, start(1, 1e9))]);
        if has_files {
            let function = task(1, 0.0, &[]).name().to_string();
            grid.sim.set_files(&function, Files { outputs: vec![0], ..Files::default() });
        }
        let grid = with_faults(grid, faults);
        grid.when(node, "t1")
    };
    let bytes = task(1, 0.0, &[]).outputs[0].meta.size_bytes();
    // The default disk rate is a gigabyte per second.
    let on_disk_ns = |factor: f64| (bytes as f64 / factor).ceil() as u64;
    assert!(bytes > 0 && run("at 0s slow-disk a 1e-3", false) == [ms(1000)]);
    let [at] = run("", true)[..] else { panic!("one task") };
    assert!(at.abs_diff(ms(1000) + on_disk_ns(1.0)) <= 1, "{at}");
    let [at] = run("at 0s slow-disk a 1e-6", true)[..] else { panic!("one task") };
    assert!(at.abs_diff(ms(1000) + on_disk_ns(1e-6)) <= 1, "{at}");
    let [at] = run("at 0s slow-disk a 1e-9 for 1ms", true)[..] else { panic!("one task") };
    assert!(at.abs_diff(ms(1001) + on_disk_ns(1.0)) <= 1, "{at}");
}

#[test]
fn what_a_crashed_host_ran_restarts_with_it() {
    let functions =
        gridloom_idl::parse("Module t; Define f(IN int n, OUT double y[n]) Calls \"C\" f(n, y);", "t.idl").unwrap();
    let mut sim = Simulation::new(Arc::new(platform()), SimConfig::default());
    sim.add_agent(HostId(0), "agent");
    let spec = ServerSpec {
        name: "one".into(),
        slots: 1,
        is_stateless: false,
        memory_bytes: 1 << 20,
        disk_bytes: 0,
        functions,
    };
    let server = sim.add_server(HostId(1), spec);
    let client = sim.add_client(HostId(2), "client");
    let scenario = Scenario::parse("at 2s off one for 3s", "f").unwrap();
    sim.schedule(scenario.strikes(&Default::default(), &mut gridloom_base::SplitMix64::new(0), sim.now()));
    let mut seen = Vec::new();
    while let Some(event) = sim.next_event(client, Some(gridloom_base::Time(ms(8000)))) {
        if let Event::Directory { grid, .. } = event {
            let servers: Vec<_> = grid.servers.iter().map(|server| server.node).collect();
            if seen.last().is_none_or(|(_, last)| *last != servers) {
                seen.push((sim.now().0 / ms(1000), servers));
            }
        }
    }
    let anew = sim.node_named("one").unwrap();
    assert!(anew != server && sim.is_dead(server) && sim.why_dead(server) == Some("its host is off"));
    assert_eq!(seen.into_iter().filter(|(at, _)| *at > 0).collect::<Vec<_>>(), [(2, vec![]), (5, vec![anew])]);
}

#[test]
fn a_full_store_breaks_what_comes() {
    let mut grid = Grid::new();
    let sends = [100, 200].map(|at| (at, send_datum(second(), datum(at))));
    let mut script = vec![(0, dial("b", second()))];
    script.extend(sends);
    let a = grid.node("a", script);
    let b = grid.node("b", vec![]);
    grid.put(a, datum(100), 1000);
    grid.put(a, datum(200), 1000);
    let grid = with_faults(grid, "at 50ms full b for 100ms");
    assert_eq!((grid.when(b, "broken").len(), grid.when(b, "d200").len(), grid.when(b, "d100").len()), (1, 1, 0));
    assert!(grid.sim.value(b, datum(100)).is_none() && grid.sim.value(b, datum(200)).is_some());
    assert!(
        grid.heard(b).iter().any(|(_, input)| matches!(input, Input::DatumBroken { datum: d, .. } if *d == datum(100)))
    );
}

#[test]
fn a_server_and_the_agent_restart_at_their_addresses() {
    let mut sim = Simulation::new(Arc::new(platform()), SimConfig::default());
    let functions =
        gridloom_idl::parse("Module t; Define f(IN int n, OUT double y[n]) Calls \"C\" f(n, y);", "t.idl").unwrap();
    let agent = sim.add_agent(HostId(0), "agent");
    let spec = ServerSpec {
        name: "one".into(),
        slots: 1,
        is_stateless: false,
        memory_bytes: 1 << 20,
        disk_bytes: 0,
        functions,
    };
    let server = sim.add_server(HostId(1), spec);
    let client = sim.add_client(HostId(2), "client");
    let directory = |sim: &mut Simulation| loop {
        let event = sim.next_event(client, Some(sim.now() + ms(60_000))).expect("a directory comes");
        if let Event::Directory { grid, .. } = event {
            return grid.servers.iter().map(|server| server.node).collect::<Vec<_>>();
        }
    };
    while directory(&mut sim) != [server] {}
    sim.apply_fault(&Fault::Restart("one".into()));
    let anew = sim.node_named("one").unwrap();
    assert_ne!(anew, server);
    assert_eq!(sim.address(anew), sim.address(server));
    while directory(&mut sim) != [anew] {}
    sim.apply_fault(&Fault::Kill("agent".into()));
    sim.advance(ms(3000));
    sim.apply_fault(&Fault::Restart("agent".into()));
    assert_ne!(sim.node_named("agent"), Some(agent));
    while directory(&mut sim) != [anew] {}
    assert_eq!(sim.restart(client), None);
}
