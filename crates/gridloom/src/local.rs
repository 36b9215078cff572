//! The embedded local grid: an agent and servers in processes of their own on loopback.
//!
//! Each process reads its standard input and exits when that closes. So none outlives the program that started it,
//! however the program ends.
//!
//! **Waiting:** the processes may take any time to start, because the machine may be busy. The wait ends when all of them
//! are ready or one of them has ended. A long wait is logged.

mod process;
mod progress;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gridloom_base::limits::{LOCAL_SERVERS_MAX, LOCAL_SITES_MAX, LOCAL_SLOTS_MAX};
use gridloom_keys::{Authority, KeysError, Role, UnixTime, default_name};
use gridloom_net::identity::{IssuedKeys, Keys};
use gridloom_net::jobs::{shared_threads, store_bytes_default};
use gridloom_net::transport::emulated_sites::Site;
use gridloom_process::filter::FilterSpec;
use gridloom_resources::Processors;

use self::process::{LocalProcess, await_ready, check_all};
pub(crate) use self::progress::StartProgress;
use crate::offer::{BUILTIN_LINALG, BUILTIN_RUN_CODE};
use crate::{Error, log};

/// Environment variable with the path of the `gridloom` program.
const PROGRAM_VARIABLE: &str = "GRIDLOOM_PROGRAM";

/// Environment variable with the path of the Python interpreter.
const PYTHON_VARIABLE: &str = "GRIDLOOM_PYTHON";

/// Time that the processes have to exit by themselves.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Time that their listeners have after that. A process that a function left behind may keep a pipe open forever.
const LISTENER_PATIENCE: Duration = Duration::from_secs(1);

/// Name of the grid in its certificates.
const GRID: &str = "local";

/// Configuration of an embedded local grid.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    pub servers: usize,
    /// Number of sites. The servers are divided over them in order; the program and the agent are in the first.
    pub sites: usize,
    /// Filters for the traffic between two sites: `rate`, `delay` and `jitter` are allowed.
    pub filters: Vec<FilterSpec>,
    /// Number of tasks that each server runs at a time.
    pub slots: u32,
    /// Number of stateless servers (the last ones): they talk to clients only, and keep nothing between calls.
    pub plain: usize,
    /// Files that describe the offered functions: `.idl` and `.py`. Linear algebra from BLAS is always offered if a BLAS is found.
    pub functions: Vec<PathBuf>,
    /// True if the servers run Python functions that the program sends.
    pub run_code: bool,
    /// Shared libraries with the functions that the `.idl` files describe.
    pub libraries: Vec<PathBuf>,
    /// Memory limit of each server's store.
    pub memory_bytes: Option<u64>,
    /// Memory limit of each worker, without the store.
    pub worker_memory_bytes: Option<u64>,
    /// True if arrays are passed in shared memory, false if over TCP.
    pub shared_memory: bool,
    /// BLAS library for `linalg/…`.
    pub blas: Option<PathBuf>,
    /// Python interpreter for Python functions.
    pub python: Option<PathBuf>,
    /// Options of the interpreter, such as `-O`, one word each.
    pub python_options: Vec<String>,
    /// The `gridloom` program.
    pub program: Option<PathBuf>,
    /// Variables added to the servers' environment.
    pub environment: Vec<(OsString, OsString)>,
    /// True if the standard error of running processes is dropped; otherwise it appears on that of the program.
    pub silent: bool,
}

impl Default for LocalConfig {
    fn default() -> LocalConfig {
        LocalConfig {
            servers: 4,
            sites: 1,
            filters: Vec::new(),
            slots: 1,
            plain: 0,
            functions: Vec::new(),
            run_code: false,
            libraries: Vec::new(),
            memory_bytes: None,
            worker_memory_bytes: None,
            shared_memory: true,
            blas: None,
            python: None,
            python_options: Vec::new(),
            program: None,
            environment: Vec::new(),
            silent: false,
        }
    }
}

impl LocalConfig {
    /// Rejects invalid values before anything is started.
    fn check(&self) -> Result<(), Error> {
        let (servers, plain) = (self.servers, self.plain);
        if servers == 0 {
            return Err(Error::Usage("a local grid has at least 1 server, got 0".into()));
        }
        if plain > servers {
            return Err(Error::Usage(format!(
                "{plain} stateless servers of {servers}; at most all of them can be stateless"
            )));
        }
        if servers > LOCAL_SERVERS_MAX {
            return Err(Error::Usage(format!(
                "a local grid of {servers} servers; at most {LOCAL_SERVERS_MAX}, as each is a process of this machine; give \
                 each server more slots"
            )));
        }
        let slots = self.slots as usize;
        if slots == 0 || slots > LOCAL_SLOTS_MAX / servers {
            return Err(Error::Usage(format!(
                "a local grid of {servers} servers with {slots} slots each; a server has at least 1, and all together have at \
                 most {LOCAL_SLOTS_MAX}, as each is a process of this machine; this machine has {} processors",
                gridloom_resources::processors()
            )));
        }
        if self.sites == 0 || self.sites > servers.min(LOCAL_SITES_MAX) {
            return Err(Error::Usage(format!(
                "{} sites for {servers} servers; expected 1 to {}, since each needs a server",
                self.sites,
                servers.min(LOCAL_SITES_MAX)
            )));
        }
        match self.filters.first() {
            Some(first) if self.sites == 1 => Err(Error::Usage(format!(
                "{first} applies between two sites, but there is only one; divide the servers over several sites"
            ))),
            Some(_) => Site::new("site", self.filters.clone()).map(drop).map_err(Error::Usage),
            None => Ok(()),
        }
    }

    /// Describes the servers that are started, the processors that they may use, and the limit of their stores.
    pub fn summary(&self) -> String {
        self.summary_on(&Processors::find(), self.store_bytes())
    }

    fn summary_on(&self, processors: &Processors, store_bytes: u64) -> String {
        let plural = |number: usize| if number == 1 { "" } else { "s" };
        let (servers, slots) = (self.servers, self.slots as usize);
        let store_gib = store_bytes as f64 / f64::from(1 << 30);
        format!(
            "{servers} server{} of {slots} slot{}: {processors}; each server stores up to {store_gib:.1} GiB",
            plural(servers),
            plural(slots)
        )
    }

    fn store_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(|| store_bytes_default(self.servers))
    }

    /// Returns the site with that number, from 1; `None` if there is only one.
    pub(crate) fn site(&self, number: usize) -> Option<Site> {
        let site = || Site::new(&format!("site-{number}"), self.filters.clone()).expect("the filters were checked");
        (self.sites > 1).then(site)
    }

    /// Returns all files that describe offered functions, the built-in ones first.
    pub(crate) fn all_functions(&self) -> Vec<PathBuf> {
        let run_code = self.run_code.then(|| PathBuf::from(BUILTIN_RUN_CODE));
        let first = std::iter::once(PathBuf::from(BUILTIN_LINALG));
        first.chain(self.functions.iter().cloned()).chain(run_code).collect()
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.python.clone().unwrap_or_else(default_python)
    }
}

/// Returns the default Python interpreter for functions: that of `GRIDLOOM_PYTHON`, which the Python package's command
/// sets, or else `python3`.
pub fn default_python() -> PathBuf {
    std::env::var_os(PYTHON_VARIABLE).map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// Returns the path of the `gridloom` program: the one given by argument or by `GRIDLOOM_PROGRAM`; else one beside this
/// program or in its build folder; else the one on the search path.
pub fn program_path(named: Option<&Path>) -> PathBuf {
    let variable = || std::env::var_os(PROGRAM_VARIABLE).map(PathBuf::from);
    if let Some(path) = named.map(Path::to_path_buf).or_else(variable) {
        return path;
    }
    let here = std::env::current_exe().unwrap_or_default();
    if here.file_name().is_some_and(|name| name == "gridloom") {
        return here;
    }
    let above = here.ancestors().skip(1).take(3).map(|folder| folder.join("gridloom"));
    above.into_iter().find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("gridloom"))
}

/// The running processes. Dropping them without [`LocalProcesses::stop`] ends them too.
pub(crate) struct LocalProcesses {
    pub(crate) address: String,
    /// The keys of the program.
    pub(crate) keys: Keys,
    agent: LocalProcess,
    servers: Vec<LocalProcess>,
}

impl LocalProcesses {
    pub(crate) fn start(config: &LocalConfig) -> Result<LocalProcesses, Error> {
        config.check()?;
        log::info(&config.summary());
        let program = program_path(config.program.as_deref());
        // The grid admits the program and its processes only, so its authority needs no file.
        let authority = Authority::new(GRID, UnixTime::now()).map_err(no_keys)?;
        let keys = |role, name: &str| IssuedKeys::by_authority(&authority, role, name).map_err(no_keys);
        let role = Role::Administrator;
        let own = keys(role, &default_name(role))?.keys().map_err(|error| Error::Connect(error.to_string()))?;
        let command = |arguments: &[&str], site: usize| {
            let mut command = Command::new(&program);
            // Links connect hosts, so each site has its own address of the loopback device.
            command.args(arguments).arg("--listen").arg(format!("127.0.0.{site}:0"));
            if let Some(site) = config.site(site) {
                command.args(["--site", site.name()]);
                site.filters().iter().for_each(|filter| _ = command.arg("--filter").arg(filter.to_string()));
            }
            command.args(["--json", "--quiet", "--keys-on-stdin", "--until-stdin-closes"]);
            // An interrupt at the terminal is for the program, which then ends its grid.
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            command
        };
        let mut progress = StartProgress::new();
        let mut agent = LocalProcess::start(
            command(&["agent", "--records", "none"], 1),
            "agent",
            &keys(Role::Agent, "agent")?,
            config.silent,
        )?;
        await_ready(&mut [&mut agent], &mut progress)?;
        let line = agent.ready_line().to_string();
        let address = serde_json::from_str::<serde_json::Value>(&line)
            .ok()
            .and_then(|ready| ready["address"].as_str().map(str::to_string))
            .ok_or_else(|| Error::Connect(format!("the agent printed '{}' instead of its address", line.trim())))?;
        let mut processes = LocalProcesses { address, keys: own, agent, servers: Vec::new() };
        let width = config.servers.to_string().len();
        for number in 1..=config.servers {
            let name = format!("server-{number:0width$}");
            let mut command = command(&["serve"], 1 + (number - 1) * config.sites / config.servers);
            command.args(config.all_functions()).args(["--agent", &processes.address, "--name", &name]);
            command.arg("--slots").arg(config.slots.to_string());
            // The functions are the program's own, so they get its environment.
            command.args(["--env", "*"]);
            command.arg("--python").arg(config.python()).args(["--models", "none"]);
            config.python_options.iter().for_each(|option| {
                command.arg(format!("--python-option={option}"));
            });
            config.libraries.iter().for_each(|library| {
                command.arg("--library").arg(library);
            });
            command.arg("--memory").arg(format!("{}B", config.store_bytes()));
            if let Some(limit) = config.worker_memory_bytes {
                command.arg("--worker-memory").arg(format!("{limit}B"));
            }
            if number > config.servers - config.plain {
                command.arg("--plain");
            }
            if !config.shared_memory {
                command.arg("--no-shared-memory");
            }
            if let Some(blas) = &config.blas {
                command.env("GRIDLOOM_BLAS", blas);
            }
            command.envs(shared_threads((config.servers as u32).saturating_mul(config.slots), &config.environment));
            command.envs(config.environment.iter().cloned());
            let keys = keys(Role::Server, &name)?;
            processes.servers.push(LocalProcess::start(command, &name, &keys, config.silent)?);
        }
        await_ready(&mut processes.all(), &mut progress)?;
        Ok(processes)
    }

    fn all(&mut self) -> Vec<&mut LocalProcess> {
        std::iter::once(&mut self.agent).chain(&mut self.servers).collect()
    }

    /// Returns an error if one of the processes has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        check_all(&mut self.all())
    }

    pub(crate) fn server_processes(&self) -> Vec<u32> {
        self.servers.iter().map(|server| server.child.id()).collect()
    }

    /// Ends all processes and waits for them; those that do not exit by themselves are killed.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let all = self.servers.iter_mut().chain(std::iter::once(&mut self.agent));
        let mut children: Vec<&mut Child> = all.map(|started| &mut started.child).collect();
        for child in &mut children {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        for child in &mut children {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    // The process may have exited between the check and the kill, which is fine.
                    let _ = child.kill();
                    let _ = child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let deadline = Instant::now() + LISTENER_PATIENCE;
        self.servers.iter_mut().chain(std::iter::once(&mut self.agent)).for_each(|started| started.join(deadline));
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.end();
    }
}

fn no_keys(error: KeysError) -> Error {
    Error::Connect(format!("no keys for the local grid: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_that_no_machine_holds_is_refused_before_anything_starts() {
        let wrong = |servers: usize, slots: u32| {
            // A grid that is not rejected fails when it starts its first process.
            let program = Some("/nowhere/gridloom".into());
            match LocalProcesses::start(&LocalConfig { servers, slots, program, ..LocalConfig::default() }) {
                Err(Error::Usage(why)) => why,
                Err(error) => panic!("{servers} servers, {slots} slots: {error}"),
                Ok(_) => panic!("{servers} servers, {slots} slots started"),
            }
        };
        assert!(wrong(1_000_000_000, 1).starts_with("a local grid of 1000000000 servers; at most 256"));
        assert!(wrong(257, 1).contains("at most 256"));
        assert!(wrong(1, 1025).contains("1 servers with 1025 slots each"));
        assert!(wrong(256, 5).contains("at most 1024"));
        assert!(wrong(4, 0).contains("at least 1"));
        assert!(wrong(usize::MAX, u32::MAX).contains("at most 256"));
    }

    #[test]
    fn the_summary_names_servers_slots_and_what_limits_the_processors() {
        let processors = Processors { machine: 8, affinity: 4, quota: Some(3.5) };
        let why = "4 cores by affinity, 8 on the machine, quota 3.5";
        let summary = LocalConfig::default().summary_on(&processors, 3 << 29);
        assert_eq!(summary, format!("4 servers of 1 slot: {why}; each server stores up to 1.5 GiB"));
    }

    #[test]
    fn sites_that_cannot_be_are_refused_before_anything_starts() {
        let wrong = |sites: usize, filters: &[&str]| {
            let filters = filters.iter().map(|text| text.parse().unwrap()).collect();
            let program = Some("/nowhere/gridloom".into());
            match LocalProcesses::start(&LocalConfig { sites, filters, program, ..LocalConfig::default() }) {
                Err(Error::Usage(why)) => why,
                Err(error) => panic!("{sites} sites: {error}"),
                Ok(_) => panic!("{sites} sites started"),
            }
        };
        assert_eq!(wrong(5, &[]), "5 sites for 4 servers; expected 1 to 4, since each needs a server");
        assert!(wrong(0, &[]).starts_with("0 sites for 4 servers"));
        assert!(wrong(1, &["delay=16ms"]).starts_with("delay=16ms applies between two sites, but there is only one"));
        assert!(wrong(2, &["delay=3s"]).starts_with("a delay of 3 s between two sites"));
        assert!(wrong(2, &["compress"]).starts_with("filter compress changes bytes"));
        let config = LocalConfig { sites: 2, filters: vec!["delay=1ms".parse().unwrap()], ..LocalConfig::default() };
        assert_eq!(config.site(2).unwrap().to_string(), "site-2 delay=1ms");
        assert!(LocalConfig::default().site(1).is_none());
    }
}
