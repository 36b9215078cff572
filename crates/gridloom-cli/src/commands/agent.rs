//! `gridloom agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use gridloom_base::EscapedLine;
use gridloom_core::data::IdentifierKey;
use gridloom_core::node::{Agent, AgentConfig, Command, Event, Node, Role as NodeRole, UsageTable};
use gridloom_keys::Role;
use gridloom_net::driver::{BoxMachine, NetConfig, NetNode};
use gridloom_net::identity::{Keys, random};
use serde_json::json;

use super::rules::RulesFile;
use super::{
    AGENT_ADDRESS, ListenOptions, drive, hide_memory, log_waits_on_signal, parse_agent, parse_listen, print_json,
    print_line, stop_on_signals,
};
use crate::records::{Records, default_folder};
use crate::standby::{AgentWatch, PRIMARY_BACK, PRIMARY_LOST};

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
    /// Be the standby of the agent at this address: take over while it does not answer, and step down when it is back. Programs
    /// and servers get both addresses, AGENT+STANDBY
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_agent)]
    standby_of: Option<String>,
    #[command(flatten)]
    rest: ListenOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    options.rest.check(options.listen)?;
    let keys = options.rest.keys(Role::Agent, &options.name, options.standby_of.is_none())?.own;
    if let Some(primary) = &options.standby_of {
        if primary.contains('/') && !options.rest.relays.is_empty() {
            bail!(
                "--standby-of {primary} with --relay: a relay leads to one agent, so the standby would find itself; give the \
                 address of the agent itself, or start the standby without --relay"
            );
        }
        options.rest.start_log();
        // A mistake is reported now, not when the agent is missed.
        RulesFile::open(options.rules.clone(), &keys, options.rest.has_keys_folder())?;
        options.rest.site()?;
        return stand_by(&options, &keys, primary);
    }
    // A signal may arrive as soon as the address is printed.
    let stops = |node: &Arc<NetNode>| stop_on_signals(node, options.rest.until_stdin_closes);
    RunningAgent::start(&options, &keys, || options.rest.start_log(), stops)?.drive()
}

/// An agent in this process.
struct RunningAgent {
    node: Arc<NetNode>,
    records: Option<Records>,
}

impl RunningAgent {
    /// Starts the agent, and prints its address. `before_records` is called once the options have been checked, and `started`
    /// before the address is printed.
    fn start(
        options: &Options,
        keys: &Keys,
        before_records: impl FnOnce(),
        started: impl FnOnce(&Arc<NetNode>) -> Result<()>,
    ) -> Result<RunningAgent> {
        let rest = &options.rest;
        let (rules_file, rules) = RulesFile::open(options.rules.clone(), keys, rest.has_keys_folder())?;
        before_records();
        let (records, usage) = open_records(options.records.clone(), keys)?;
        let config = NetConfig {
            site: rest.site()?,
            listen: Some(options.listen),
            advertise: rest.advertise.clone(),
            relays: rest.relays.clone(),
            pool_keep_bytes: 0,
            ..NetConfig::new(keys.clone())
        };
        let (name, identifier_key) = (options.name.clone(), IdentifierKey(random()?));
        let config_of = |id| AgentConfig { id, name, is_shared: true, identifier_key };
        let make = |id, _: &str| Node::Agent(Box::new(Agent::new(config_of(id)).with_usage(usage).with_rules(rules)));
        let node = NetNode::start(make, config)?;
        log_waits_on_signal(&node)?;
        started(&node)?;
        if let Some(file) = rules_file {
            file.watch(node.clone());
        }
        match rest.json {
            true => print_json(&json!({ "address": node.address() }))?,
            false => print_line(&format!("agent listening on {}", node.address()))?,
        }
        Ok(RunningAgent { node, records })
    }

    /// Runs the agent until it ends.
    fn drive(mut self) -> Result<ExitCode> {
        let ended = drive(&self.node, |event| {
            if let Some(records) = &mut self.records {
                records.add(event);
            }
        });
        self.records.into_iter().for_each(Records::finish);
        ended
    }
}

/// Interval at which a standby that cannot take over tries again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Watches the agent at an address, and takes its place while it does not answer.
fn stand_by(options: &Options, keys: &Keys, primary: &str) -> Result<ExitCode> {
    let make = |_, _: &str| (NodeRole::Client, options.name.clone(), Box::new(AgentWatch::new(primary)) as BoxMachine);
    let watch = NetNode::start_with(NetConfig { pool_keep_bytes: 0, ..NetConfig::new(keys.clone()) }, make)?;
    stop_on_signals(&watch, options.rest.until_stdin_closes)?;
    match options.rest.json {
        true => print_json(&json!({ "standby_of": primary }))?,
        false => print_line(&format!("standby of the agent at {primary}"))?,
    }
    while wait_for(&watch, &options.name, PRIMARY_LOST, None) {
        let agent = loop {
            match RunningAgent::start(options, keys, || (), |_| Ok(())) {
                Ok(agent) => break Some(agent),
                Err(error) => {
                    tracing::error!(target: "gridloom.agent", "the standby cannot take over; trying again: {error:#}");
                    let until = Some(Instant::now() + RETRY_INTERVAL);
                    if wait_for(&watch, &options.name, PRIMARY_BACK, until) || watch.is_closed() {
                        break None;
                    }
                }
            }
        };
        let Some(agent) = agent else { continue };
        let node = agent.node.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(&watch, &options.name, PRIMARY_BACK, None);
                node.command(Command::Stop);
                node.stop();
            });
            let ended = agent.drive();
            if ended.is_err() {
                // Ends the wait for the agent.
                watch.stop();
            }
            ended
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until a node has logged a line with this text. Returns false if the node has ended, or at the deadline.
fn wait_for(node: &NetNode, name: &str, text: &str, deadline: Option<Instant>) -> bool {
    let found = node.wait(deadline, |events| {
        while let Some(event) = events.pop_front() {
            if let Event::Log(line) = event {
                gridloom_net::log::emit(name, &line);
                if line.text == text {
                    return Some(());
                }
            }
        }
        None
    });
    found.is_some()
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
