//! Testbeds with real namespaces, forwarder and processes. Skipped, with a message, where this machine allows no user
//! namespaces. What they emulate is tested exactly in `gridloom-testbed`, and measured by `gridloom testbed check`.

#[allow(dead_code)]
mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{file, gridloom, library, process_ended, said, succeeds, workers_of};

const PLATFORM: &str = "[[host]]\nname = \"here\"\nspeed = \"1Gf\"\n[[host]]\nname = \"there\"\nspeed = \"1Gf\"\n\
    [[link]]\nname = \"wire\"\nbandwidth = \"10MBps\"\nlatency = \"1ms\"\n\
    [[route]]\nfrom = \"here\"\nto = \"there\"\nlinks = [\"wire\"]\n";

fn platform() -> String {
    file(&format!("testbed-{}.toml", std::thread::current().name().unwrap().replace(':', "-")), PLATFORM)
}

/// Whether this machine lets its users have testbeds; says so if not.
fn is_allowed() -> bool {
    let output = gridloom(&["testbed", "run", "--no-grid", "--quiet", "-p", &platform(), "--", "true"]).output();
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("this machine does not let this user have") {
        eprintln!("skipped: {error}");
        return false;
    }
    assert!(output.status.success(), "{error}");
    true
}

/// A testbed without a grid that is up, with the processes in it.
struct Up {
    name: String,
    tool: Child,
    keeper: u32,
    inside: Vec<u32>,
    /// Its control groups.
    groups: Vec<String>,
}

impl Up {
    fn start(name: &str) -> Up {
        let name = format!("test-{name}-{}", std::process::id());
        let mut command = gridloom(&["testbed", "up", "--name", &name, "--functions", &support::idl()]);
        command.args(["--library", library(), "-p", &platform()]);
        let mut tool = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 7];
        std::io::Read::read_exact(tool.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert_eq!(&line, b"testbed");
        let keeper = workers_of(tool.id())[0];
        let first = workers_of(keeper);
        let mut inside = first.clone();
        inside.extend(first.iter().flat_map(|pid| workers_of(*pid)));
        // The first process, agent and server.
        assert!(inside.len() >= 3, "{inside:?}");
        let mut up = Up { name, tool, keeper, inside, groups: Vec::new() };
        let groups = std::fs::read_to_string(up.folder().join("groups")).unwrap();
        up.groups = groups.lines().map(String::from).collect();
        up
    }

    fn ask(&self, arguments: &[&str]) -> Command {
        let mut command = gridloom(&["testbed"]);
        command.arg(arguments[0]).args(["--name", &self.name]).args(&arguments[1..]);
        command
    }

    fn wire(&self) -> Value {
        let shown: Value = serde_json::from_str(&succeeds(self.ask(&["show", "--json"]))).unwrap();
        shown["links"][0].clone()
    }

    /// Waits until a number of the link's report is at least 1 more than `before`, sending packets over it.
    fn packets_until(&self, key: &str, before: f64) {
        while self.wire()[key].as_f64().unwrap() < before + 1.0 {
            let address = "echo x > /dev/udp/10.77.0.2/9";
            succeeds(self.ask(&["enter", "here", "--", "bash", "-c", address]));
        }
    }

    /// Whether a folder or a control group of it is there.
    fn has_left_something(&self) -> bool {
        self.folder().exists() || self.groups.iter().any(|group| Path::new(group).exists())
    }

    fn folder(&self) -> PathBuf {
        let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
        let user = Command::new("id").arg("-u").output().unwrap();
        let user = String::from_utf8(user.stdout).unwrap();
        base.unwrap_or_else(std::env::temp_dir).join(format!("gridloom-testbed-{}", user.trim())).join(&self.name)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.tool.kill();
        let _ = self.tool.wait();
    }
}

#[test]
fn programs_run_on_the_testbeds_grid() {
    if !is_allowed() {
        return;
    }
    let run = |arguments: &[&str], program: &[&str]| {
        let mut command = gridloom(&["testbed", "run", "--functions", &support::idl(), "--library", library()]);
        command.args(["-p", &platform()]).args(arguments).arg("--").args(program);
        command
    };
    let program = env!("CARGO_BIN_EXE_gridloom");
    let output = run(&["--json"], &[program, "call", "cli/scale", "2", "[1, 2]"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let (answer, report) = printed.split_once('\n').unwrap();
    assert_eq!(answer, "y = [2.0,4.0]");
    let report: Value = serde_json::from_str(report).unwrap();
    assert!(report["links"][0]["bytes"].as_f64().unwrap() > 1000.0, "{report}");
    assert_eq!(run(&["--quiet"], &["sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
    let names = "test $(hostname) = here && grep -q '10.77.0.2 there' /etc/hosts && test $$ -lt 100";
    assert_eq!(run(&["--quiet"], &["sh", "-c", names]).status().unwrap().code(), Some(0));
}

#[test]
fn links_are_cut_and_restored_while_it_runs() {
    if !is_allowed() {
        return;
    }
    let up = Up::start("cut");
    assert_eq!(succeeds(up.ask(&["cut", "wire"])), "link wire is cut\n");
    assert_eq!(up.wire()["is_up"], false);
    up.packets_until("dropped_cut", up.wire()["dropped_cut"].as_f64().unwrap());
    assert_eq!(succeeds(up.ask(&["restore", "wire"])), "link wire is restored\n");
    up.packets_until("bytes", up.wire()["bytes"].as_f64().unwrap());
    let call = [env!("CARGO_BIN_EXE_gridloom"), "call", "cli/plus", "1", "2"];
    assert_eq!(succeeds(up.ask(&[&["enter", "here", "--"], &call[..]].concat())), "sum = 3.0\n");
    let (_, error) = said(up.ask(&["cut", "wier"]));
    assert_eq!(error, "gridloom: no route crosses a link 'wier'; there are wire\n");
    let (_, error) = said(up.ask(&["enter", "nowhere", "--", "true"]));
    assert_eq!(error, "gridloom: no host 'nowhere'; there are here, there\n");
    let (_, error) = said(gridloom(&["testbed", "up", "--no-grid", "--name", &up.name, "-p", &platform()]));
    assert!(error.contains("is running; choose another --name"), "{error}");
    succeeds(up.ask(&["down"]));
    up.inside.iter().for_each(|pid| process_ended(*pid));
    assert!(!up.has_left_something());
}

#[test]
fn nothing_is_left_whoever_is_killed() {
    if !is_allowed() {
        return;
    }
    for (name, victim) in [("tool", 0), ("keeper", 1), ("first", 2), ("both", 3)] {
        let mut up = Up::start(name);
        let pids = match victim {
            0 => vec![up.tool.id()],
            1 => vec![up.keeper],
            2 => vec![up.inside[0]],
            _ => vec![up.tool.id(), up.keeper],
        };
        let mut kill = Command::new("kill");
        kill.arg("-KILL").args(pids.iter().map(u32::to_string));
        assert!(kill.status().unwrap().success());
        up.tool.wait().unwrap();
        up.inside.iter().for_each(|pid| process_ended(*pid));
        process_ended(up.keeper);
        if victim == 3 {
            // Nobody was left to remove what it was kept in; the next testbed does.
            assert!(is_allowed());
        }
        assert!(!up.has_left_something(), "{name}");
    }
}

#[test]
fn no_privilege_is_needed() {
    let is_root = std::fs::write("/proc/self/oom_score_adj", "-1").is_ok();
    if !is_root || !is_allowed() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: not root, who could become somebody else, or no setpriv");
        return;
    }
    // Where somebody else can read it.
    let open = std::env::temp_dir().join(format!("gridloom-test-{}", std::process::id()));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
    let program = open.join("gridloom");
    std::fs::copy(env!("CARGO_BIN_EXE_gridloom"), &program).unwrap();
    std::fs::write(open.join("platform.toml"), PLATFORM).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    command.args(["testbed", "run", "--no-grid", "--quiet", "-p"]).arg(open.join("platform.toml"));
    command.args(["--", "sh", "-c", "test $(hostname) = here && test $(id -u) = 65534"]);
    let output = command.current_dir(&open).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    std::fs::remove_dir_all(&open).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("this machine does not let this user have") {
        eprintln!("skipped: {error}");
        return;
    }
    assert!(output.status.success(), "{error}");
}

#[test]
fn what_cannot_be_is_refused() {
    let (code, error) = said(gridloom(&["testbed", "show", "--name", "nobody-has-this"]));
    assert_eq!(code, 1);
    assert!(error.contains("running"), "{error}");
    let platform = platform();
    let (_, error) = said(gridloom(&["testbed", "up", "--name", "../x", "-p", &platform]));
    assert!(error.contains("is no name for a testbed"), "{error}");
    let many: String = (0..65).map(|i| format!("[[host]]\nname = \"h{i}\"\nspeed = \"1Gf\"\n")).collect();
    let many = file("many.toml", &many);
    let (_, error) = said(gridloom(&["testbed", "run", "--no-grid", "-p", &many, "--", "true"]));
    assert!(error.contains("has 65 hosts; a testbed on one machine has at most 64: simulate it instead"), "{error}");
}
