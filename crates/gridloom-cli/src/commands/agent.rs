//! `gridloom agent`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use gridloom_core::data::IdentifierKey;
use gridloom_core::node::{Agent, AgentConfig, Node};
use gridloom_keys::Role;
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::identity::random;
use serde_json::json;

use super::{
    AGENT_ADDRESS, ListenOptions, drive, hide_memory, log_waits_on_signal, parse_listen, print_json, print_line,
    stop_on_signals,
};

/// Run the grid's agent: it knows the servers and their functions, and maps groups of calls.
///
/// The agent prints the address where it listens, and runs until SIGINT or SIGTERM. It stores nothing on disk: after a
/// restart the servers register again. All nodes of a grid need keys of it. The first agent of a user makes a grid, and
/// the user's other programs on this machine find its keys. Other machines and users are admitted by 'gridloom keys'.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom agent --listen 127.0.0.1:7711")]
pub struct Options {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = AGENT_ADDRESS, value_name = "HOST:PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Name of the agent
    #[arg(long, default_value = "agent")]
    name: String,
    #[command(flatten)]
    rest: ListenOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    let Options { listen, name, rest } = options;
    rest.check(listen)?;
    let keys = rest.keys(Role::Agent, &name, true)?.own;
    rest.start_log();
    let config = NetConfig {
        site: rest.site()?,
        listen: Some(listen),
        advertise: rest.advertise,
        pool_keep_bytes: 0,
        ..NetConfig::new(keys)
    };
    let identifier_key = IdentifierKey(random()?);
    let make =
        |id, _: &str| Node::Agent(Box::new(Agent::new(AgentConfig { id, name, is_shared: true, identifier_key })));
    let node = NetNode::start(make, config)?;
    stop_on_signals(&node, rest.until_stdin_closes)?;
    log_waits_on_signal(&node)?;
    match rest.json {
        true => print_json(&json!({ "address": node.address() }))?,
        false => print_line(&format!("agent listening on {}", node.address()))?,
    }
    drive(&node, |_| {})
}
