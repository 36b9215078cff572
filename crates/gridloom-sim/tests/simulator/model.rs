//! Tests of what the simulated world adds to the contract: sharing, faults, accounting, bodies and reproducible traces.

use std::sync::Arc;

use crate::scripted::*;
use gridloom_base::{Level, Meta, TaskError, Time};
use gridloom_core::graph::Task;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Category, Effect, Event, Input, LogLine, Role, World};
use gridloom_sim::{Bodies, Interval, SimConfig, SimWorld};

#[test]
fn two_transfers_share_a_link() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let c = grid.node("c", vec![]);
    let script = vec![(0, dial("b", b)), (0, dial("c", c)), (9, send_datum(b, datum(1))), (9, send_datum(c, datum(2)))];
    let a = grid.node("a", script);
    grid.put(a, datum(1), 100_000);
    grid.put(a, datum(2), 200_000);
    grid.run();
    assert_eq!(grid.when(b, "d1"), [ms(9) + ms(1) + ms(200)]);
    assert_eq!(grid.when(c, "d2"), [ms(9) + ms(1) + ms(300)]);
    let wire = grid.sim.bytes_by_link().into_iter().find(|(name, _)| name == "wire");
    assert_eq!(wire, Some(("wire".to_string(), 300_000.0)));
    assert_eq!(grid.sim.bytes_by_pair().get(&(a, c)), Some(&200_000));
}

#[test]
fn bulk_data_of_one_pair_go_one_after_another() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let script = vec![(0, dial("b", b)), (9, send_datum(b, datum(1))), (9, send_datum(b, datum(2)))];
    let a = grid.node("a", script);
    grid.put(a, datum(1), 100_000);
    grid.put(a, datum(2), 100_000);
    grid.run();
    assert_eq!(grid.when(b, "d1"), [ms(9) + ms(101)]);
    // The route's latency passed while it waited.
    assert_eq!(grid.when(b, "d2"), [ms(9) + ms(201)]);
    let (start, end) = (Time(ms(110)), Time(ms(210)));
    let second = Interval::Transfer { from: a, to: b, datum: datum(2), size_bytes: 100_000, start, end };
    assert_eq!(grid.sim.intervals()[1], second);
}

#[test]
fn probes_take_their_time_and_speed_is_the_hosts() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![(0, Effect::MeasureSpeed)]);
    grid.node("a", vec![(0, dial("b", b)), (9, Effect::SendProbe { to: b, size_bytes: 500_000 })]);
    grid.run();
    assert!(grid.heard(b).contains(&(Time::ZERO, Input::SpeedMeasured { flops: 1e9 })));
    assert_eq!(grid.when(b, "probe"), [ms(9) + ms(501)]);
    assert!(grid.sim.bytes_by_pair().is_empty(), "a probe is no payload");
}

#[test]
fn a_killed_node_is_lost_after_what_it_had_sent() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let script = vec![(0, dial("b", b)), (5, ping(b, 1)), (5, send_datum(b, datum(1))), (5, start(1, 1e9))];
    let a = grid.node("a", script);
    grid.put(a, datum(1), 100_000);
    grid.sim.advance(ms(5));
    grid.sim.kill(a);
    grid.run();
    let order: Vec<String> = grid.heard(b).iter().map(|(_, input)| short(input)).collect();
    assert_eq!(order, ["start", "up", "ping 1", "lost"]);
    assert!(grid.sim.now() < Time(ms(10)), "neither its transfer nor its task goes on");
    assert!(grid.when(a, "t1").is_empty());
}

#[test]
fn a_hung_node_keeps_its_connections_and_sends_nothing() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![(50, ping(second(), 7))]);
    let a = grid.node("a", vec![(0, dial("b", b)), (60, ping(b, 1)), (60, send_datum(b, datum(1)))]);
    grid.put(a, datum(1), 100_000);
    grid.sim.advance(ms(20));
    grid.sim.hang(b);
    grid.run();
    assert_eq!(grid.heard(b).len(), 2, "start and up");
    assert!(grid.when(a, "ping 7").is_empty() && grid.when(a, "lost").is_empty());
    grid.sim.kill(b);
    grid.run();
    assert_eq!(grid.when(a, "lost").len(), 1);
}

#[test]
fn a_cut_swallows_everything_in_both_directions() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![(60, ping(second(), 7)), (70, exit())]);
    let script = vec![(0, dial("b", b)), (5, send_datum(b, datum(1))), (60, ping(b, 1)), (80, dial("b", b))];
    let a = grid.node("a", script);
    grid.put(a, datum(1), 100_000);
    grid.sim.advance(ms(20));
    let [here, there] = ["a", "b"].map(|name| grid.sim.platform().host(name).unwrap());
    grid.sim.cut(there, here);
    grid.run();
    assert_eq!(grid.heard(b).len(), 2, "start and up");
    let order: Vec<String> = grid.heard(a).iter().map(|(_, input)| short(input)).collect();
    assert_eq!(order, ["start", "up", "failed"]);
    assert_eq!(grid.when(a, "failed"), [ms(5080)]);
}

#[test]
fn the_same_calls_produce_the_same_trace() {
    let hash = |size| {
        let mut grid = Grid::new();
        let b = grid.node("b", vec![(3, start(1, 1e6))]);
        let a = grid.node("a", vec![(0, dial("b", b)), (5, send_datum(b, datum(1))), (5, ping(b, 1))]);
        grid.put(a, datum(1), size);
        grid.run();
        grid.sim.trace_hash()
    };
    assert_eq!(hash(100_000), hash(100_000));
    assert_ne!(hash(100_000), hash(100_001));
}

/// Reverses its one input.
struct Reverse;

impl Bodies for Reverse {
    fn run(&mut self, _: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
        let (meta, bytes) = &inputs[0];
        Ok(vec![(meta.clone(), bytes.iter().rev().copied().collect())])
    }
}

#[test]
fn bodies_return_real_results_in_modelled_time() {
    let mut grid = Grid::new();
    let start = |serial, input| Effect::StartTask { task: Arc::new(task(serial, 1e6, &[input])) };
    let a = grid.node("a", vec![(1, start(1, datum(1))), (3, start(2, datum(2)))]);
    grid.sim.set_bodies(Box::new(Reverse));
    grid.sim.put(a, datum(1), Meta::Bytes { size_bytes: 3 }, Some([1, 2, 3].into()));
    grid.put(a, datum(2), 3);
    grid.run();
    assert_eq!(grid.when(a, "t1"), [ms(2)]);
    assert_eq!(&*grid.sim.value(a, datum(101)).unwrap().1.unwrap(), [3, 2, 1]);
    let last = grid.heard(a).pop().unwrap().1;
    assert!(matches!(last, Input::TaskEnded { outcome: Err(TaskError::CannotRun { .. }), .. }));
}

#[test]
fn a_program_waits_for_its_clients_events_up_to_a_deadline() {
    let mut grid = Grid::new();
    let line = |text| Event::Log(LogLine::new(Level::Info, Category::Client, text));
    let client = grid.node_of(Role::Client, "a", vec![(10, Effect::Emit(line("hello")))]);
    assert_eq!(grid.sim.next_event(client, Some(Time(ms(9)))), None);
    assert_eq!(grid.sim.now(), Time(ms(9)));
    assert_eq!(grid.sim.next_event(client, Some(Time(ms(20)))), Some(line("hello")));
    assert_eq!(grid.sim.now(), Time(ms(10)));
    assert_eq!(grid.sim.next_event(client, None), None, "nothing can happen any more");
    grid.sim.advance(ms(5));
    assert_eq!(grid.sim.now(), Time(ms(15)));
}

#[test]
fn a_world_places_nodes_by_name_or_in_turn() {
    let mut world = SimWorld::new(Arc::new(platform()), SimConfig::default());
    world.start_agent();
    let spec = |name: &str| ServerSpec {
        name: name.into(),
        slots: 1,
        is_stateless: false,
        memory_bytes: 1 << 20,
        disk_bytes: 0,
        functions: Vec::new(),
    };
    let servers = ["c", "first", "second"].map(|name| world.start_server(spec(name)));
    let client = world.start_client("client");
    assert_eq!(world.next_event(client, 1), None);
    let sim = world.simulation();
    let address = |node| sim.address(node).to_string();
    assert_eq!(servers.map(address), ["sim://c:2", "sim://b:3", "sim://c:4"]);
}
