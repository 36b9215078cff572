//! `gridloom agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use gridloom_base::EscapedLine;
use gridloom_core::data::IdentifierKey;
use gridloom_core::node::{Agent, AgentConfig, Node, UsageTable};
use gridloom_keys::Role;
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::identity::{Keys, random};
use serde_json::json;

use super::rules::RulesFile;
use super::{
    AGENT_ADDRESS, ListenOptions, drive, hide_memory, log_waits_on_signal, parse_listen, print_json, print_line,
    stop_on_signals,
};
use crate::records::{Records, default_folder};

/// Run the grid's agent: it knows the servers and their functions, and maps groups of calls.
///
/// The agent prints the address where it listens, and runs until SIGINT or SIGTERM. It stores only its records on disk: after
/// a restart the servers register again. All nodes of a grid need keys of it. The first agent of a user makes a grid, and
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
    /// Folder for the usage of users and the audit log, or 'none' [default: ~/.local/state/gridloom/records/GRID]
    #[arg(long, env = "GRIDLOOM_RECORDS", hide_env_values = true, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// File with the rules of the grid: what users may do, and how much of each server they get. It is read again when it
    /// changes [default: rules.toml in the folder of the grid's keys, if it exists]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    rest: ListenOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    let Options { listen, name, records, rules, rest } = options;
    rest.check(listen)?;
    let keys = rest.keys(Role::Agent, &name, true)?.own;
    let (rules_file, rules) = RulesFile::open(rules, &keys, rest.has_keys_folder())?;
    rest.start_log();
    let (mut records, usage) = open_records(records, &keys)?;
    let config = NetConfig {
        site: rest.site()?,
        listen: Some(listen),
        advertise: rest.advertise,
        pool_keep_bytes: 0,
        ..NetConfig::new(keys)
    };
    let identifier_key = IdentifierKey(random()?);
    let config_of = |id| AgentConfig { id, name, is_shared: true, identifier_key };
    let make = |id, _: &str| Node::Agent(Box::new(Agent::new(config_of(id)).with_usage(usage).with_rules(rules)));
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
    let ended = drive(&node, |event| {
        if let Some(records) = &mut records {
            records.add(event);
        }
    });
    records.into_iter().for_each(Records::finish);
    ended
}

/// Opens the records of this grid's earlier agents, unless --records is `none`. A default folder that cannot be used is reported.
fn open_records(folder: Option<PathBuf>, keys: &Keys) -> Result<(Option<Records>, UsageTable)> {
    let is_given = folder.is_some();
    let folder = match folder {
        Some(folder) if folder.as_os_str() == "none" => return Ok(Default::default()),
        Some(folder) => Some(folder),
        None => keys.identity().and_then(|own| default_folder(own.grid())),
    };
    let Some(folder) = folder else { return Ok(Default::default()) };
    match Records::open(&folder) {
        Ok((records, usage, warning)) => {
            warning.into_iter().for_each(warn);
            Ok((Some(records), usage))
        }
        Err(error) if is_given => Err(error.context("--records")),
        Err(error) => {
            warn(format!(
                "the usage of users and the audit log are not recorded: {error:#}; --records none turns them off"
            ));
            Ok(Default::default())
        }
    }
}

fn warn(text: String) {
    tracing::warn!(target: "gridloom.records", "{}", EscapedLine(&text));
}
