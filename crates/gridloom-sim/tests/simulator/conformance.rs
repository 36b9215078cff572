//! Runs the conformance suite on the simulated world.

use std::sync::Arc;

use gridloom_conformance::grid::cases;
use gridloom_core::node::version::VERSIONS;
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, SimWorld};

const STAR: &str = r#"
[[host]]
name = "client"
speed = "10Gf"
[[cluster]]
name = "lan"
hosts = "server-[1-4]"
speed = "10Gf"
bandwidth = "1GBps"
latency = "50us"
[[link]]
name = "uplink"
bandwidth = "100MBps"
latency = "1ms"
[[connect]]
from = "client"
to = "lan"
links = ["uplink"]
"#;

/// Runs all cases on a grid in which the hosts with `is_old` were not updated.
fn run_cases(is_old: impl Fn(u32) -> bool) {
    for (name, case) in cases() {
        println!("{name}");
        let platform = Platform::parse(STAR, "star.toml", &mut |_| Err("no files".into())).unwrap();
        let hosts = 0..platform.hosts().len() as u32;
        let storages = hosts.clone().map(|number| (HostId(number), HostId(0))).collect();
        let versions = hosts.filter(|number| is_old(*number)).map(|number| (HostId(number), VERSIONS.0)).collect();
        case(&mut SimWorld::new(Arc::new(platform), SimConfig { storages, versions, ..SimConfig::default() }));
    }
}

#[test]
fn the_simulated_world_conforms() {
    run_cases(|_| false);
}

/// The hosts are that of the client and the agent, and those of four servers.
#[test]
fn nodes_of_the_last_version_of_the_protocol_conform_with_those_of_this_one() {
    run_cases(|number| number % 2 == 0);
    run_cases(|number| number % 2 == 1);
}
