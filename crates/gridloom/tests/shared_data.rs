//! Shared data in simulated grids: how they spread to servers, and over which links.

mod support;

use gridloom::{Grid, PutOptions, SimulationReport, Value};
use gridloom_base::{Dtype, Meta};

const FUNCTIONS: &str = "Module kernels;\nDefine null(IN int n) CalcOrder 1 Calls \"C\" null(n);\n";
const BYTES: u64 = 64 << 20;
const BANDWIDTH: f64 = 12.5e6;

/// A grid whose servers all get a datum that the first has. Gives how long that took, seconds.
fn broadcast(test: &str, platform: &str) -> (f64, SimulationReport) {
    let grid = Grid::simulate(support::simulation(test, platform, FUNCTIONS, &[])).unwrap();
    grid.shared()
        .put("mydat", &Value::placeholder(Meta::array(Dtype::Uint8, &[BYTES])), PutOptions::default())
        .unwrap();
    // Servers measure the links between them when they come.
    grid.advance(30.0);
    let begun = grid.now();
    grid.shared().place("mydat", &[]).unwrap();
    let seconds = grid.now() - begun;
    let listed = grid.shared().list("").unwrap();
    assert_eq!(listed[0].servers.len(), platform.matches("name = \"s").count(), "{listed:?}");
    (seconds, grid.simulation().unwrap())
}

/// A client, and servers around a switch at 100 Mb/s.
fn lan(servers: usize) -> String {
    let names: Vec<String> = (0..servers).map(|number| format!("s{number}")).collect();
    let hosts: Vec<(&str, &str)> =
        std::iter::once("client").chain(names.iter().map(String::as_str)).map(|name| (name, "1Gf")).collect();
    support::star(&hosts, "100Mbps", "100us")
}

#[test]
fn a_datum_gets_to_any_number_of_servers_in_little_more_than_one_transfer() {
    for servers in [2, 4, 8, 16] {
        let (seconds, _) = broadcast("broadcast", &lan(servers));
        let alone = BYTES as f64 / BANDWIDTH;
        assert!(seconds <= 1.25 * alone, "{servers} servers: {seconds} s, and one transfer takes {alone} s");
    }
}

#[test]
fn a_slow_link_between_two_sites_is_crossed_once() {
    let site = |name: &str, numbers: std::ops::Range<u32>, more: &str| {
        let hosts: Vec<String> = numbers.map(|number| format!("\"s{number}\"")).collect();
        let list = format!("{more}{}", hosts.join(", "));
        let host = |name: &String| format!("[[host]]\nname = {name}\nspeed = \"1Gf\"\n");
        let hosts: String = hosts.iter().map(host).collect();
        format!("{hosts}[[star]]\nname = \"{name}\"\nhosts = [{list}]\nbandwidth = \"100Mbps\"\nlatency = \"100us\"\n")
    };
    let platform = "[[host]]\nname = \"client\"\nspeed = \"1Gf\"\n".to_string()
        + &site("here", 0..4, "\"client\", ")
        + &site("there", 4..8, "")
        + "[[link]]\nname = \"wan\"\nbandwidth = \"50Mbps\"\nlatency = \"10ms\"\n"
        + "[[connect]]\nfrom = \"here\"\nto = \"there\"\nlinks = [\"wan\"]\n";
    let (seconds, report) = broadcast("two-sites", &platform);
    let crossed: f64 =
        report.bytes_by_link.iter().filter(|(link, _)| link.starts_with("wan")).map(|(_, bytes)| bytes).sum();
    let share = crossed / BYTES as f64;
    assert!((1.0..1.1).contains(&share), "the link was crossed {share} times");
    assert!(seconds <= 1.25 * BYTES as f64 / (BANDWIDTH / 2.0), "{seconds} s");
}
