//! The hosts and nodes of every soak by name, and whether a scenario fits them.

use crate::faults::{Scenario, ScenarioError};

/// Name of the agent.
pub(super) const AGENT: &str = "agent";
pub(super) const SERVERS: u64 = 4;
pub(super) const CLIENTS_MAX: u64 = 3;
/// As [`PLATFORM`] has them.
const HOSTS: u64 = 8;
/// The agent's host; the servers' follow, then the clients'.
pub(super) const AGENT_HOST: u32 = 0;
pub(super) const CLIENT_HOST: u32 = SERVERS as u32 + 1;

pub(super) const PLATFORM: &str = r#"
[[cluster]]
name = "lan"
hosts = "host-[0-7]"
speed = "1Gf"
bandwidth = "100MBps"
latency = "100us"
"#;

/// Whether the agent or a client runs on the host of that number.
pub(super) fn is_host_of_agent_or_client(number: u32) -> bool {
    number == AGENT_HOST || number >= CLIENT_HOST
}

/// Whether the agent runs on the host of that name, or bears it.
pub(super) fn is_agents_host(name: &str) -> bool {
    name == AGENT || name == "host-0"
}

/// Refuses a scenario that names what no soak has.
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
