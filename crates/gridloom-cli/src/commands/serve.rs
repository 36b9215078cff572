//! `gridloom serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use gridloom::load_offer;
use gridloom_core::base::limits::STORE_BYTES_DEFAULT;
use gridloom_core::node::{Node, Server, ServerConfig};
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::jobs::JobsConfig;
use serde_json::json;

use super::{AgentOption, drive, end_with, parse_size, print_json, print_line, secret};

/// Offer functions: of shared libraries described in the interface language, and of Python modules.
///
/// Each slot runs one call at a time in a worker process of its own; a function that crashes takes down its worker, not
/// the server. FILES are interface descriptions (.idl), Python modules (.py), or the word builtin:linalg for linear
/// algebra from a BLAS library.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom serve linalg.idl --library libopenblas.so --slots 2\n  \
gridloom serve functions.py\n  gridloom serve builtin:linalg --plain")]
pub struct Options {
    /// Interface descriptions, Python modules, builtin:linalg
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    agent: AgentOption,
    /// Its name, unique in the grid [default: HOST-PID]
    #[arg(long)]
    name: Option<String>,
    /// Calls that it runs at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Shared library with the functions that the .idl files describe; may be repeated
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// Bound on the data that it holds, such as 8GiB
    #[arg(long, value_parser = parse_size, default_value_t = STORE_BYTES_DEFAULT, value_name = "SIZE")]
    memory: u64,
    /// Talk to clients only, as a plain GridRPC server; the mapper knows
    #[arg(long)]
    plain: bool,
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// Interpreter for Python modules
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Send data over TCP also to nodes of this host
    #[arg(long)]
    no_shared_memory: bool,
    /// Listen beyond this host although nothing is encrypted: whoever can reach the port and knows the secret is in
    #[arg(long)]
    trust_this_network: bool,
    /// Very short calls that may queue inside one worker
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queue_depth: u32,
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
    let mut offer = load_offer(&options.files, &options.python, None)?;
    for library in &options.libraries {
        if library.components().count() > 1 && !library.exists() {
            bail!("{}: no such library", library.display());
        }
        offer.libraries.push(library.clone());
    }
    if offer.definitions.is_empty() {
        bail!("nothing to offer: the files define no function");
    }
    let name = options.name.clone().unwrap_or_else(default_name);
    let names: Vec<String> = offer.definitions.iter().map(|definition| definition.signature.name.clone()).collect();
    let functions = offer.definitions.iter().map(|definition| definition.signature.clone()).collect();
    let jobs = JobsConfig {
        server_name: name.clone(),
        slots: options.slots,
        definitions: offer.definitions,
        libraries: offer.libraries,
        worker_program: std::env::current_exe().context("this program's own path")?,
        python: options.python.clone(),
        modules: offer.modules,
        queue_depth: options.queue_depth,
        env: Vec::new(),
    };
    let config = NetConfig {
        listen: Some(options.listen),
        secret: secret()?,
        allow_remote: options.trust_this_network,
        shared_memory: !options.no_shared_memory,
        jobs: Some(jobs),
        datum_bytes_max: options.memory,
        pool_keep_bytes: options.memory / 2,
        ..NetConfig::default()
    };
    let node = NetNode::start(
        |id, address| {
            Node::Server(Box::new(Server::new(ServerConfig {
                id,
                name: name.clone(),
                address: address.to_string(),
                agent: options.agent.agent.clone(),
                slots: options.slots,
                queue_depth: options.queue_depth,
                plain: options.plain,
                memory_bytes: options.memory,
                functions,
            })))
        },
        config,
    )?;
    end_with(&node, options.until_stdin_closes)?;
    match options.json {
        true => print_json(&json!({ "name": name, "address": node.address(), "functions": names }))?,
        false => {
            let plural = if names.len() == 1 { "" } else { "s" };
            print_line(&format!("server '{name}' on {} offers {} function{plural}:", node.address(), names.len()))?;
            names.iter().try_for_each(|name| print_line(&format!("  {name}")))?;
        }
    }
    drive(&node, &name, options.quiet)
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "server".into());
    format!("{}-{}", host.trim(), std::process::id())
}
