//! The embedded local grid: an agent and servers in processes of their own on loopback.
//!
//! Each process reads its standard input and exits when that closes. So none outlives the program that started it,
//! however the program ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gridloom_base::limits::{LOCAL_SERVERS_MAX, LOCAL_SITES_MAX, LOCAL_SLOTS_MAX};
use gridloom_net::identity::{self, Secret};
use gridloom_net::jobs::shared_threads;
use gridloom_net::threads;
use gridloom_net::transport::emulated_sites::Site;
use gridloom_process::filter::FilterSpec;

use crate::Error;
use crate::offer::{BUILTIN_LINALG, BUILTIN_RUN_CODE};

/// Environment variable with the path of the `gridloom` program.
const PROGRAM_VARIABLE: &str = "GRIDLOOM_PROGRAM";

/// Environment variable with the path of the Python interpreter.
const PYTHON_VARIABLE: &str = "GRIDLOOM_PYTHON";

/// Time that the processes have to exit by themselves.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Time that their listeners have after that. A process that a function left behind may keep a pipe open forever.
const LISTENER_PATIENCE: Duration = Duration::from_secs(1);

/// Maximum number of bytes of an unfinished line that are kept.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of bytes kept of a process's output while it starts.
const OUTPUT_BYTES_MAX: usize = 16 << 10;

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
    /// True if arrays are passed in shared memory, false if over TCP.
    pub shared_memory: bool,
    /// BLAS library for `linalg/…`.
    pub blas: Option<PathBuf>,
    /// Python interpreter for Python functions.
    pub python: Option<PathBuf>,
    /// The `gridloom` program.
    pub program: Option<PathBuf>,
    /// Variables added to the servers' environment.
    pub environment: Vec<(String, String)>,
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
            shared_memory: true,
            blas: None,
            python: None,
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
                std::thread::available_parallelism().map_or(1, usize::from)
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
    pub(crate) secret: Secret,
    agent: GridProcess,
    servers: Vec<GridProcess>,
}

/// A process of the grid. Its standard error is forwarded once it is ready, unless it is silent. Before that it is kept, since it
/// explains why a process did not start.
struct GridProcess {
    child: Child,
    name: String,
    is_silent: bool,
    output: Arc<Mutex<Option<String>>>,
    /// Disconnected once the listener has read all output; until then receiving times out.
    ended: Receiver<()>,
    listener: Option<JoinHandle<()>>,
}

impl LocalProcesses {
    pub(crate) fn start(config: &LocalConfig) -> Result<LocalProcesses, Error> {
        config.check()?;
        let program = program_path(config.program.as_deref());
        let secret: [u8; 16] =
            identity::random().map_err(|error| Error::Connect(format!("no random bytes for a secret: {error}")))?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let command = |arguments: &[&str], site: usize| {
            let mut command = Command::new(&program);
            // Links connect hosts, so each site has its own address of the loopback device.
            command.args(arguments).arg("--listen").arg(format!("127.0.0.{site}:0"));
            if let Some(site) = config.site(site) {
                command.args(["--site", site.name()]);
                site.filters().iter().for_each(|filter| _ = command.arg("--filter").arg(filter.to_string()));
            }
            command.args(["--json", "--quiet", "--until-stdin-closes"]).env("GRIDLOOM_SECRET", &secret);
            // An interrupt at the terminal is for the program, which then ends its grid.
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            command
        };
        let mut agent = GridProcess::new(spawn(&mut command(&["agent"], 1))?, "agent", config.silent)?;
        let line = agent.ready_line()?;
        let address = serde_json::from_str::<serde_json::Value>(&line)
            .ok()
            .and_then(|ready| ready["address"].as_str().map(str::to_string))
            .ok_or_else(|| Error::Connect(format!("the agent printed '{}' instead of its address", line.trim())))?;
        let mut processes =
            LocalProcesses { address, secret: Secret::from_bytes(secret.as_bytes()), agent, servers: Vec::new() };
        let width = config.servers.to_string().len();
        for number in 1..=config.servers {
            let name = format!("server-{number:0width$}");
            let mut command = command(&["serve"], 1 + (number - 1) * config.sites / config.servers);
            command.args(config.all_functions()).args(["--agent", &processes.address, "--name", &name]);
            command.arg("--slots").arg(config.slots.to_string());
            // The functions are the program's own, so they get its environment.
            command.args(["--env", "*"]);
            command.arg("--python").arg(config.python()).args(["--models", "none"]);
            config.libraries.iter().for_each(|library| {
                command.arg("--library").arg(library);
            });
            if let Some(memory) = config.memory_bytes {
                command.arg("--memory").arg(memory.to_string());
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
            command.envs(shared_threads((config.servers as u32).saturating_mul(config.slots)));
            command.envs(config.environment.iter().cloned());
            processes.servers.push(GridProcess::new(spawn(&mut command)?, &name, config.silent)?);
        }
        processes.servers.iter_mut().try_for_each(|server| server.ready_line().map(drop))?;
        Ok(processes)
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

fn spawn(command: &mut Command) -> Result<Child, Error> {
    let program = command.get_program().to_os_string();
    command.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        Error::Connect(format!("cannot run '{program}': {error}; set {PROGRAM_VARIABLE} to the gridloom program"))
    })
}

impl GridProcess {
    fn new(mut child: Child, name: &str, is_silent: bool) -> Result<GridProcess, Error> {
        let error = child.stderr.take().expect("its errors are piped");
        let said = Arc::new(Mutex::new(Some(String::new())));
        let (heard, (end, ended)) = (said.clone(), channel());
        let thread = thread::Builder::new().name("gridloom-log".into());
        // Dropping `end` signals that all output was read.
        let listener = threads::spawn(thread, move || drop((forward_output(error, &heard, is_silent), end)));
        match listener {
            Ok(listener) => {
                let (name, listener) = (name.to_string(), Some(listener));
                Ok(GridProcess { child, name, is_silent, output: said, ended, listener })
            }
            Err(error) => {
                // Nobody would read its output, which would block it. It may have exited already.
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::Connect(format!("{name} of the local grid: {error}")))
            }
        }
    }

    /// Waits for the listener of a process that has exited, until the deadline at the latest.
    fn join(&mut self, deadline: Instant) {
        let has_heard_all = !matches!(
            self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            Err(RecvTimeoutError::Timeout)
        );
        if has_heard_all && let Some(listener) = self.listener.take() {
            // A panic was reported on its own thread.
            let _ = listener.join();
        }
    }

    /// Returns the line that the process prints when it is ready.
    fn ready_line(&mut self) -> Result<String, Error> {
        let stdout = self.child.stdout.as_mut().expect("its output is piped");
        let mut line = String::new();
        let length = BufReader::new(stdout).read_line(&mut line);
        if !matches!(length, Ok(0)) {
            let said = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
            if !self.is_silent {
                write_error(said.unwrap_or_default().as_bytes());
            }
        }
        let name = &self.name;
        match length {
            Ok(length) if length > 0 => Ok(line),
            Ok(_) => {
                let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                // Its last output may still be in the pipe; a process that it left behind may keep the pipe open forever.
                let _ = self.ended.recv_timeout(STOP_PATIENCE);
                let said = self.output.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
                let said = said.trim().trim_start_matches("gridloom: ");
                let why = if said.is_empty() { &status } else { said };
                Err(Error::Connect(format!("{name} of the local grid did not start: {why}")))
            }
            Err(error) => Err(Error::Connect(format!("{name} of the local grid: {error}"))),
        }
    }
}

/// Forwards a process's standard error line by line; while the process starts, keeps it instead. A line that exceeds
/// the limit is forwarded in pieces.
fn forward_output(error: impl Read, said: &Mutex<Option<String>>, is_silent: bool) {
    let mut lines = BufReader::new(error);
    let mut line = Vec::new();
    while lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        match &mut *said.lock().unwrap_or_else(PoisonError::into_inner) {
            None if is_silent => {}
            None => write_error(&line),
            Some(said) => {
                said.push_str(&String::from_utf8_lossy(&line));
                while said.len() > OUTPUT_BYTES_MAX {
                    let first = said.find('\n').map_or(said.len(), |end| end + 1);
                    said.drain(..first);
                }
            }
        }
        line.clear();
    }
}

/// Writes to standard error. Failures are ignored: there is nowhere to report them.
fn write_error(bytes: &[u8]) {
    let _ = std::io::stderr().write_all(bytes);
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
