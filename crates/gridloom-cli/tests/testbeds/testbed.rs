//! Testbeds with real namespaces, forwarder and processes. Skipped with a message if this machine allows no user
//! namespaces. The emulation is tested exactly in `gridloom-testbed`, and measured by `gridloom testbed check`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{
    self, copy_executable, file, gridloom, library, process_ended, skipped, status_and_stderr, succeeds, workers_of,
};
use serde_json::Value;

const PLATFORM: &str = "[[host]]\nname = \"here\"\nspeed = \"1Gf\"\n[[host]]\nname = \"there\"\nspeed = \"1Gf\"\n\
    [[link]]\nname = \"wire\"\nbandwidth = \"10MBps\"\nlatency = \"1ms\"\n\
    [[route]]\nfrom = \"here\"\nto = \"there\"\nlinks = [\"wire\"]\n";

fn platform() -> String {
    file(&format!("testbed-{}.toml", std::thread::current().name().unwrap().replace(':', "-")), PLATFORM)
}

fn is_allowed() -> bool {
    support::has_testbeds(&platform())
}

/// A running testbed without a grid, with the processes in it.
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

    /// Sends packets over the link until a number in its report is at least 1 more than `before`.
    fn packets_until(&self, key: &str, before: f64) {
        while self.wire()[key].as_f64().unwrap() < before + 1.0 {
            let address = "echo x > /dev/udp/10.77.0.2/9";
            succeeds(self.ask(&["enter", "here", "--", "bash", "-c", address]));
        }
    }

    /// True if a folder or a control group of it exists.
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
fn linear_algebra_is_offered_if_this_machine_has_it() {
    if !is_allowed() {
        return;
    }
    let run = |arguments: &[&str]| {
        let mut command = gridloom(&["testbed", "run", "-p", &platform()]);
        command.args(arguments).args(["--", env!("CARGO_BIN_EXE_gridloom"), "functions"]);
        let output = command.output().unwrap();
        let printed = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), printed)
    };
    let (is_well, [functions, error]) = run(&[]);
    assert!(is_well, "{error}");
    let has_library = functions.contains("linalg/dgemm");
    let says = "gridloom: testbed: linalg/... is not offered: no BLAS library is found; ";
    assert_eq!(error.contains(says), !has_library, "{functions}{error}");
    let (is_well, [_, error]) = run(&["--functions", "builtin:linalg"]);
    assert_eq!(is_well, has_library, "{error}");
    assert_eq!(error.contains("no library found for builtin:linalg: there is no "), !has_library, "{error}");
    let (_, [functions, error]) = run(&["--functions", &support::idl(), "--library", library()]);
    assert!(functions.contains("cli/plus"), "{error}");
    assert_eq!(functions.contains("linalg/dgemm"), has_library, "{error}");
    if !has_library {
        skipped("in part: no BLAS library is found here");
    }
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
    let told: Value = serde_json::from_str(&succeeds(up.ask(&["restore", "--json", "wire"]))).unwrap();
    assert_eq!(told["done"], "link wire is restored");
    up.packets_until("bytes", up.wire()["bytes"].as_f64().unwrap());
    let call = [env!("CARGO_BIN_EXE_gridloom"), "call", "cli/plus", "1", "2"];
    assert_eq!(succeeds(up.ask(&[&["enter", "here", "--"], &call[..]].concat())), "sum = 3.0\n");
    let (_, error) = status_and_stderr(up.ask(&["cut", "wier"]));
    assert_eq!(error, "gridloom: no route crosses a link 'wier'; there are wire\n");
    let (_, error) = status_and_stderr(up.ask(&["enter", "nowhere", "--", "true"]));
    assert_eq!(error, "gridloom: no host 'nowhere'; there are here, there\n");
    let (_, error) =
        status_and_stderr(gridloom(&["testbed", "up", "--no-grid", "--name", &up.name, "-p", &platform()]));
    assert!(error.contains("is running; choose another --name"), "{error}");
    succeeds(up.ask(&["down"]));
    up.inside.iter().for_each(|pid| process_ended(*pid));
    assert!(!up.has_left_something());
}

/// Returns a testbed with processes of a shell script that reports that it has read which process it is.
fn processes(name: &str, deployment: &str, arguments: &[&str], script: &str) -> Command {
    let deployment = file(&format!("testbed-{name}.toml"), deployment);
    let mut command = gridloom(&["testbed", "run", "--quiet", "-p", &platform(), "-d", &deployment]);
    command.args(arguments).args(["--", "sh", "-c", &format!(": > \"$GRIDLOOM_PROCESS_READY\"\n{script}")]);
    command
}

#[test]
fn processes_of_a_deployment_run_on_their_hosts() {
    if !is_allowed() {
        return;
    }
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    let both = "[[process]]\nhost = 'here'\nfunction = 'one'\n[[process]]\nhost = 'there'\nfunction = 'two'\n\
                start_time = 0.2\n[[process]]\nhost = 'there'\nfunction = 'never'\nstart_time = 0.2\nkill_time = 0.1\n\
                [[process]]\nhost = 'here'\nfunction = 'killed'\nkill_time = 0.1\n";
    // Each process knows its name and the addresses of the others; no deployment names a grid.
    let script = "case \"$GRIDLOOM_PROCESS\" in *'\"killed\"'*) exec sleep 1000 ;; esac\n\
                  echo $(hostname) $GRIDLOOM_TESTBED_HOST $GRIDLOOM_AGENT; \
                  echo \"$GRIDLOOM_PROCESS\" | grep -o '\"addresses\":{[^}]*}' >&2";
    let output = processes("hosts", both, &[], script).output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{error}");
    assert_eq!(sorted(out), ["one@here| here here", "two@there| there there"]);
    let addresses = r#"| "addresses":{"here":"10.77.0.1","there":"10.77.0.2"}"#;
    assert_eq!(sorted(error), ["one@here", "two@there"].map(|name| format!("{name}{addresses}")));
    let (status, error) =
        status_and_stderr(processes("status", both, &[], "case $(hostname) in there) exit 7 ;; esac"));
    assert_eq!((status, error.as_str()), (7, "gridloom: two@there ended with exit status: 7\n"));
    // Processes named like parts of a grid are such parts, unless the command or an argument specifies otherwise.
    let parts = "[[process]]\nhost = 'here'\nfunction = 'agent'\n[[process]]\nhost = 'there'\nfunction = 'server'\n";
    let mixed = format!("{parts}[[process]]\nhost = 'here'\nfunction = 'one'\n");
    let offered = ["--functions", &support::idl(), "--library", library()];
    let call = format!("exec {} call cli/plus 1 2", support::quoted(env!("CARGO_BIN_EXE_gridloom")));
    assert_eq!(succeeds(processes("mixed", &mixed, &offered, &call)), "one@here| sum = 3.0\n");
    let out = succeeds(processes("no-grid", parts, &["--no-grid"], "hostname"));
    assert_eq!(sorted(out), ["agent@here| here", "server@there| there"]);
    let out = succeeds(processes("told", &format!("{parts}arguments = [5]\n"), &[], "hostname"));
    assert_eq!(sorted(out), ["agent@here| here", "server@there| there"]);
    let client = format!("{mixed}[[process]]\nhost = 'here'\nfunction = 'client'\n");
    let (_, error) = status_and_stderr(processes("client", &client, &[], "true"));
    assert!(error.contains("'client' together with processes of the program"), "{error}");
    let nowhere = both.replace("'there'", "'nowhere'");
    let (_, error) = status_and_stderr(processes("nowhere", &nowhere, &[], "true"));
    assert!(error.ends_with("the platform has no host 'nowhere'\n"), "{error}");
    let deployment = file("testbed-up.toml", both);
    let (_, error) = status_and_stderr(gridloom(&["testbed", "up", "-p", &platform(), "-d", &deployment]));
    assert!(error.contains("'one' is a process of a program; 'gridloom testbed run' starts those"), "{error}");
    let inside = [env!("CARGO_BIN_EXE_gridloom"), "deploy", "-d", &deployment, "--", "true"];
    let (_, error) = status_and_stderr(gridloom(
        &[&["testbed", "run", "--no-grid", "--quiet", "-p", &platform(), "--"], &inside[..]].concat(),
    ));
    assert!(error.contains("this is host 'here' of a testbed"), "{error}");
}

#[test]
fn a_host_is_slowed_down_by_its_quota() {
    if !is_allowed() {
        return;
    }
    let up = Up::start("slow");
    let slow = |arguments: &[&str]| status_and_stderr(up.ask(&[&["slow"], arguments].concat()));
    let (_, error) = slow(&["nowhere", "0.5"]);
    assert_eq!(error, "gridloom: no host 'nowhere'; there are here, there\n");
    let (_, error) = slow(&["here", "0.5"]);
    let is_made = |group: &&String| group.contains("/gridloom-testbed-");
    let why = if up.groups.iter().any(|group| is_made(&group)) {
        "has no server whose calls"
    } else {
        "start the testbed with --speeds quota"
    };
    assert!(error.contains(why) && !error.contains("  "), "{error}");
    let (status, error) = slow(&["there", "2"]);
    assert!(status == 2 && error.contains("expected a number above 0, and at most 1"), "{error}");
    // Other groups were created to check whether groups can be created.
    let Some(group) = up.groups.iter().find(is_made).map(Path::new) else {
        let (_, error) = slow(&["there", "0.5"]);
        assert!(error.contains("start the testbed with --speeds quota"), "{error}");
        skipped("in part: no quotas of processor time here");
        return;
    };
    let part = || {
        let read = |name: &str| std::fs::read_to_string(group.join(name));
        let both = match read("cpu.cfs_quota_us") {
            Ok(quota) => format!("{quota} {}", read("cpu.cfs_period_us").unwrap()),
            Err(_) => read("cpu.max").unwrap(),
        };
        let numbers: Vec<f64> = both.split_whitespace().map(|word| word.parse().unwrap()).collect();
        numbers[0] / numbers[1]
    };
    let before = part();
    assert_eq!(succeeds(up.ask(&["slow", "there", "0.25"])), "host there computes at 0.25 times its speed\n");
    assert!((part() / before - 0.25).abs() < 0.01, "{} of {before}", part());
    assert_eq!(succeeds(up.ask(&["slow", "there", "1"])), "host there computes at 1 times its speed\n");
    assert!((part() / before - 1.0).abs() < 0.01, "{} of {before}", part());
}

#[test]
fn profiles_of_links_are_followed_and_others_named() {
    if !is_allowed() {
        return;
    }
    let profiles = "[[profile]]\nlink = 'wire'\nkind = 'bandwidth'\nevents = [[0.2, '5MBps']]\n\
        [[profile]]\nlink = 'wire'\nkind = 'latency'\nevents = [[0.2, '7ms']]\n\
        [[profile]]\nlink = 'wire'\nkind = 'state'\nevents = [[0.4, 0]]\n\
        [[profile]]\nhost = 'here'\nkind = 'state'\nevents = [[1000, 0]]\n\
        [[profile]]\nhost = 'there'\nkind = 'speed'\nevents = [[1000, 0.5]]\n";
    let platform = file("testbed-profiles.toml", &format!("{PLATFORM}{profiles}"));
    let name = format!("test-profiles-{}", std::process::id());
    let mut command = gridloom(&["testbed", "up", "--no-grid", "--name", &name, "-p", &platform]);
    let tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut up = Up { name, tool, keeper: 0, inside: Vec::new(), groups: Vec::new() };
    std::io::Read::read_exact(up.tool.stdout.as_mut().unwrap(), &mut [0; 7]).unwrap();
    while up.wire()["is_up"] == true {}
    let wire = up.wire();
    assert_eq!((wire["bandwidth"].as_f64(), wire["latency_s"].as_f64()), (Some(5e6), Some(0.007)));
    let shown: Value = serde_json::from_str(&succeeds(up.ask(&["show", "--json"]))).unwrap();
    assert!(shown["traffic"]["elapsed_s"].as_f64().unwrap() > 0.4, "{shown}");
    let (_, error) = status_and_stderr(up.ask(&["slow", "here", "0.5"]));
    assert!(error.contains("start the testbed with a grid (without --no-grid) and with --speeds quota"), "{error}");
    succeeds(up.ask(&["down"]));
    let mut error = String::new();
    std::io::Read::read_to_string(up.tool.stderr.as_mut().unwrap(), &mut error).unwrap();
    let named = "these profiles of the platform are not followed: state of host 'here', speed of host 'there'";
    assert!(error.contains(named), "{error}");
}

#[test]
fn a_platform_that_is_much_too_wide_is_refused_unless_it_is_wanted() {
    if !is_allowed() {
        return;
    }
    let wide = file("testbed-wide.toml", &PLATFORM.replace("10MBps", "10000Gbps"));
    let run =
        |more: &[&str]| status_and_stderr(gridloom(&[&["testbed", "run", "--no-grid", "-p", &wide], more].concat()));
    let (status, error) = run(&["--", "true"]);
    assert!(status == 1 && error.contains("the widest route between two hosts carries 1250000 MB/s"), "{error}");
    let fits: f64 = error.split("--slower ").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap();
    assert!(fits < 1e6 && error.contains("--overload"), "{error}");
    let run =
        |more: &[&str]| gridloom(&[&["testbed", "run", "--no-grid", "-p", &wide], more].concat()).output().unwrap();
    // Each start measures the machine, which may be much busier by now.
    assert!(run(&["--slower", "1000000", "--", "true"]).status.success());
    let output = run(&["--overload", "--", "true"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && error.contains("warning: the widest route"), "{error}");
}

#[test]
fn nothing_is_left_whichever_process_is_killed() {
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
            // Command and supervisor were killed: the next testbed removes the folder.
            assert!(is_allowed());
        }
        assert!(!up.has_left_something(), "{name}");
    }
}

#[test]
fn no_privilege_is_needed() {
    let is_root = std::fs::write("/proc/self/oom_score_adj", "-1").is_ok();
    if !is_root || !is_allowed() || Command::new("setpriv").arg("--version").output().is_err() {
        skipped("only root can become another user, with setpriv");
        return;
    }
    // In a folder that another user can read.
    let open = std::env::temp_dir().join(format!("gridloom-test-{}", std::process::id()));
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
    let program = open.join("gridloom");
    copy_executable(Path::new(env!("CARGO_BIN_EXE_gridloom")), &program);
    std::fs::write(open.join("platform.toml"), PLATFORM).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    command.args(["testbed", "run", "--no-grid", "--quiet", "-p"]).arg(open.join("platform.toml"));
    command.args(["--", "sh", "-c", "test $(hostname) = here && test $(id -u) = 65534"]);
    let output = command.current_dir(&open).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    std::fs::remove_dir_all(&open).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("this machine does not let this user have") {
        skipped(error.trim_end());
        return;
    }
    assert!(output.status.success(), "{error}");
}

#[test]
fn invalid_input_is_rejected() {
    let (code, error) = status_and_stderr(gridloom(&["testbed", "show", "--name", "nobody-has-this"]));
    assert_eq!(code, 1);
    assert!(error.contains("running"), "{error}");
    let platform = platform();
    let (_, error) = status_and_stderr(gridloom(&["testbed", "up", "--name", "../x", "-p", &platform]));
    assert!(error.contains("is not a valid testbed name"), "{error}");
    let many: String = (0..65).map(|i| format!("[[host]]\nname = \"h{i}\"\nspeed = \"1Gf\"\n")).collect();
    let many = file("many.toml", &many);
    let (_, error) = status_and_stderr(gridloom(&["testbed", "run", "--no-grid", "-p", &many, "--", "true"]));
    assert!(error.contains("has 65 hosts; a testbed on one machine has at most 64: simulate it instead"), "{error}");
}
