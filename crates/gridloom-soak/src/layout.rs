//! The names of hosts and nodes in every soak, and a check that a scenario uses only these.

use gridloom_base::SplitMix64;
use gridloom_sim::faults::{Scenario, ScenarioError};

/// User of all clients but the malicious one.
pub(crate) const USER: &str = "anna";
/// Name of the agent.
pub(crate) const AGENT: &str = "agent";
pub(crate) const SERVERS: u64 = 4;
pub(crate) const CLIENTS_MAX: u64 = 3;
/// Must match [`PLATFORM`]. The last host has no node: it is the relay.
const HOSTS: u64 = 9;
/// Number of the agent's host. The servers' hosts follow, then the clients'.
pub(crate) const AGENT_HOST: u32 = 0;
pub(crate) const CLIENT_HOST: u32 = SERVERS as u32 + 1;

const PLATFORM: &str = r#"
[[cluster]]
name = "lan"
hosts = "host-[0-8]"
speed = "1Gf"
bandwidth = "100MBps"
latency = "100us"
"#;

/// Salt of the random stream of firewalls.
const FIREWALLS: u64 = 0x6669_7265_7761_6c6c;

/// Returns the platform of a seed. In one of four, each host of a server or client is behind one of two firewalls or behind
/// none. Uses its own random stream, so that nothing else depends on it.
pub(crate) fn platform(seed: u64) -> String {
    let mut random = SplitMix64::new(seed ^ FIREWALLS);
    if random.below(4) > 0 {
        return PLATFORM.to_string();
    }
    let mut behind = [const { Vec::new() }; 3];
    (1..HOSTS - 1).for_each(|number| behind[random.below(3) as usize].push(format!("'host-{number}'")));
    let firewalls = behind[1..].iter().filter(|hosts| !hosts.is_empty());
    let text = |hosts: &Vec<String>| format!("[[firewall]]\nhosts = [{}]\nrelay = 'host-8'\n", hosts.join(", "));
    firewalls.map(text).fold(PLATFORM.to_string(), |all, firewall| all + &firewall)
}

/// Reports whether the agent or a client runs on a host.
pub(crate) fn is_host_of_agent_or_client(number: u32) -> bool {
    number == AGENT_HOST || number >= CLIENT_HOST
}

/// Reports whether a name is that of the agent or of its host.
pub(crate) fn is_agents_host(name: &str) -> bool {
    name == AGENT || name == "host-0"
}

/// Checks that a scenario names only nodes and hosts of the soak.
///
/// # Errors
/// The first unknown name.
pub fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    let numbered = |what: &str, from: u32, to: u64| -> Vec<String> {
        (from..from + to as u32).map(|number| format!("{what}-{number}")).collect()
    };
    let hosts = numbered("host", 0, HOSTS);
    let nodes: Vec<String> =
        [vec![AGENT.to_string()], numbered("server", 1, SERVERS), numbered("client", 1, CLIENTS_MAX)].concat();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    scenario.check(&nodes, &hosts, &[])
}
