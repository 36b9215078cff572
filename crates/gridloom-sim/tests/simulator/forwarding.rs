//! Tests of data that are forwarded while they are received: a chain of scripted servers.

use crate::scripted::{Grid, datum, dial, ms, send_datum};
use gridloom_base::limits::PARTS;
use gridloom_base::{NodeId, SplitMix64};
use gridloom_core::node::{Input, Role};
use gridloom_platform::{Platform, PlatformBuilder, Sharing};
use gridloom_sim::faults::Scenario;

const SIZE_BYTES: u64 = 2 * PARTS.forwarded_bytes_min();
const PART_BYTES: u64 = PARTS.part_bytes(SIZE_BYTES);
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

/// Returns hosts with a link of 1 ms from each to the next, with these bandwidths.
fn chain(bandwidths: [f64; 3]) -> Platform {
    let mut builder = PlatformBuilder::new();
    let hosts = HOSTS.map(|name| builder.add_host(name, 1e9, 1).unwrap());
    for (at, bandwidth) in bandwidths.into_iter().enumerate() {
        let link = builder.add_link(&format!("link {at}"), bandwidth, 1e-3, Sharing::Shared).unwrap();
        builder.add_route(hosts[at], hosts[at + 1], &[link], true).unwrap();
    }
    builder.build().unwrap()
}

/// Node a sends a datum at 100 ms; each server forwards it to the next as soon as its first part arrives.
fn passing(bandwidths: [f64; 3]) -> Grid {
    let mut grid = Grid::on(chain(bandwidths));
    let node = |at: usize| NodeId(at as u64 + 1);
    for (at, host) in HOSTS.into_iter().enumerate() {
        let mut script = Vec::new();
        script.extend((at < 3).then(|| (0, dial(HOSTS[at + 1], node(at + 1)))));
        script.extend((at == 0).then(|| (100, send_datum(node(1), datum(1)))));
        let passes_to = (at < 3).then(|| node(at + 1));
        grid.passing(Role::Server, host, script, passes_to);
    }
    grid.put(node(0), datum(1), SIZE_BYTES);
    grid
}

fn with_faults(mut grid: Grid, faults: &str) -> Grid {
    let scenario = Scenario::parse(faults, "faults").unwrap();
    let strikes = scenario.strikes(&Default::default(), &mut SplitMix64::new(0), grid.sim.now());
    grid.sim.schedule(strikes);
    grid.run();
    grid
}

/// Returns when a node has the complete datum, nanoseconds after it was sent.
fn whole(grid: &Grid, node: u64) -> u64 {
    let [at] = grid.when(NodeId(node), "d1")[..] else { panic!("node {node}: {:?}", grid.heard(NodeId(node))) };
    at - ms(100)
}

/// Returns the time of a transfer at 1 MB/s, nanoseconds.
fn ns(bytes: u64) -> u64 {
    bytes * 1000
}

fn is_near(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= 10
}

#[test]
fn a_chain_takes_one_transfer_and_a_part_for_each_server() {
    let mut grid = passing([1e6; 3]);
    grid.run();
    for node in 2..=4 {
        let hops = node - 1;
        let expected = ns(SIZE_BYTES) + (hops - 1) * ns(PART_BYTES) + hops * ms(1);
        assert!(is_near(whole(&grid, node), expected), "node {node}: {} for {expected}", whole(&grid, node));
        let begins = grid.when(NodeId(node), "d1 begins");
        assert!(is_near(begins[0] - ms(100), hops * (ns(PART_BYTES) + ms(1))) && begins.len() == 1, "{begins:?}");
    }
}

#[test]
fn a_fast_way_behind_a_slow_one_ends_a_part_later_and_a_slow_one_keeps_its_pace() {
    let mut grid = passing([0.5e6, 1e6, 0.25e6]);
    grid.run();
    assert!(is_near(whole(&grid, 2), ms(1) + 2 * ns(SIZE_BYTES)));
    assert!(is_near(whole(&grid, 3), whole(&grid, 2) + ns(PART_BYTES)), "{}", whole(&grid, 3));
    let begun = grid.when(NodeId(3), "d1 begins")[0] - ms(100);
    assert!(is_near(whole(&grid, 4), begun + ms(1) + 4 * ns(SIZE_BYTES)), "{}", whole(&grid, 4));
}

#[test]
fn what_breaks_off_breaks_off_along_the_chain_and_leaves_nothing() {
    for (fault, first_told) in [("kill a", 3), ("reset a b", 3), ("half-open b a", 3), ("kill b", 4)] {
        let grid = with_faults(passing([1e6; 3]), &format!("at 5s {fault}"));
        for node in 2..=4 {
            let node = NodeId(node);
            assert!(grid.sim.value(node, datum(1)).is_none() && grid.when(node, "d1").is_empty(), "{fault}: {node}");
            assert_eq!(grid.when(node, "d1 begins").len(), 1, "{fault}: {node}");
            let told = grid.when(node, "broken").len();
            assert_eq!(told, usize::from(node.0 >= first_told), "{fault}: {node}");
        }
        grid.sim.check();
    }
}

#[test]
fn a_full_server_at_the_end_forwards_no_complete_datum() {
    let grid = with_faults(passing([1e6; 3]), "at 8s full b for 1s");
    let no_memory = |(_, input): &(_, Input)| matches!(input, Input::DatumBroken { no_memory: true, .. });
    assert_eq!(grid.heard(NodeId(2)).iter().filter(|heard| no_memory(heard)).count(), 1);
    for node in [3, 4] {
        assert_eq!((grid.when(NodeId(node), "broken").len(), grid.when(NodeId(node), "d1").len()), (1, 0), "{node}");
    }
}

#[test]
fn a_cut_delays_what_is_behind_it() {
    let grid = with_faults(passing([1e6; 3]), "at 5s cut a b for 2s");
    // The transfer starts over when the cut heals.
    assert!(is_near(whole(&grid, 2), ms(6900) + ms(1) + ns(SIZE_BYTES)), "{}", whole(&grid, 2));
    assert!(is_near(whole(&grid, 4), whole(&grid, 2) + 2 * ns(PART_BYTES)), "{}", whole(&grid, 4));
    assert_eq!(grid.when(NodeId(2), "d1 begins").len(), 1);
}
