//! `gridloom serve`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gridloom::{BUILTIN_RUN_CODE, BUILTIN_WORD, InlineBodies, Offer, builtin_names, load_offer};
use gridloom_base::address::NodeAddress;
use gridloom_base::size::parse_size;
use gridloom_base::{Fnv, NameKind};
use gridloom_core::exec::Separation;
use gridloom_core::node::{Command as NodeCommand, Event, Role, Server, ServerConfig};
use gridloom_idl::method::is_listed;
use gridloom_idl::{Body, Definition};
use gridloom_keys::GRID_VARIABLE;
use gridloom_net::driver::{BoxMachine, NetConfig, NetNode};
use gridloom_net::durable::Durable;
use gridloom_net::identity::{FUNCTION_KEYS_VARIABLE, NodeKeys, host_name};
use gridloom_net::jobs::{Interpreter, JobsConfig, RunAs, SystemUsers, UserMapping, WorkerLimits, shared_threads};
use gridloom_net::storage::Storage;
use gridloom_net::worker::nested;
use gridloom_platform::units as quantities;
use gridloom_resources::text_file::check_regular;
use serde_json::json;
use signal_hook::consts::SIGUSR1;

use super::programs::{OfferedProgram, ProgramParser, add_programs, check_interpreter, check_program};
use super::worker::{UnusableFunction, check_libraries};
use super::{
    AGENT_VARIABLE, AgentOption, ListenOptions, absolute, count, drive, hide_memory, log_waits_on_signal, parse_listen,
    parse_speed, parse_upload_rate, print_json, print_line, stop_on_signals,
};
use crate::model_store::{ModelStore, usual_folder};
use crate::registered::{REGISTERED, RegistrationWatch};

mod confinement;
mod folders;
mod function_keys;
mod readable_authority;

use confinement::confinement;
use folders::{check_folders, check_worker_group, open_durable, open_storage, places, store_bytes};
use function_keys::{FolderOfKeys, function_keys};
use readable_authority::{report_readable_authority, report_readable_own_key};

/// Value of --run-as-user: each user of the grid has the user of the system with the same name.
const SAME_NAME: &str = "@user";

/// Variable with the number of ranks of functions that use MPI; the prelude of inline bodies reads it.
const RANKS_VARIABLE: &str = "GRIDLOOM_MPI_RANKS";

/// Offer functions of shared libraries and of Python modules, and run those that programs send.
///
/// FILES are interface descriptions (.idl), whose inline bodies are compiled, Python modules (.py), or names such as
/// builtin:linalg: a few functions of linear algebra from the BLAS library that GRIDLOOM_BLAS names, or else the
/// system's. Each slot runs one call at a time in a worker process of its own. A function that crashes takes down its
/// worker, not the server. The server prints its functions once the agent has registered it (at once with --no-agent),
/// and runs until SIGINT or SIGTERM. SIGUSR1 drains it: it accepts no calls that other servers can take, and ends when
/// no program needs it any more. The agent may start later: the server keeps trying to connect to it. If the agent
/// refuses the server because of its keys or its version, or if there is no agent at the address, the command fails.
#[derive(clap::Args)]
#[command(
    override_usage = "gridloom serve [OPTIONS] <FILES...|--builtin <NAME>|--program <NAME=PATH>|--run-code|--no-functions>"
)]
#[command(group(clap::ArgGroup::new("offered").args(["files", "builtin", "programs", "run_code", "no_functions"]).required(true).multiple(true)))]
#[command(after_help = "Examples:\n  gridloom serve linalg.idl --library libopenblas.so --slots 2\n  \
gridloom serve functions.py\n  gridloom serve --run-code\n  gridloom serve builtin:linalg --plain\n  gridloom serve --builtin blas --builtin lapack\n  gridloom serve --program stencil=target/release/examples/stencil --slots 2")]
pub struct Options {
    /// Interface descriptions, Python modules, builtin:linalg
    files: Vec<PathBuf>,
    /// A system library whose description is built in: linalg, blas, lapack, fftw; or files, to read files in the
    /// folder GRIDLOOM_FILES; may be repeated
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(builtin_names()))]
    builtin: Vec<String>,
    /// A program of chares, which 'gridloom chares run --agent' starts by its name: NAME=PATH. A file that ends in .py
    /// is run by the interpreter; may be repeated
    #[arg(long = "program", value_name = "NAME=PATH", value_parser = ProgramParser)]
    programs: Vec<OfferedProgram>,
    /// Folder for named checkpoints of the programs (gridloom chares run --agent --checkpoint NAME); all servers that
    /// offer the programs must share it
    #[arg(long, value_name = "DIR", requires = "programs")]
    checkpoints: Option<PathBuf>,
    /// Run any Python function that a program sends with Grid.run or gridloom.Executor: every program that may connect
    /// can then run any code as this user
    #[arg(long)]
    run_code: bool,
    /// Offer no functions: the server only stores and sends data
    #[arg(long, conflicts_with_all = ["files", "builtin", "programs", "run_code"])]
    no_functions: bool,
    /// Shared library with the functions of the .idl files or of --builtin; may be repeated
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// Compile nothing: the inline bodies are in libraries that 'gridloom idl compile' made
    #[arg(long)]
    no_compile: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// Refuses arguments that this command does not accept.
pub fn check_arguments(words: &[String]) -> Result<()> {
    let command = <Options as clap::Args>::augment_args(clap::Command::new("serve").no_binary_name(true));
    let why = match command.try_get_matches_from(words) {
        Ok(_) => return Ok(()),
        Err(error) => error.to_string(),
    };
    let first = why.lines().next().unwrap_or_default();
    bail!("'gridloom serve' does not accept these arguments: {}", first.trim_start_matches("error: "))
}

/// The server, whatever it offers.
#[derive(clap::Args)]
pub struct ServerOptions {
    #[command(flatten)]
    agent: AgentOption,
    /// Register with no agent: clients that know the server's address use it directly
    #[arg(long, conflicts_with = "agent")]
    no_agent: bool,
    /// Name of the server, unique in the grid [default: HOST-PID]
    #[arg(long)]
    name: Option<String>,
    /// Number of calls that the server runs at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// Limit of the data that the server stores in memory, such as 8GiB: arguments, results and shared data. Memory that
    /// functions allocate is not included: see --worker-memory [default: 4GiB, or half of the memory that the server may use if that is less]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    memory: Option<u64>,
    /// Limit of the memory of one worker and the processes that it has started, without the store, such as 2GiB.
    /// A worker that exceeds the limit is killed, and its call fails [default: none]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    worker_memory: Option<u64>,
    /// Limit of the processes of one worker, itself included. A worker that exceeds it is killed with its processes, and its
    /// call fails [default: none]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "NUMBER")]
    worker_processes: Option<u64>,
    /// Limit of the open files of each process of a worker, at least 64 [default: that of the server]
    #[arg(long, value_parser = clap::value_parser!(u64).range(WorkerLimits::FILES), value_name = "NUMBER")]
    worker_files: Option<u64>,
    /// Limit of the time that a call may run, such as 90s or 2h, without waits for other calls. The worker of a longer one is
    /// killed, and the call fails [default: none]
    #[arg(long, value_parser = parse_call_time, value_name = "TIME")]
    worker_time: Option<Duration>,
    /// Run each user's calls in workers of their own. Without this option, this applies to functions that programs send
    /// (--run-code), and calls of different users of the offered functions share workers
    #[arg(long)]
    separate_users: bool,
    /// Folder for data that do not fit into memory
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Limit of the data in that folder [default: half of the free space]
    #[arg(long, value_parser = parse_size, value_name = "SIZE", requires = "disk")]
    disk_limit: Option<u64>,
    /// Folder for durable shared data, which are available again when the server restarts with it
    #[arg(long, value_name = "DIR")]
    durable: Option<PathBuf>,
    /// Folder that servers share, for shared data that are put with the method 'storage'
    #[arg(long, value_name = "DIR")]
    storage: Option<PathBuf>,
    /// Limit of the rate at which the server sends to other hosts, such as 100Mbps or 12MBps; messages and data up to
    /// 32 KiB do not count
    #[arg(long, value_parser = parse_upload_rate, value_name = "RATE")]
    upload_limit: Option<f64>,
    /// TCP connections over which the server sends large data to one peer [default: 4 if a round trip takes 25 ms or more, else 1]
    #[arg(long, env = "GRIDLOOM_STREAMS", value_parser = clap::value_parser!(u8).range(1..=16), value_name = "NUMBER")]
    streams: Option<u8>,
    /// Speed of one slot, such as 20Gf, for a host whose processors are shared or limited [default: measured]
    #[arg(long, value_parser = parse_speed, value_name = "SPEED")]
    speed: Option<f64>,
    /// Make each call take this many times the processor time that it needs, as on a slower processor; for experiments
    #[arg(long, default_value_t = 1.0, value_parser = parse_slowdown, value_name = "TIMES")]
    slowdown: f64,
    /// Environment variable of the server to pass to functions, in addition to the common ones; may be repeated, and end in a star
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// User that runs functions; the server must be started by root
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Unix account for the functions of a user of the grid: USER=ACCOUNT, or @user for the account with the user's name. Calls of
    /// users without an account run under that of --run-as, or are refused without it; may be repeated
    #[arg(long, value_name = "USER=ACCOUNT")]
    run_as_user: Vec<String>,
    /// Confine functions: they can read the system, the interpreter and the folders of the offered code, write to a
    /// temporary folder, and use no other files, such as keys and stored data
    #[arg(long)]
    confine: bool,
    /// File or folder that confined functions may read and execute; may be repeated
    #[arg(long, value_name = "PATH", requires = "confine")]
    readable: Vec<PathBuf>,
    /// Folder in which confined functions may read and change everything; may be repeated
    #[arg(long, value_name = "DIR", requires = "confine")]
    writable: Vec<PathBuf>,
    /// File cgroup.procs of the control group that workers join; for experiments with quotas of processor time
    #[arg(long, value_name = "FILE")]
    worker_group: Option<PathBuf>,
    /// Connect to clients only, and store nothing: each call sends its arguments and its results are sent back, as
    /// with a plain GridRPC server
    #[arg(long, conflicts_with_all = ["durable", "storage"])]
    plain: bool,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Interpreter for Python modules
    #[arg(long, env = "GRIDLOOM_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// Option for the Python interpreter, such as -O or -Werror; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    python_option: Vec<String>,
    /// Send data over TCP even to nodes of this host
    #[arg(long)]
    no_shared_memory: bool,
    /// Number of very short calls that may queue inside one worker
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queue_depth: u32,
    /// Folder for the models of functions, which the next run reads, or 'none' [default: ~/.local/state/gridloom/models]
    #[arg(long, env = "GRIDLOOM_MODELS", value_name = "DIR")]
    models: Option<PathBuf>,
    #[command(flatten)]
    rest: ListenOptions,
}

impl ServerOptions {
    /// Offers the functions of one Python file.
    pub fn with_module(self, module: PathBuf) -> Options {
        let files = vec![module];
        let (builtin, programs, libraries) = (Vec::new(), Vec::new(), Vec::new());
        Options {
            files,
            builtin,
            programs,
            checkpoints: None,
            run_code: false,
            no_functions: false,
            libraries,
            no_compile: false,
            server: self,
        }
    }

    /// Returns the interpreter.
    pub fn python(&self) -> Interpreter {
        Interpreter { program: self.python.clone(), options: self.python_option.clone() }
    }
}

impl Options {
    fn bodies(&self) -> InlineBodies {
        if self.no_compile { InlineBodies::InLibraries } else { InlineBodies::Compile }
    }
}

/// Returns fingerprints of the files of Python functions. Libraries may legitimately differ from machine to machine.
fn codes_of(definitions: &[Definition]) -> BTreeMap<String, u64> {
    let mut files: BTreeMap<&Path, Option<u64>> = BTreeMap::new();
    let mut code_of = |module| {
        let hash = || {
            let mut hash = Fnv::default();
            std::fs::read(module).ok()?.into_iter().for_each(|byte| hash.byte(byte));
            Some(hash.0)
        };
        *files.entry(module).or_insert_with(hash)
    };
    let codes = definitions.iter().filter_map(|definition| {
        let Body::Python { module, .. } = &definition.body else { return None };
        Some((definition.signature.name.clone(), code_of(module)?))
    });
    codes.collect()
}

fn worker_environment(options: &Options, name: &str, keys: Option<&FolderOfKeys>) -> Result<Vec<(String, OsString)>> {
    let mut variables = shared_threads(options.server.slots, &[]);
    if std::env::var_os(RANKS_VARIABLE).is_none() {
        variables.push((RANKS_VARIABLE.into(), gridloom_resources::processors().to_string()));
    }
    variables.extend(options.server.rest.site_variable()?);
    // Functions that call others find the grid by this variable.
    if !options.server.no_agent {
        variables.push((AGENT_VARIABLE.into(), options.server.agent.agent.clone()));
        variables.push((nested::SERVER_VARIABLE.into(), name.to_string()));
    }
    let mut variables: Vec<(String, OsString)> =
        variables.into_iter().map(|(name, value)| (name, value.into())).collect();
    if let Some(keys) = keys {
        variables.extend(keys.of_all().map(|folder| (FUNCTION_KEYS_VARIABLE.into(), folder.0.clone().into())));
        // The user's choice is for programs. Functions use the keys of the grid that they connect to.
        variables.push((GRID_VARIABLE.into(), OsString::new()));
    }
    Ok(variables)
}

/// Reports whether functions other than the built-in ones are offered, which may open sessions and read files.
fn has_own_functions(options: &Options) -> bool {
    let is_own = |file: &PathBuf| !file.to_string_lossy().starts_with(BUILTIN_WORD);
    options.run_code || !options.programs.is_empty() || options.files.iter().any(is_own)
}

/// Returns the users of the system as whom functions run.
fn system_users(options: &ServerOptions) -> Result<SystemUsers> {
    let found = |option: &str, name: &str| -> Result<Arc<RunAs>> {
        if !rustix::process::geteuid().is_root() {
            bail!("{option}: only a server that root runs can run functions as another user");
        }
        RunAs::named(name).map(Arc::new).map_err(|error| anyhow::anyhow!("{option}: {error}"))
    };
    let run_as = options.run_as.as_deref().map(|name| found(&format!("--run-as {name}"), name)).transpose()?;
    if options.run_as_user.is_empty() {
        return Ok(run_as.map_or(SystemUsers::Own, SystemUsers::One));
    }
    if run_as.as_ref().is_some_and(|run_as| run_as.user == 0) {
        bail!("--run-as root: functions of users do not run as root if --run-as-user is given; name another account");
    }
    let mut mapping = UserMapping { others: run_as, ..UserMapping::default() };
    for text in &options.run_as_user {
        let option = format!("--run-as-user {text}");
        if text == SAME_NAME {
            // Fails early if functions cannot run as others.
            found(&option, "root")?;
            mapping.same_names = true;
            continue;
        }
        let Some((user, name)) = text.rsplit_once('=') else {
            bail!("{option}: expected USER=ACCOUNT, a user of the grid and a Unix account, or {SAME_NAME}");
        };
        NameKind::User.check(user).map_err(|error| anyhow::anyhow!("{option}: {error}"))?;
        let run_as = found(&option, name)?;
        if run_as.user == 0 {
            bail!("{option}: functions of users do not run as root; name another user of the system");
        }
        if mapping.named.insert(user.to_string(), run_as).is_some() {
            bail!("{option}: '{user}' is named twice; name one user of the system for each user of the grid");
        }
    }
    Ok(SystemUsers::PerUser(mapping))
}

fn parse_call_time(text: &str) -> Result<Duration, String> {
    let seconds = quantities::time(text)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time >= WorkerLimits::CALL_TIME_MIN => Ok(time),
        _ => Err(format!("'{text}' is {seconds} s; expected at least 0.1 s, such as 90s or 2h")),
    }
}

fn parse_slowdown(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if (1.0..=1e6).contains(&times) => Ok(times),
        _ => Err("expected a number from 1 to 1000000".into()),
    }
}

pub fn run(mut options: Options) -> Result<ExitCode> {
    hide_memory()?;
    if options.run_code {
        options.files.push(PathBuf::from(BUILTIN_RUN_CODE));
    }
    let rest = &options.server.rest;
    rest.check(options.server.listen)?;
    check_folders(&options)?;
    options.server.worker_group.as_deref().map(check_worker_group).transpose()?;
    check_interpreter(&options.server.python)?;
    let system_users = system_users(&options.server)?;
    if system_users.are_per_user() && options.checkpoints.is_some() {
        bail!(
            "--checkpoints: elements of different users cannot share the folder; use --run-as instead of --run-as-user"
        );
    }
    let name = options.server.name.clone().unwrap_or_else(default_name);
    let keys = keys(&options, &name)?;
    rest.start_log();
    if options.run_code {
        check_program(&options.server.python)?;
    }
    let named = options.libraries.iter().map(|library| located(library)).collect::<Result<Vec<PathBuf>>>()?;
    let mut offer = load_offer(&options.files, &options.server.python(), &named, options.bodies())?;
    offer.add_libraries(named.iter().cloned());
    for name in &options.builtin {
        offer.add_builtin(name, &named)?;
    }
    let (python, checkpoints) = (&options.server.python, options.checkpoints.as_deref());
    add_programs(&mut offer, &options.programs, python, options.server.listen.ip(), checkpoints)?;
    offer.notes.iter().for_each(|note| tracing::info!(target: "gridloom.libraries", "{note}"));
    if !rest.quiet {
        offer.warnings.iter().for_each(|warning| gridloom_base::stderr_line!("{}", warning.trim_end()));
    }
    if offer.definitions.is_empty() && !options.no_functions {
        bail!("nothing to offer: the files define no function");
    }
    leave_out_what_the_library_lacks(&mut offer, &options)?;
    let mut kept = open_models(&options, &offer);
    let (memory_bytes, disk_bytes, disk) = places(&options)?;
    let durable = open_durable(&options, memory_bytes)?;
    let storage = open_storage(&options)?;
    let storage_id = storage.as_ref().map(Storage::id);
    let kept_durable = durable.as_ref().map(Durable::named);
    let damaged = durable.as_ref().map(|durable| durable.damaged().to_vec()).unwrap_or_default();
    let pool_keep_bytes = store_bytes(options.server.memory) / 2;
    let names = offer.definitions.iter().map(|definition| definition.signature.name.clone());
    let names: Vec<String> = names.filter(|name| is_listed(name)).collect();
    let functions = offer.definitions.iter().map(|definition| definition.signature.clone()).collect();
    let codes = codes_of(&offer.definitions);
    if has_own_functions(&options) && !options.server.confine {
        report_readable_authority(&keys.own, &system_users);
        if options.run_code && system_users == SystemUsers::Own && rest.has_keys_folder() {
            report_readable_own_key(&keys.own);
        }
    }
    let separation = match options.server.separate_users || system_users.are_per_user() {
        true => Separation::AllFunctions,
        false => Separation::SentCode,
    };
    let functions_keys = match options.server.no_agent {
        true => None,
        false => {
            let sees_user_keys = system_users == SystemUsers::Own && !options.server.confine;
            function_keys(keys.functions, (&system_users, separation), sees_user_keys, has_own_functions(&options))?
        }
    };
    let confinement =
        confinement(&options, &offer, functions_keys.as_ref().and_then(FolderOfKeys::of_all), &system_users)?;
    if let Some(limit) = options.server.worker_files
        && let Some(permitted) = WorkerLimits::files_permitted(limit)
    {
        bail!(
            "--worker-files {limit}: the system permits the processes of this server {permitted} open files; give at most that, or raise \
             the limit (ulimit -Hn, or LimitNOFILE= of a service)"
        );
    }
    let jobs = JobsConfig {
        server_name: name.clone(),
        slots: options.server.slots,
        definitions: offer.definitions,
        libraries: offer.libraries,
        worker_program: std::env::current_exe().context("this program's own path")?,
        python: options.server.python(),
        modules: offer.modules,
        queue_depth: options.server.queue_depth,
        env: worker_environment(&options, &name, functions_keys.as_ref())?,
        pass_env: options.server.env.clone(),
        function_keys: functions_keys.as_ref().and_then(FolderOfKeys::of_users),
        system_users,
        slowdown: options.server.slowdown,
        separation,
        limits: WorkerLimits {
            memory_bytes: options.server.worker_memory,
            processes: options.server.worker_processes,
            files: options.server.worker_files,
            call_time: options.server.worker_time,
        },
        worker_group: options.server.worker_group,
        confinement,
    };
    let models = kept.as_ref().map(ModelStore::models).unwrap_or_default();
    let config = NetConfig {
        listen: Some(options.server.listen),
        advertise: rest.advertise.clone(),
        relays: rest.relays.clone(),
        keys: keys.own,
        shared_memory: !options.server.no_shared_memory,
        jobs: Some(jobs),
        speed_flops: options.server.speed,
        datum_bytes_max: memory_bytes,
        pool_keep_bytes,
        upload_limit: options.server.upload_limit,
        stripes: options.server.streams,
        disk,
        durable,
        storage,
        site: rest.site()?,
    };
    let data_max = gridloom_net::descriptors::data_max(options.server.slots)?;
    let cores = gridloom_resources::processors().try_into().unwrap_or(0);
    let agent = if options.server.no_agent { String::new() } else { options.server.agent.agent.clone() };
    let node = NetNode::start_with(config, |id, address| {
        let server = Server::new(ServerConfig {
            id,
            name: name.clone(),
            address: address.to_string(),
            agent: agent.clone(),
            slots: options.server.slots,
            cores,
            queue_depth: options.server.queue_depth,
            is_stateless: options.server.plain,
            memory_bytes,
            disk_bytes,
            data_max,
            slowdown: options.server.slowdown,
            separation,
            functions,
            code_hashes: codes,
            models: models.clone(),
            durable: kept_durable.clone(),
            damaged: damaged.clone(),
            storage: storage_id,
        });
        let machine: BoxMachine = match options.server.no_agent {
            true => Box::new(server),
            false => Box::new(RegistrationWatch::new(server, agent.clone())),
        };
        (Role::Server, name.clone(), machine)
    })?;
    stop_on_signals(&node, rest.until_stdin_closes)?;
    drain_on_signal(&node)?;
    log_waits_on_signal(&node)?;
    let mut announced = options.server.no_agent;
    if announced {
        announce(&name, node.address(), &names, rest.json)?;
    }
    let say = |why: String| tracing::warn!(target: "gridloom.models", node = name.as_str(), "{why}");
    let ended = drive(&node, |event| match event {
        Event::Log(line) if line.text == REGISTERED && !announced => {
            announced = true;
            if let Err(error) = announce(&name, node.address(), &names, rest.json) {
                gridloom_base::stderr_line!("gridloom: {error:#}");
            }
        }
        Event::ModelLearned { function, model } => {
            kept.as_mut().and_then(|kept| kept.record(function, model)).into_iter().for_each(say);
        }
        _ => {}
    });
    kept.as_mut().and_then(ModelStore::write).into_iter().for_each(say);
    ended
}

/// Drains the node on SIGUSR1.
fn drain_on_signal(node: &Arc<NetNode>) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGUSR1])?;
    let node = node.clone();
    std::thread::spawn(move || signals.forever().for_each(|_| node.command(NodeCommand::Drain)));
    Ok(())
}

/// Returns the keys of the server. A server of an agent on this machine, or without an agent, makes a grid if the user
/// has none yet: it may be the first to start. An agent on another machine has a grid already, which has to admit this
/// machine.
fn keys(options: &Options, name: &str) -> Result<NodeKeys> {
    let agent = &options.server.agent.agent;
    let is_here = || {
        let address = agent.parse::<NodeAddress>().unwrap_or_default();
        let resolved = |place: &String| place.to_socket_addrs();
        let is_loopback = |place: &String| resolved(place).is_ok_and(|mut all| all.all(|one| one.ip().is_loopback()));
        address.relayed.is_empty() && address.direct.iter().all(is_loopback)
    };
    let makes_grid = options.server.no_agent || is_here();
    let found = options.server.rest.keys(gridloom_keys::Role::Server, name, makes_grid);
    match makes_grid {
        true => found,
        false => {
            found.with_context(|| format!("no keys for the grid of the agent at {agent}, which is on another machine"))
        }
    }
}

/// Returns the library's absolute path. A bare name that is no file here is left to the system's search path.
fn located(library: &Path) -> Result<PathBuf> {
    match library.exists() {
        true => {
            check_regular(library).map_err(anyhow::Error::msg)?;
            absolute(library)
        }
        false if library.components().count() > 1 => bail!("{}: no such library", library.display()),
        false => Ok(library.to_path_buf()),
    }
}

/// Opens the models of earlier runs, unless --models is `none`.
fn open_models(options: &Options, offer: &Offer) -> Option<ModelStore> {
    let folder = match &options.server.models {
        Some(folder) if folder.as_os_str() == "none" => return None,
        Some(folder) => folder.clone(),
        None => usual_folder()?,
    };
    let name = options.server.name.clone().unwrap_or_else(host_name);
    let functions: Vec<_> = offer.definitions.iter().map(|definition| definition.signature.clone()).collect();
    let (kept, wrong) = ModelStore::open(&folder, &name, &functions, options.server.slowdown);
    let unwritable = check_writable(&folder).err().map(|error| {
        let folder = folder.display();
        format!(
            "models cannot be stored in {folder}: {error}; --models DIR names another folder, --models none keeps none"
        )
    });
    for line in wrong.into_iter().chain(unwritable) {
        gridloom_base::stderr_line!("gridloom: {name}: {line}");
    }
    Some(kept)
}

/// Creates the folder, and tries to write a file in it: models are written much later.
fn check_writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let trial = folder.join(format!(".trial-{}", std::process::id()));
    std::fs::write(&trial, [])?;
    std::fs::remove_file(&trial)
}

/// Removes functions of a built-in description that the system's library lacks. Any other function must exist.
fn leave_out_what_the_library_lacks(offer: &mut Offer, options: &Options) -> Result<()> {
    let wrong = check_libraries(&offer.definitions, &offer.libraries)?;
    if wrong.is_empty() {
        return Ok(());
    }
    let is_own = |file: &&PathBuf| !file.to_string_lossy().starts_with(BUILTIN_WORD);
    let own: Vec<PathBuf> = options.files.iter().filter(is_own).cloned().collect();
    let own = load_offer(&own, &options.server.python(), &[], options.bodies())?;
    let is_own = |name: &str| own.definitions.iter().any(|definition| definition.signature.name == name);
    let (fatal, missing): (Vec<UnusableFunction>, Vec<UnusableFunction>) =
        wrong.into_iter().partition(|(name, _)| is_own(name));
    let lines = |wrong: &[UnusableFunction]| -> Vec<String> {
        wrong.iter().map(|(name, why)| format!("function '{name}' cannot be offered: {why}")).collect()
    };
    offer.definitions.retain(|definition| missing.iter().all(|(name, _)| *name != definition.signature.name));
    if !fatal.is_empty() || offer.definitions.is_empty() {
        bail!("{}", lines(if fatal.is_empty() { &missing } else { &fatal }).join("\ngridloom: "));
    }
    if !options.server.rest.quiet {
        lines(&missing).iter().for_each(|line| gridloom_base::stderr_line!("gridloom: {line}"));
    }
    Ok(())
}

fn announce(name: &str, address: &str, functions: &[String], json: bool) -> Result<()> {
    if json {
        return print_json(&json!({ "name": name, "address": address, "functions": functions }));
    }
    print_line(&format!("server {name} on {address} offers {}", count(functions.len(), "function")))?;
    functions.iter().try_for_each(|function| print_line(&format!("  {function}")))
}

fn default_name() -> String {
    format!("{}-{}", host_name(), std::process::id())
}
