//! Tests of the limit on a host's bulk uploads.

use crate::lan;
use crate::scripted::{Grid, datum, dial, ms, send_datum};
use gridloom_base::limits::LINK_PROBE_NS;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, Role};
use gridloom_platform::{HostId, Platform, PlatformBuilder, Sharing};
use gridloom_sim::{SimConfig, Simulation};

const SIZE_BYTES: u64 = 1_000_000;
const LIMIT: f64 = 1e6;
/// One-way latency.
const LATENCY_MS: u64 = 1;

/// Host a, with a link of 10 MB/s each to b and c.
fn platform() -> Platform {
    let mut builder = PlatformBuilder::new();
    let hosts = ["a", "b", "c"].map(|name| builder.add_host(name, 1e9, 1).unwrap());
    for to in 1..3 {
        let link = builder.add_link(&format!("link {to}"), 10.0 * LIMIT, 1e-3, Sharing::Shared).unwrap();
        builder.add_route(hosts[0], hosts[to], &[link], true).unwrap();
    }
    builder.build().unwrap()
}

/// Node a sends data to b and c at 100 ms, and b sends to a. Returns when each transfer is complete, nanoseconds after that.
fn whole(limit: Option<f64>) -> [u64; 3] {
    let upload_limits = limit.map(|limit| (HostId(0), limit)).into_iter().collect();
    let mut grid = Grid::with(platform(), SimConfig { upload_limits, ..SimConfig::default() });
    let [a, b, c] = [1, 2, 3].map(gridloom_base::NodeId);
    let script =
        vec![(0, dial("b", b)), (0, dial("c", c)), (100, send_datum(b, datum(1))), (100, send_datum(c, datum(2)))];
    grid.node_of(Role::Server, "a", script);
    grid.node_of(Role::Server, "b", vec![(100, send_datum(a, datum(3)))]);
    grid.node_of(Role::Server, "c", Vec::new());
    for (node, serial) in [(a, 1), (a, 2), (b, 3)] {
        grid.put(node, datum(serial), SIZE_BYTES);
    }
    grid.run();
    [(b, "d1"), (c, "d2"), (a, "d3")].map(|(node, what)| grid.when(node, what)[0] - ms(100))
}

#[test]
fn all_that_a_host_sends_stays_below_its_limit_and_nothing_else_does() {
    let free = whole(None);
    let limited = whole(Some(LIMIT));
    let at_the_limit = ms(2000 + LATENCY_MS);
    assert!(limited[..2].iter().all(|end| end.abs_diff(at_the_limit) <= 10), "{limited:?}, {at_the_limit} is expected");
    assert!(free[..2].iter().all(|end| *end < at_the_limit / 4), "{free:?} without a limit");
    assert!(limited[2] <= free[2], "what comes has no limit: {limited:?}, and {free:?} without");
}

/// Returns the bandwidth that the agent assumes for the link from a to b, bytes per second.
fn known(sim: &mut Simulation, client: gridloom_base::NodeId) -> f64 {
    sim.command(client, Command::Links);
    match lan::wait_for(sim, client, |event| matches!(event, Event::Links { .. })) {
        Event::Links { links } => {
            let one = links.iter().find(|one| one.from == "sim://a" && one.to == "sim://b");
            let one = one.unwrap_or_else(|| panic!("{links:?}"));
            one.link.bandwidth
        }
        _ => unreachable!("waited for above"),
    }
}

#[test]
fn the_agent_learns_of_a_limit_and_of_its_end() {
    let upload_limits = [(HostId(0), LIMIT)].into();
    let mut sim = Simulation::new(platform().into(), SimConfig { upload_limits, ..SimConfig::default() });
    sim.add_agent(HostId(0), "agent");
    for (host, name) in [(0, "server-a"), (1, "server-b")] {
        let (name, functions) = (name.to_string(), Vec::new());
        sim.add_server(
            HostId(host),
            ServerSpec { name, slots: 1, is_stateless: false, memory_bytes: 1 << 30, disk_bytes: 0, functions },
        );
    }
    let client = sim.add_client(HostId(0), "client");
    sim.advance(2 * LINK_PROBE_NS);
    let limited = known(&mut sim, client);
    assert!((0.5 * LIMIT..1.1 * LIMIT).contains(&limited), "{limited}");
    sim.limit_uploads(HostId(0), 1e3 * LIMIT);
    sim.advance(4 * LINK_PROBE_NS);
    let free = known(&mut sim, client);
    assert!(free > 5.0 * LIMIT, "{free}, and the link has {}", 10.0 * LIMIT);
}
