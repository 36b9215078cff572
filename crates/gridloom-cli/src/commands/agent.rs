//! `gridloom agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use gridloom_core::node::{Agent, AgentConfig, Node};
use gridloom_keys::Role;
use gridloom_net::driver::{NetConfig, NetNode};
use serde_json::json;

use super::rules::RulesFile;
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
    /// File with the rules of the grid: what users may do, and how much of each server they get. It is read again when it
    /// changes [default: rules.toml in the folder of the grid's keys, if it exists]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    rest: ListenOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    let Options { listen, name, rules, rest } = options;
    rest.check(listen)?;
    let keys = rest.keys(Role::Agent, &name, true)?.own;
    let (rules_file, rules) = RulesFile::open(rules, &keys, rest.has_keys_folder())?;
    rest.start_log();
    let config = NetConfig {
        site: rest.site()?,
        listen: Some(listen),
        advertise: rest.advertise,
        pool_keep_bytes: 0,
        ..NetConfig::new(keys)
    };
    let make =
        |id, _: &str| Node::Agent(Box::new(Agent::new(AgentConfig { id, name, is_shared: true }).with_rules(rules)));
    let node = NetNode::start(make, config)?;
    stop_on_signals(&node, rest.until_stdin_closes)?;
    log_waits_on_signal(&node)?;
    if let Some(file) = rules_file {
        file.watch(node.clone());
    }
    match rest.json {
        true => print_json(&json!({ "address": node.address() }))?,
        false => print_line(&format!("agent listening on {}", node.address()))?,
    }
    drive(&node, |_| {})
}
