//! Tests of hosts that page: exact times of transfers and computations whose data do not fit into memory.

use std::sync::Arc;

use crate::scripted::{Grid, datum, dial, ms, platform, send_datum, task};
use gridloom_base::{Meta, NodeId};
use gridloom_core::graph::{Output, Task};
use gridloom_core::node::Effect;
use gridloom_flow::NetworkModel;
use gridloom_platform::HostId;
use gridloom_sim::{HostMemory, SimConfig};

/// The only link of the platform has 1 MB/s and 1 ms.
const BANDWIDTH: f64 = 1e6;
const LATENCY_MS: u64 = 1;
const MEMORY_BYTES: u64 = 200_000;
const SWAP: f64 = 0.5e6;
const A: u32 = 0;
const B: u32 = 1;

/// A grid in which the given hosts page.
fn paging(hosts: &[u32], network: NetworkModel) -> Grid {
    let memory = HostMemory { size_bytes: MEMORY_BYTES, swap_rate: SWAP };
    let memories = hosts.iter().map(|host| (HostId(*host), memory)).collect();
    Grid::with(platform(), SimConfig { memories, network, ..SimConfig::default() })
}

/// Node a holds `held_bytes` and sends 200 kB of them to b. Returns how long that takes, nanoseconds.
fn sends(held_bytes: u64, hosts: &[u32], network: NetworkModel) -> u64 {
    let mut grid = paging(hosts, network);
    let b = grid.node("b", Vec::new());
    let a = grid.node("a", vec![(0, dial("b", b)), (100, send_datum(b, datum(1)))]);
    grid.put(a, datum(1), 200_000);
    if held_bytes > 200_000 {
        grid.put(a, datum(2), held_bytes - 200_000);
    }
    grid.run();
    grid.when(b, "d1")[0] - ms(100)
}

#[test]
fn data_that_fit_are_sent_at_the_rate_of_the_link() {
    let expected = ms(LATENCY_MS + 200);
    assert_eq!(sends(200_000, &[A], NetworkModel::WARM_TCP), expected);
    // No host pages: what it holds does not matter.
    assert_eq!(sends(900_000, &[], NetworkModel::WARM_TCP), expected);
}

#[test]
fn a_sender_that_pages_sends_at_the_rate_of_its_swap() {
    // Of 400 kB one half is outside: 1 MB/s passes the swap, the limit of the link.
    assert_eq!(sends(400_000, &[A], NetworkModel::WARM_TCP), ms(LATENCY_MS + 200));
    // Of 800 kB three quarters are outside: 150 kB pass the swap.
    assert_eq!(sends(800_000, &[A], NetworkModel::WARM_TCP), ms(LATENCY_MS + 300));
}

#[test]
fn a_receiver_that_pages_holds_the_datum_from_the_beginning() {
    let mut grid = paging(&[B], NetworkModel::WARM_TCP);
    let b = grid.node("b", Vec::new());
    let a = grid.node("a", vec![(0, dial("b", b)), (100, send_datum(b, datum(1)))]);
    grid.put(a, datum(1), 600_000);
    grid.put(b, datum(2), 200_000);
    grid.run();
    // It holds 800 kB, three quarters outside: 450 kB pass the swap.
    assert_eq!(grid.when(b, "d1"), [ms(100) + ms(LATENCY_MS + 900)]);
}

#[test]
fn the_swap_has_its_rate_in_all_network_models() {
    // The latency phase of `lv08` takes 13.01 times the latency.
    let took = sends(800_000, &[A], NetworkModel::LV08);
    let expected = (13.01e-3 + 150_000.0 / SWAP) * 1e9;
    assert!((took as f64 - expected).abs() < 2.0, "{took} instead of {expected}");
    const { assert!(200_000.0 / BANDWIDTH / 0.97 < 150_000.0 / SWAP, "the link is faster") };
}

#[test]
fn transfers_share_the_swap_of_their_host() {
    let mut grid = paging(&[A], NetworkModel::WARM_TCP);
    let b = grid.node("b", Vec::new());
    let c = grid.node("c", Vec::new());
    let script =
        vec![(0, dial("b", b)), (0, dial("c", c)), (100, send_datum(b, datum(1))), (100, send_datum(c, datum(2)))];
    let a = grid.node("a", script);
    for serial in [1, 2] {
        grid.put(a, datum(serial), 400_000);
    }
    grid.run();
    // Three quarters of 800 kB pass the swap, together at 0.5 MB/s.
    let end = ms(100) + ms(LATENCY_MS + 1200);
    assert_eq!((grid.when(b, "d1"), grid.when(c, "d2")), (vec![end], vec![end]));
}

/// Returns a task with one argument and a result of that size.
fn working(serial: u64, result_bytes: u64) -> Arc<Task> {
    let output = Output { datum: datum(100 + serial), meta: Meta::Bytes { size_bytes: result_bytes } };
    Arc::new(Task { outputs: vec![output], ..task(serial, 1e8, &[datum(1)]) })
}

/// A host computes for 100 ms on 300 kB of arguments. Returns how long the task takes, nanoseconds.
fn computes(result_bytes: u64, hosts: &[u32]) -> u64 {
    let mut grid = paging(hosts, NetworkModel::WARM_TCP);
    let a = grid.node("a", vec![(100, Effect::StartTask { task: working(1, result_bytes) })]);
    grid.put(a, datum(1), 300_000);
    grid.run();
    grid.when(a, "t1")[0] - ms(100)
}

#[test]
fn a_task_first_exchanges_the_part_of_its_data_that_is_not_in_memory() {
    assert_eq!(computes(500_000, &[]), ms(100));
    // It holds 800 kB, arguments and result, all accessed once, three quarters outside: 600 kB pass the swap.
    assert_eq!(computes(500_000, &[A]), ms(1200 + 100));
    // One third of 300 kB.
    assert_eq!(computes(0, &[A]), ms(200 + 100));
}

#[test]
fn tasks_that_page_share_the_swap_and_their_memory_is_released() {
    let mut grid = paging(&[A], NetworkModel::WARM_TCP);
    let start = |at, serial| (at, Effect::StartTask { task: working(serial, 50_000) });
    let a = grid.node("a", vec![start(100, 1), start(100, 2), (101, crate::scripted::stop(2)), start(5000, 3)]);
    grid.put(a, datum(1), 300_000);
    grid.run();
    // The first holds 350 kB: 3/7 of its 350 kB pass the swap, 150 kB. The second holds 400 kB: it pages for 1 ms beside the first.
    assert_eq!(grid.when(a, "t1"), [ms(100) + 500_000 + ms(300 + 100)]);
    // The third holds 400 kB, with the result of the first: half of its 350 kB. The result of the second is released.
    assert_eq!(grid.when(a, "t3"), [ms(5000) + ms(350 + 100)]);
}

#[test]
fn the_memory_of_a_client_counts_and_slows_its_computation() {
    let memory = HostMemory { size_bytes: MEMORY_BYTES, swap_rate: SWAP };
    let memories = [(HostId(A), memory)].into();
    let mut sim = gridloom_sim::Simulation::new(platform().into(), SimConfig { memories, ..SimConfig::default() });
    sim.add_agent(HostId(B), "agent");
    let client: NodeId = sim.add_client(HostId(A), "client");
    let other = sim.add_client(HostId(B), "other");
    assert_eq!(sim.paging_ns(client, 200_000), 0);
    // It holds 800 kB then: 600 kB pass the swap.
    assert_eq!((sim.paging_ns(client, 800_000), sim.paging_ns(other, 800_000)), (ms(1200), 0));
    sim.hold(client, 800_000);
    assert_eq!((sim.paging_ns(client, 0), sim.paging_ns(client, 400_000)), (0, ms(600)));
    sim.hold(client, 400_000);
    assert_eq!(sim.paging_ns(client, 400_000), ms(400));
    sim.put(client, gridloom_base::DatumId { client, serial: 1 }, Meta::Bytes { size_bytes: 400_000 }, None);
    assert_eq!(sim.paging_ns(client, 400_000), ms(600));
    sim.close(client);
    let next = sim.add_client(HostId(A), "next");
    assert_eq!(sim.paging_ns(next, 200_000), 0);
}
