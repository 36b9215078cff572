//! The conformance suite on the simulated world.

use std::sync::Arc;

use gridloom_conformance::grid::cases;
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

#[test]
fn the_simulated_world_conforms() {
    for (name, case) in cases() {
        println!("{name}");
        let platform = Platform::parse(STAR, "star.toml", &mut |_| Err("no files".into())).unwrap();
        let storages = (0..platform.hosts().len() as u32).map(|number| (HostId(number), HostId(0))).collect();
        case(&mut SimWorld::new(Arc::new(platform), SimConfig { storages, ..SimConfig::default() }));
    }
}
