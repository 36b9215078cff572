//! Grids on a small network, and helpers that wait for a client's events.

use std::sync::Arc;

use gridloom_base::NodeId;
use gridloom_core::node::Event;
use gridloom_core::node::world::ServerSpec;
use gridloom_idl::Definition;
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

/// Describes that many hosts at a switch. Each computes 1 Gflop/s, and is connected by 100 MB/s and 100 µs.
pub fn platform(hosts: u32) -> Arc<Platform> {
    let last = hosts - 1;
    let text = format!(
        "[[cluster]]
name = \"lan\"
hosts = \"host-[0-{last}]\"
speed = \"1Gf\"
\
         bandwidth = \"100MBps\"
latency = \"100us\"
"
    );
    Arc::new(Platform::parse(&text, "lan.toml", &mut |_| Err("no files".into())).unwrap())
}

/// Creates five hosts without nodes.
pub fn hosts(seed: u64) -> Simulation {
    Simulation::new(platform(5), SimConfig { seed, ..SimConfig::default() })
}

/// Starts an agent, two servers of one slot, and a client that knows them.
#[allow(dead_code, reason = "some tests have grids of another shape")]
pub fn grid(definitions: &[Definition], memory_bytes: u64) -> (Simulation, NodeId, Vec<NodeId>) {
    let mut sim = hosts(SimConfig::default().seed);
    sim.add_agent(HostId(0), "agent");
    let servers = (1..=2u32).map(|number| {
        let (name, functions) = (format!("server-{number}"), definitions.to_vec());
        sim.add_server(
            HostId(number),
            ServerSpec { name, slots: 1, is_stateless: false, memory_bytes, disk_bytes: 0, functions },
        )
    });
    let servers = servers.collect();
    let client = sim.add_client(HostId(3), "client");
    wait_for(&mut sim, client, |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == 2));
    (sim, client, servers)
}

/// Returns the first matching event, which must occur within two minutes.
pub fn wait_for(sim: &mut Simulation, client: NodeId, is_it: impl Fn(&Event) -> bool) -> Event {
    let deadline = sim.now() + 120_000_000_000;
    loop {
        let event = sim.next_event(client, Some(deadline)).expect("nothing more happens");
        if is_it(&event) {
            return event;
        }
    }
}
