//! Processes of the program: tests start them, wait for their output, and end them in all cases.

pub mod attacks;
pub mod bounds;

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bounds::output_of;

/// Returns the program with that command line.
pub fn gridloom(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridloom"));
    command.args(arguments).env("GRIDLOOM_KEYS", keys()).env_remove("GRIDLOOM_AGENT");
    command.env("GRIDLOOM_MODELS", "none").env("GRIDLOOM_RECORDS", "none");
    command.stdin(Stdio::null());
    command
}

/// Returns a folder with the keys of a grid, for all tests of this process. Folders of earlier runs are removed.
pub fn keys() -> &'static Path {
    static KEYS: OnceLock<PathBuf> = OnceLock::new();
    KEYS.get_or_init(|| {
        let all = folder("keys-of-runs");
        for run in std::fs::read_dir(&all).unwrap().flatten() {
            if !Path::new("/proc").join(run.file_name()).exists() {
                let _ = std::fs::remove_dir_all(run.path());
            }
        }
        let own = all.join(std::process::id().to_string());
        make_grid(&own, "tests");
        own
    })
}

/// Makes a grid whose keys are in that folder.
pub fn make_grid(keys: &Path, name: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridloom"));
    succeeds({
        command.args(["keys", "init", name]).env("GRIDLOOM_KEYS", keys).stdin(Stdio::null());
        command
    });
}

/// Admits a user to the grid of the tests and returns the folder of their keys. The user may call functions with these patterns.
pub fn admit_user(name: &str, functions: &str) -> PathBuf {
    let own = folder("users").join(format!("{}-{name}", std::process::id()));
    let theirs = |arguments: &[&str]| {
        let mut command = gridloom(arguments);
        command.env("GRIDLOOM_KEYS", &own);
        command
    };
    let request = succeeds(theirs(&["keys", "request", "tests", "--name", name, "--functions", functions]));
    let path = folder("requests").join(format!("{}-{name}", std::process::id()));
    let file = path.to_str().unwrap();
    std::fs::write(&path, request).unwrap();
    let certificate = succeeds(gridloom(&["keys", "approve", file]));
    std::fs::write(&path, certificate).unwrap();
    succeeds(theirs(&["keys", "install", file]));
    own
}

/// Prints that the running test is skipped, and records it in the file that `GRIDLOOM_SKIPPED` names.
pub fn skipped(why: &str) {
    let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(file) = std::env::var_os("GRIDLOOM_SKIPPED") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
}

/// True if this machine permits testbeds of that platform to its users; prints a message if not.
pub fn has_testbeds(platform: &str) -> bool {
    let output = gridloom(&["testbed", "run", "--no-grid", "--quiet", "-p", platform, "--", "true"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("this machine does not let this user have") {
        skipped(error.trim_end());
        return false;
    }
    assert!(output.status.success(), "{error}");
    true
}

/// Writes a program that tests start. A child writes it: a descriptor that writes to it here would be inherited by any
/// process that another thread starts at that moment, and until that process runs its own program, the file is busy.
pub fn write_executable(path: &Path, content: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), content.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "cannot write '{}'", path.display());
}

/// Copies a program that tests start; see [`write_executable`].
pub fn copy_executable(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status().unwrap();
    assert!(status.success(), "cannot copy '{}' to '{}'", from.display(), to.display());
}

/// Runs a command that must succeed. Returns its standard output.
pub fn succeeds(mut command: Command) -> String {
    let output = output_of(&mut command);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must print nothing. Returns its status and its standard error.
pub fn status_and_stderr(mut command: impl std::borrow::BorrowMut<Command>) -> (i32, String) {
    let output = output_of(command.borrow_mut());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A process that runs until it is asked to end, or until its test ends.
pub struct Running {
    child: Child,
    /// The first line that it printed.
    pub line: String,
}

impl Running {
    /// Starts a process and waits for its first line.
    pub fn start(mut command: Command) -> Running {
        command.arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running { child: command.spawn().unwrap(), line: String::new() };
        running.line = first_line(&mut running);
        running
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes its input and returns its exit status.
    pub fn close_input(mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }

    /// Sends that signal and returns its exit status. Its input stays open.
    pub fn signal(mut self, signal: &str) -> ExitStatus {
        let _input = self.child.stdin.take();
        send(self.pid(), signal);
        self.child.wait().unwrap()
    }

    /// Kills it and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Returns the first line that it prints.
pub fn first_line(running: &mut Running) -> String {
    let mut line = String::new();
    // Read byte by byte, so that the following output remains in the pipe.
    let output = running.child.stdout.as_mut().unwrap();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    line
}

/// The lines of a process's log.
pub type Log = Lines<BufReader<ChildStderr>>;

/// Starts a process and its log, without waiting for its first line.
pub fn logging(command: &mut Command) -> (Running, Log) {
    command.arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap()).lines();
    (Running { child, line: String::new() }, log)
}

/// Waits for a line that contains that text.
pub fn line_with(log: &mut Log, text: &str) -> String {
    let mut seen = String::new();
    for line in log {
        let line = line.unwrap();
        if line.contains(text) {
            return line;
        }
        seen.push_str(&line);
        seen.push('\n');
    }
    panic!("no line with '{text}' in:\n{seen}");
}

/// An agent.
pub struct Grid {
    pub agent: Running,
    pub address: String,
}

impl Grid {
    pub fn start() -> Grid {
        Grid::start_at("127.0.0.1:0")
    }

    pub fn start_at(listen: &str) -> Grid {
        let agent = Running::start(gridloom(&["agent", "--listen", listen, "--quiet"]));
        let address = agent.line.strip_prefix("agent listening on ").unwrap().to_string();
        Grid { agent, address }
    }

    pub fn start_logging() -> (Grid, Log) {
        let (mut agent, log) = logging(&mut gridloom(&["agent", "--listen", "127.0.0.1:0"]));
        let address = first_line(&mut agent).strip_prefix("agent listening on ").unwrap().to_string();
        (Grid { agent, address }, log)
    }

    /// Returns a client's command line.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gridloom(arguments);
        command.env("GRIDLOOM_AGENT", &self.address);
        command
    }

    /// Returns the output of a client with `--json`.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let mut command = self.command(arguments);
        command.arg("--json");
        serde_json::from_str(&succeeds(command)).unwrap()
    }

    pub fn serve_command(&self, name: &str, files: &[&str], arguments: &[&str]) -> Command {
        serve_command(&self.address, name, files, &[&["--library", library(), "--quiet"], arguments].concat())
    }

    /// Starts a server of the tests' functions and waits until it is registered.
    pub fn serve(&self, name: &str, arguments: &[&str]) -> Running {
        let server = Running::start(self.serve_command(name, &[&idl()], arguments));
        assert!(server.line.starts_with(&format!("server {name} on 127.0.0.1:")), "{}", server.line);
        assert!(server.line.ends_with(" offers 4 functions"), "{}", server.line);
        server
    }
}

pub fn serve_command(agent: &str, name: &str, files: &[&str], arguments: &[&str]) -> Command {
    let mut command = gridloom(&["serve"]);
    command.args(files).args(["--agent", agent, "--name", name]).args(arguments);
    command
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Quotes a word for a shell. The folder of the project may have a space in its name.
pub fn quoted(word: &str) -> String {
    shlex::try_quote(word).unwrap().into_owned()
}

/// Returns the description of the tests' functions.
pub fn idl() -> String {
    fixtures().join("cli.idl").to_str().unwrap().to_string()
}

/// Returns the library of the tests' functions.
pub fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = folder("library").join("libcli.so");
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(fixtures().join("cli.c"))
            .status()
            .unwrap();
        assert!(compiler.success());
        library.to_str().unwrap().to_string()
    })
}

/// Compiles a C file into a shared library.
pub fn compiled(name: &str, source: &str) -> String {
    placed(folder("library").join(name), |library| {
        let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).status().unwrap();
        assert!(status.success());
    })
}

/// Returns a folder for one test's files.
pub fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes a file with that content.
pub fn file(name: &str, content: &str) -> String {
    placed(folder("inputs").join(name), |file| std::fs::write(file, content).unwrap())
}

/// Makes a file under a temporary name and renames it: tests that run concurrently make and read the same file.
fn placed(place: PathBuf, make: impl FnOnce(&Path)) -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let mut beside = place.clone().into_os_string();
    beside.push(format!(".{}", MADE.fetch_add(1, Ordering::Relaxed)));
    make(beside.as_ref());
    std::fs::rename(beside, &place).unwrap();
    place.to_str().unwrap().to_string()
}

/// Returns the live processes that a process has started.
pub fn workers_of(pid: u32) -> Vec<u32> {
    let mut children = String::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        children += &std::fs::read_to_string(task.unwrap().path().join("children")).unwrap();
    }
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Waits until a process that is no child of this one has ended.
pub fn process_ended(pid: u32) {
    // `tail` watches it; std can only wait for child processes.
    let status = Command::new("timeout").args(["20", "tail", "-f", "/dev/null", "--pid", &pid.to_string()]).status();
    assert!(status.unwrap().success(), "process {pid} still runs");
}
