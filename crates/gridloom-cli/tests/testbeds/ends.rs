//! How testbeds end: killed at any moment of their start, interrupted, or asked to end. Nothing is left behind.
//! Skipped with a message if this machine allows no user namespaces.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, file, folder, gridloom, status_and_stderr};

const PLATFORM: &str = "[[host]]\nname = \"here\"\nspeed = \"1Gf\"\n[[host]]\nname = \"there\"\nspeed = \"1Gf\"\n\
    [[link]]\nname = \"wire\"\nbandwidth = \"10MBps\"\nlatency = \"1ms\"\n\
    [[route]]\nfrom = \"here\"\nto = \"there\"\nlinks = [\"wire\"]\n";
/// Environment variable of all processes that a test starts, and of no others.
const MARK: &str = "GRIDLOOM_TEST_MARK";
/// Longer than any step takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A testbed that is being started, in a folder and a process group of its own.
struct StartingTestbed {
    child: Child,
    mark: String,
    runtime: PathBuf,
}

impl StartingTestbed {
    fn start(name: &str, arguments: &[&str], program: &[&str]) -> StartingTestbed {
        let mark = format!("{name}-{}", std::process::id());
        // Not below the target folder, whose path may be too long for sockets.
        let runtime = std::env::temp_dir().join(format!("gridloom-test-{mark}"));
        std::fs::create_dir_all(&runtime).unwrap();
        let platform = file(&format!("ends-{name}.toml"), PLATFORM);
        let mut command = gridloom(&["testbed", "run", "-p", &platform]);
        command.args(arguments).arg("--").args(program).env(MARK, &mark).env("XDG_RUNTIME_DIR", &runtime);
        let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        StartingTestbed { child, mark, runtime }
    }

    fn signal(&self, signal: &str, whom: &str) {
        let pid = format!("{whom}{}", self.child.id());
        assert!(Command::new("kill").args([signal, "--", &pid]).status().unwrap().success());
    }

    /// Returns what exists of it: processes, folders, control groups.
    fn left(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let processes = entries(Path::new("/proc")).into_iter().filter(|path| {
            std::fs::read(path.join("environ"))
                .is_ok_and(|text| text.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()))
        });
        let mut left: Vec<PathBuf> = processes.collect();
        left.extend(entries(&self.runtime));
        let own = [format!("gridloom-testbed-{}-", self.child.id()), format!("gridloom-probe-{}", self.child.id())];
        let folders = entries(Path::new("/sys/fs/cgroup")).into_iter().chain(["/sys/fs/cgroup".into()]);
        left.extend(folders.flat_map(|folder| entries(&folder)).filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            own.iter().any(|own| name.starts_with(own.as_str()))
        }));
        left.into_iter().map(|path| path.display().to_string()).collect()
    }

    /// Waits until its folder has a file of that name.
    fn has(&mut self, what: &str) -> bool {
        let is_there = |path: &PathBuf| path.join(what).exists() || what.is_empty();
        self.until(|tool| {
            let testbeds = entries(&tool.runtime).into_iter().flat_map(|base| entries(&base));
            testbeds.filter(|path| path.is_dir()).any(|path| is_there(&path))
        })
    }

    /// Waits until that is true. Returns false if it ends before.
    fn until(&mut self, is_it: impl Fn(&StartingTestbed) -> bool) -> bool {
        loop {
            if is_it(self) {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
        }
    }

    fn nothing_is_left(&mut self, when: &str) {
        let deadline = Instant::now() + TIMEOUT;
        self.child.wait().unwrap();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{when}: {left:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn await_line(&mut self, text: &str) {
        let mut line = String::new();
        BufReader::with_capacity(1, self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), text);
    }

    /// Waits for its end. Returns its status and its standard error. Nothing may be left at that moment.
    fn ends(&mut self) -> (ExitStatus, String) {
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(self.left(), Vec::<String>::new());
        (status, error)
    }
}

impl Drop for StartingTestbed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.runtime);
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).map_or(Vec::new(), |entries| entries.flatten().map(|entry| entry.path()).collect())
}

#[test]
fn nothing_is_left_of_a_testbed_that_is_killed_while_it_starts() {
    if !support::has_testbeds(&file("ends-start.toml", PLATFORM)) {
        return;
    }
    let start = || StartingTestbed::start("start", &[], &["sh", "-c", "echo up; exec sleep 1000"]);
    let began = Instant::now();
    let mut whole = start();
    whole.await_line("up");
    let takes = began.elapsed();
    whole.signal("-KILL", "");
    whole.nothing_is_left("when it was up");
    // Killed as soon as each of these exists: the folder of all testbeds, its own folder, and the files in it.
    for what in ["base", "", "lock", "groups", "spec.json", "hosts", "control"] {
        for whom in ["", "-"] {
            let mut tool = start();
            let came = match what {
                "base" => tool.until(|tool| !entries(&tool.runtime).is_empty()),
                _ => tool.has(what),
            };
            assert!(came || what == "groups", "{what}");
            tool.signal("-KILL", whom);
            tool.nothing_is_left(&format!("'{what}' was there, kill {whom}PID"));
        }
    }
    // While the supervisor creates namespaces, which takes some milliseconds, it may not be able to remove anything.
    // These tests choose a time: no event is there to wait for.
    for part in 0..10 {
        let mut tool = start();
        assert!(tool.has("spec.json"));
        std::thread::sleep(takes * part / 100);
        tool.signal("-KILL", "-");
        tool.nothing_is_left(&format!("{part}/100 of {takes:?} after its description was there"));
    }
    // The same at times in between.
    for part in 0..20 {
        let mut tool = start();
        std::thread::sleep(takes * part / 20);
        tool.signal("-KILL", if part % 2 == 0 { "" } else { "-" });
        tool.nothing_is_left(&format!("after {part}/20 of {takes:?}"));
    }
}

#[test]
fn an_interrupt_is_the_programs_and_ends_it_in_the_end() {
    if !support::has_testbeds(&file("ends-interrupt.toml", PLATFORM)) {
        return;
    }
    let blocked = ["testbed", "run", "--no-grid", "--quiet", "-p", &file("ends-interrupt.toml", PLATFORM), "--"];
    let blocked = gridloom(&[&blocked[..], &["grep", "SigBlk", "/proc/self/status"]].concat());
    assert_eq!(support::succeeds(blocked), "SigBlk:\t0000000000000000\n", "nothing is held back from a program");
    // A shell's foreground process is interrupted together with the shell.
    let run = |name: &str, script: &str| {
        let mut tool = StartingTestbed::start(name, &["--no-grid"], &["sh", "-c", script]);
        tool.await_line("up");
        tool
    };
    let mut tool = run("alone", "trap : INT; (trap - INT; echo up; exec sleep 1000); echo ended $? >&2");
    tool.signal("-INT", "");
    let (status, error) = tool.ends();
    assert_eq!(status.code(), Some(130), "{error}");
    assert!(error.contains("the program was interrupted; it gets SIGTERM after 5 s"), "{error}");
    assert!(error.contains("ended 130\n"), "{error}");
    // A terminal interrupts the whole group: no process gets the signal twice, and the status is the program's.
    let counts = "n=0; trap 'n=$((n + 1)); echo $n' INT; trap 'exit $n' USR1; echo up; while :; do sleep 0.1; done";
    let mut tool = run("group", counts);
    tool.signal("-INT", "-");
    tool.await_line("1");
    let mut line = String::new();
    BufReader::new(tool.child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("another interrupt ends the program at once"), "{line}");
    let shell = support::workers_of(support::workers_of(support::workers_of(tool.child.id())[0])[0])[0];
    assert!(Command::new("kill").args(["-USR1", &shell.to_string()]).status().unwrap().success());
    assert_eq!(tool.ends().0.code(), Some(1));
    // A program that ignores signals is ended by the second interrupt, or after a while.
    let deaf = "trap '' INT TERM; echo up; while :; do sleep 1; done";
    let mut tool = run("deaf", deaf);
    tool.signal("-INT", "");
    let mut line = String::new();
    BufReader::with_capacity(1, tool.child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("at once by another interrupt"), "{line}");
    tool.signal("-INT", "");
    assert_eq!(tool.ends().0.code(), Some(130));
    let mut tool = run("patient", deaf);
    tool.signal("-INT", "");
    assert_eq!(tool.ends().0.code(), Some(130));
    let mut tool = run("term", "trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done");
    tool.signal("-TERM", "");
    assert_eq!(tool.ends().0.code(), Some(143));
}

#[test]
fn processes_of_a_deployment_end_by_an_interrupt() {
    if !support::has_testbeds(&file("ends-processes.toml", PLATFORM)) {
        return;
    }
    let deployment = "[[process]]\nhost = 'here'\nfunction = 'one'\n[[process]]\nhost = 'there'\nfunction = 'two'\n";
    let deployment = file("ends-deployment.toml", deployment);
    let script = "trap '' INT TERM; case $(hostname) in here) echo up ;; esac; while :; do sleep 1; done";
    for whom in ["", "-"] {
        let mut tool = StartingTestbed::start("processes", &["--quiet", "-d", &deployment], &["sh", "-c", script]);
        tool.await_line("one@here| up");
        tool.signal("-INT", whom);
        assert_eq!(tool.ends().0.code(), Some(130));
    }
}

#[test]
fn an_interrupt_before_it_is_up_ends_it() {
    if !support::has_testbeds(&file("ends-early.toml", PLATFORM)) {
        return;
    }
    for what in ["lock", "spec.json"] {
        let mut tool = StartingTestbed::start("early", &[], &["sh", "-c", "exec sleep 1000"]);
        assert!(tool.has(what));
        tool.signal("-INT", "");
        assert_eq!(tool.ends().0.code(), Some(130), "{what}");
    }
}

#[test]
fn names_of_platform_files_need_not_be_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    if !support::has_testbeds(&file("ends-name.toml", PLATFORM)) {
        return;
    }
    let platform = folder("ends-name").join(OsStr::from_bytes(b"de\xff.toml"));
    std::fs::write(&platform, PLATFORM).unwrap();
    let mut command = gridloom(&["testbed", "run", "--no-grid", "--quiet", "-p"]);
    command.arg(&platform).args(["--", "true"]);
    assert_eq!(status_and_stderr(command), (0, String::new()));
}
