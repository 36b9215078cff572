//! `gridloom agent`.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use gridloom_core::node::{Agent, AgentConfig, Node};
use gridloom_net::driver::{NetConfig, NetNode};
use serde_json::json;

use super::{AGENT_ADDRESS, drive, end_with, print_json, print_line, secret};

/// Run the grid's agent: it knows the servers and their functions, and maps groups of calls.
///
/// Prints where it listens and runs until interrupted. The grid's secret comes from GRIDLOOM_SECRET, or from the file
/// that GRIDLOOM_SECRET_FILE names; servers and clients need the same.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom agent --listen 127.0.0.1:7711")]
pub struct Options {
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = AGENT_ADDRESS, value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// Its name
    #[arg(long, default_value = "agent")]
    name: String,
    /// Listen beyond this host although nothing is encrypted: whoever can reach the port and knows the secret is in
    #[arg(long)]
    trust_this_network: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Do not log to standard error
    #[arg(long)]
    quiet: bool,
    /// End when standard input closes
    #[arg(long)]
    until_stdin_closes: bool,
}

pub fn run(options: Options) -> Result<ExitCode> {
    let config = NetConfig {
        listen: Some(options.listen),
        secret: secret()?,
        allow_remote: options.trust_this_network,
        pool_keep_bytes: 0,
        ..NetConfig::default()
    };
    let name = options.name.clone();
    let node = NetNode::start(|id, _| Node::Agent(Box::new(Agent::new(AgentConfig { id, name }))), config)?;
    end_with(&node, options.until_stdin_closes)?;
    match options.json {
        true => print_json(&json!({ "address": node.address() }))?,
        false => print_line(&format!("agent listening on {}", node.address()))?,
    }
    drive(&node, &options.name, options.quiet)
}
