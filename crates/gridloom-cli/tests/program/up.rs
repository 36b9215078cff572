//! `gridloom up`, `status`, `drain` and `down`, with a stub in place of `ssh`: its hosts are folders of this machine.
//! The same tests with a real `sshd` are in `up_ssh`.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::bounds::{ends, output_of, until, until_true};
use crate::support::{
    file, folder, gridloom, idl, library, process_ended, quoted, skipped, status_and_stderr, succeeds, write_executable,
};

/// A part of each private key.
const PRIVATE: &str = "PRIVATE KEY";

/// A user with a file of hosts. Everything that it has started ends when it is dropped.
pub struct Lab {
    pub folder: PathBuf,
    /// The command used as `ssh`.
    pub ssh: String,
    /// Its hosts, if they are processes: needed until the last part of the grid has ended.
    pub hosts: Vec<Box<dyn std::any::Any>>,
    /// Environment variables of its commands.
    pub variables: Vec<(&'static str, String)>,
}

impl Lab {
    pub fn new(name: &str, hosts: &str) -> Lab {
        let folder = folder("up").join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ssh = folder.join("ssh");
        let program = Path::new(env!("CARGO_BIN_EXE_gridloom")).parent().unwrap();
        write_executable(
            &ssh,
            &STUB.replace("FOLDER", &quoted(path(&folder))).replace("PROGRAM", &quoted(path(program))),
        );
        let lab = Lab { ssh: quoted(path(&ssh)), folder, hosts: Vec::new(), variables: Vec::new() };
        lab.write(hosts);
        lab
    }

    /// Writes the file of hosts. `OFFER` in it is replaced by the functions of the tests.
    pub fn write(&self, hosts: &str) {
        let offer = format!("{} --library {} --models none", quoted(&idl()), quoted(library()));
        std::fs::write(self.folder.join("grid.toml"), hosts.replace("OFFER", &offer)).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gridloom(arguments);
        command.env("XDG_STATE_HOME", self.folder.join("mine"));
        command.envs(self.variables.iter().cloned());
        command
    }

    pub fn up(&self) -> Command {
        let mut command = self.command(&["up", path(&self.folder.join("grid.toml")), "--ssh", &self.ssh]);
        command.current_dir("/");
        command
    }

    /// Returns the parts that `status` shows, by name, and its exit status.
    pub fn status(&self) -> (Value, i32) {
        let output = output_of(&mut self.command(&["status", "--json"]));
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        let parts = shown["hosts"].as_array().unwrap().iter().flat_map(|host| host["parts"].as_array().unwrap());
        let parts = parts.map(|part| (part["part"].as_str().unwrap().to_string(), part.clone())).collect();
        (Value::Object(parts), output.status.code().unwrap())
    }

    /// Returns the lines of JSON that a command prints, and its exit status.
    pub fn json(&self, mut command: Command) -> (Vec<Value>, i32) {
        let output = output_of(command.arg("--json"));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, output.status.code().unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.command(&["down", "--grace", "1"]).output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn pid(part: &Value) -> u32 {
    u32::try_from(part["pid"].as_u64().unwrap()).unwrap()
}

/// Returns the files of a folder that contain a text.
fn found(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(found(&path, text));
        } else if std::fs::read(&path).unwrap().windows(text.len()).any(|bytes| bytes == text.as_bytes()) {
            files.push(path);
        }
    }
    files
}

const STUB: &str = r#"#!/bin/sh
echo "$@" >> FOLDER/words
while [ "$1" != -- ]; do shift; done
host=$2 command=$3
unset GRIDLOOM_KEYS GRIDLOOM_AGENT
export PATH=PROGRAM:"$PATH" HOME=FOLDER/hosts/$host
export XDG_STATE_HOME=$HOME/state
mkdir -p "$HOME"; cd "$HOME"
case $host in
silent) echo "ssh: connect to host silent port 22: Connection timed out" >&2; exit 255;;
locked) echo "ada@locked: Permission denied (publickey)." >&2; exit 255;;
bare|fresh) PATH=/usr/bin:/bin;;
cutprogram) case $command in *wc*) test -e cut || { touch cut; command="head -c 4000 | { $command; }"; };; esac;;
cut) test -e cut || { touch cut; command="head -c 4000 | { $command; }"; };;
old) command="echo '{\"gridloom_host\":\"0.0.1\",\"result\":{\"Err\":{\"Version\":\"0.0.1\"}}}'";;
full) exec unshare --map-root-user --mount sh -c "mkdir -p state; mount -t tmpfs -o size=16k none state && $command";;
esac
exec sh -c "$command"
"#;

/// Returns a host of the file, at the stub's host of that name.
pub fn host(name: &str, properties: &str) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\nspeed = \"1Gf\"\nproperties = {{ address = \"127.0.0.1\", ssh = \"{name}\", {properties} }}\n"
    )
}

pub const HEAD: &str = r#"role = "agent", agent_listen = "127.0.0.1:0""#;

fn three() -> String {
    let server = r#"role = "server", serve = "OFFER", slots = 2"#;
    [host("head", HEAD), host("a", server), host("b", server)].concat()
}

#[test]
fn a_file_of_hosts_becomes_a_grid_and_ends_again() {
    let lab = Lab::new("whole", &three());
    let (lines, code) = lab.json(lab.up());
    assert_eq!((code, lines.len()), (0, 4), "{lines:?}");
    let agent = lines[3]["agent"].as_str().unwrap();
    let (parts, code) = lab.status();
    assert_eq!(code, 0, "{parts}");
    for part in ["agent", "server-a", "server-b"] {
        assert_eq!((&parts[part]["state"], &parts[part]["registered"]), (&json!("runs"), &json!(true)), "{parts}");
        let pid = pid(&parts[part]);
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(words.contains("--json") && !words.contains(PRIVATE), "{words}");
    }
    let called = succeeds(lab.command(&["call", "--agent", agent, "cli/scale", "2", "[1, 2]"]));
    assert_eq!(called, "y = [2.0,4.0]\n");
    assert_eq!(found(&lab.folder, PRIVATE), Vec::<PathBuf>::new());
    let (_, why) = status_and_stderr(lab.command(&["up", "other/grid.toml"]));
    assert!(why.contains("other/grid.toml"), "{why}");
    let ended = succeeds(lab.command(&["down"]));
    assert_eq!(ended, "head: ended agent\na: ended server-a\nb: ended server-b\n");
    for part in ["agent", "server-a", "server-b"] {
        process_ended(pid(&parts[part]));
    }
    assert_eq!(
        status_and_stderr(lab.command(&["status"])),
        (1, "gridloom: no grid was started here; 'gridloom up FILE' starts one\n".into())
    );
}

#[test]
fn hosts_that_fail_are_named_and_the_others_continue() {
    let server = r#"role = "server", serve = "OFFER""#;
    let names = ["silent", "locked", "bare", "old", "full"];
    let failing: String = names.iter().map(|name| host(name, server)).collect();
    let missing = host("missing", r#"role = "server", serve = "missing.idl""#);
    let lab = Lab::new("failing", &[three(), failing, missing].concat());
    let (lines, code) = lab.json(lab.up());
    assert_eq!(code, 3, "{lines:?}");
    let of = |name: &str| lines.iter().find(|line| line["host"] == name).unwrap();
    assert_eq!((of("a")["parts"].clone(), of("b")["parts"].clone()), (json!(["server-a"]), json!(["server-b"])));
    let expected = [
        ("silent", "it does not answer: ssh: connect to host silent port 22: Connection timed out", "'jump'"),
        ("locked", "it refuses the key: ada@locked: Permission denied", "ssh-copy-id"),
        ("bare", "there is no program 'gridloom' on its path", "send = true"),
        ("old", "gridloom has version 0.0.1 there, and", "install the same version"),
        ("missing", "'server-missing' did not start: gridloom: missing.idl", "read its log there"),
    ];
    for (name, why, remedy) in expected {
        let line = of(name);
        assert!(line["error"].as_str().unwrap().starts_with(why), "{line}");
        assert!(line["remedy"].as_str().unwrap().contains(remedy) && line["tried"].is_string(), "{line}");
    }
    match of("full")["error"].as_str().unwrap() {
        why if why.starts_with("no room: its log") => {}
        why if why.contains("unshare") => {
            skipped("a full disk: this machine does not let this user mount a file system")
        }
        why => panic!("{why}"),
    }
    assert_eq!(
        (lines.last().unwrap()["servers"].clone(), lines.last().unwrap()["failed"].clone()),
        (json!(2), json!(6))
    );
    // Nothing can run on the hosts that failed, so the record of the grid need not be kept for them.
    succeeds(lab.command(&["down"]));
    assert_eq!(status_and_stderr(lab.command(&["down"])).0, 1);
}

/// `hold` waits until somebody opens the other end of a pipe; `server` returns the process number of its server.
const HOLDING: &str = r#"Module drain;
Globals { #include <stdio.h>
#include <unistd.h> }
Define hold(IN string pipe, OUT int *server) { FILE *end = fopen(pipe, "r"); if (end) fclose(end); *server = getppid(); }
Define server(OUT int *server) { *server = getppid(); }
"#;

/// Lets calls of `hold` return.
pub fn let_go(pipe: &Path) {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    until_true("a call holds the pipe", || File::options().write(true).custom_flags(flags).open(pipe).is_ok());
}

/// Returns the server that runs a call, once one does.
fn holder(lab: &Lab, agent: &str) -> String {
    until("a call runs", || {
        let shown = succeeds(lab.command(&["calls", "--agent", agent, "--json"]));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let running = shown["calls"].as_array().unwrap().iter().find(|call| call["stage"] == "running")?;
        Some(running["server"].as_str().unwrap().to_string())
    })
}

#[test]
fn a_drained_server_finishes_what_it_has_and_others_get_the_rest() {
    let server =
        format!(r#"role = "server", slots = 2, serve = "{} --models none""#, quoted(&file("drain.idl", HOLDING)));
    let lab = Lab::new("drain", &[host("head", HEAD), host("a", &server), host("b", &server)].concat());
    let (lines, _) = lab.json(lab.up());
    let agent = lines.last().unwrap()["agent"].as_str().unwrap().to_string();
    let call = |words: &[&str]| lab.command(&[&["call", "--agent", &agent, "--json"], words].concat());
    let pipe = lab.folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let held = call(&["drain/hold", path(&pipe)]).stdout(Stdio::piped()).spawn().unwrap();
    let holder = holder(&lab, &agent);
    let (part, other) = (format!("server-{holder}"), if holder == "a" { "server-b" } else { "server-a" });
    let (before, _) = lab.status();
    let (code, why) = status_and_stderr(lab.command(&["drain", &holder, "--wait", "0"]));
    assert!(code == 3 && why.contains("still drains after 0 s"), "{why}");
    let (parts, code) = lab.status();
    assert_eq!((code, &parts[&part]["state"], &parts[other]["state"]), (3, &json!("drains"), &json!("runs")));
    // The agent notifies its clients a little later; each program requests the state again.
    let elsewhere = pid(&before[other]);
    let is_elsewhere = || succeeds(call(&["drain/server"])) == format!("{{\"results\":{{\"server\":{elsewhere}}}}}\n");
    until_true("calls go to the other server", is_elsewhere);
    for _ in 0..5 {
        assert_eq!(succeeds(call(&["drain/server"])), format!("{{\"results\":{{\"server\":{elsewhere}}}}}\n"));
    }
    let_go(&pipe);
    let held = String::from_utf8(ends("the call that was held", held).stdout).unwrap();
    assert_eq!(held, format!("{{\"results\":{{\"server\":{}}}}}\n", pid(&before[&part])));
    assert_eq!(succeeds(lab.command(&["drain", &holder])), format!("{holder}: ended {part}\n"));
    process_ended(pid(&before[&part]));
    let (parts, code) = lab.status();
    assert_eq!((code, parts.as_object().unwrap().len()), (0, 2), "{parts}");
    let (code, why) = status_and_stderr(lab.command(&["drain", "head"]));
    assert!(code == 1 && why.contains("has the agent and no server"), "{why}");
    succeeds(lab.up());
    assert_eq!(lab.status().0.as_object().unwrap().len(), 3);
}

#[test]
fn a_server_that_was_started_again_while_another_drains_is_not_forgotten() {
    let server =
        format!(r#"role = "server", slots = 2, serve = "{} --models none""#, quoted(&file("drain.idl", HOLDING)));
    let lab = Lab::new("drain-two", &[host("head", HEAD), host("a", &server), host("b", &server)].concat());
    let (lines, _) = lab.json(lab.up());
    let agent = lines.last().unwrap()["agent"].as_str().unwrap().to_string();
    let pipe = lab.folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut held = lab.command(&["call", "--agent", &agent, "drain/hold", path(&pipe)]);
    let held = held.stdout(Stdio::null()).spawn().unwrap();
    let (part, other) = if holder(&lab, &agent) == "a" { ("server-a", "server-b") } else { ("server-b", "server-a") };
    let drain = lab.command(&["drain", "a", "b"]).stdout(Stdio::null()).spawn().unwrap();
    until_true("the server that has no call ends", || lab.status().0[other]["state"] == "ended");
    let (lines, code) = lab.json(lab.up());
    let drains =
        |line: &Value| line["error"].as_str().is_some_and(|why| why.contains("start it again when it has ended"));
    assert!(code == 3 && lines.iter().any(drains), "{lines:?}");
    let_go(&pipe);
    assert!(ends("the call that was held", held).status.success() && ends("drain", drain).status.success());
    let (parts, code) = lab.status();
    assert_eq!((code, &parts[other]["state"], &parts[part]), (0, &json!("runs"), &Value::Null), "{parts}");
}

#[test]
fn a_server_that_does_not_drain_in_time_is_ended_on_request() {
    let server = format!(r#"role = "server", serve = "{} --models none""#, quoted(&file("drain.idl", HOLDING)));
    let lab = Lab::new("now", &[host("head", HEAD), host("a", &server)].concat());
    let (lines, _) = lab.json(lab.up());
    let agent = lines.last().unwrap()["agent"].as_str().unwrap().to_string();
    let pipe = lab.folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut held = lab.command(&["call", "--agent", &agent, "drain/hold", path(&pipe)]);
    let mut held = held.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(holder(&lab, &agent), "a");
    assert_eq!(succeeds(lab.command(&["drain", "a", "--wait", "0", "--now"])), "a: ended server-a\n");
    let _ = held.kill();
    let _ = held.wait();
}

#[test]
fn a_host_that_has_gone_for_good_is_forgotten() {
    let lab = Lab::new("gone", &three());
    succeeds(lab.up());
    // Its address is on another machine, which does not answer.
    let known = lab.folder.join("mine/gridloom/up/grid.json");
    let text = std::fs::read_to_string(&known).unwrap();
    std::fs::write(&known, text.replace("\"destination\": \"b\"", "\"destination\": \"silent\"")).unwrap();
    let (code, why) = status_and_stderr(lab.command(&["down", "--forget", "c"]));
    assert!(code == 1 && why.contains("has no host 'c'; it has: head, a, b"), "{why}");
    assert_eq!(succeeds(lab.command(&["down", "--forget", "b"])), "head: ended agent\na: ended server-a\n");
    assert_eq!(status_and_stderr(lab.command(&["down"])).0, 1);
    // This process is alive: the test ends it.
    let record = std::fs::read_to_string(lab.folder.join("hosts/b/state/gridloom/host/grid/server-b.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let left = u32::try_from(record["process"]["pid"].as_u64().unwrap()).unwrap();
    assert!(Command::new("kill").arg(left.to_string()).status().unwrap().success());
    process_ended(left);
}

#[test]
fn without_its_agent_nothing_is_started() {
    let lab = Lab::new("headless", &three().replace("head", "locked"));
    let (code, why) = status_and_stderr(lab.up());
    assert_eq!(code, 1);
    assert!(why.contains("host 'locked': it refuses the key") && why.contains("no server was started"), "{why}");
    assert!(!lab.folder.join("hosts/a").exists());
    assert_eq!(status_and_stderr(lab.command(&["down"])).0, 1);
}

#[test]
fn what_runs_stays_and_what_has_ended_starts_again() {
    let lab = Lab::new("again", &three());
    succeeds(lab.up());
    let (before, _) = lab.status();
    let killed = pid(&before["server-a"]);
    assert!(Command::new("kill").args(["-9", &killed.to_string()]).status().unwrap().success());
    process_ended(killed);
    let (parts, code) = lab.status();
    assert_eq!((code, &parts["server-a"]["state"], &parts["server-a"]["pid"]), (3, &json!("ended"), &Value::Null));
    succeeds(lab.up());
    let (after, code) = lab.status();
    assert_eq!(code, 0, "{after}");
    for part in ["agent", "server-b"] {
        assert_eq!(before[part]["pid"], after[part]["pid"], "{part}");
    }
    assert_ne!(before["server-a"]["pid"], after["server-a"]["pid"]);
}

/// This holds although the file leaves the port open, and although another agent may use it meanwhile: servers and
/// programs know the agent by its port.
#[test]
fn parts_that_are_stopped_do_not_count_as_running() {
    let lab = Lab::new("stopped", &three());
    succeeds(lab.up());
    let (before, _) = lab.status();
    for (part, code) in [("agent", 1), ("server-a", 3)] {
        let pid = pid(&before[part]).to_string();
        let signal = |signal: &str| assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        signal("-STOP");
        let output = output_of(&mut lab.up());
        signal("-CONT");
        let why = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{why}");
        assert!(why.contains(&format!("'{part}' runs, but does not answer: process {pid} is stopped")), "{why}");
    }
    succeeds(lab.up());
    assert_eq!(lab.status().0, before, "no part was restarted");
}

#[test]
fn properties_without_effect_are_rejected() {
    let lab = Lab::new("effect", &three());
    for (wrong, why) in [
        ("serve = \"OFFER\"", "'serve' has no effect without a server: add role = \"server\""),
        ("agent_listen = \"127.0.0.1:0\"", "'agent_listen' has no effect on a host without the agent"),
        ("sreve = \"OFFER\"", "there is no property 'sreve'; did you mean 'serve'?"),
    ] {
        lab.write(&format!("{}\n[[host]]\nname = \"idle\"\nspeed = \"1Gf\"\nproperties = {{ {wrong} }}\n", three()));
        let (code, error) = status_and_stderr(lab.up());
        assert!(code == 1 && error.contains("host 'idle'") && error.contains(why), "{error}");
    }
}

#[test]
fn properties_of_the_user_may_have_any_name() {
    let lab = Lab::new("own-properties", &three());
    let own = "mode = \"fast\", cost = \"2\", zone = \"b\", rack = \"7\", cores = \"4\", slot = \"3\"";
    lab.write(&format!("{}\n[[host]]\nname = \"idle\"\nspeed = \"1Gf\"\nproperties = {{ {own} }}\n", three()));
    let up = output_of(&mut lab.up());
    let output = String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success(), "{output}");
    let warned: Vec<&str> = output.lines().filter(|line| line.contains("did you mean")).collect();
    assert!(
        matches!(warned[..], [line] if line.contains("'slot' is not a property") && line.contains("'slots'")),
        "{output}"
    );
}

#[test]
fn an_agent_that_starts_again_is_where_it_was() {
    let lab = Lab::new("agent-again", &three());
    succeeds(lab.up());
    let (before, _) = lab.status();
    let agent = succeeds(lab.command(&["status", "--agent"]));
    assert!(Command::new("kill").arg(pid(&before["agent"]).to_string()).status().unwrap().success());
    process_ended(pid(&before["agent"]));
    succeeds(lab.up());
    assert_eq!(succeeds(lab.command(&["status", "--agent"])), agent);
    // The servers connect to it again.
    until_true("all parts run and are registered", || lab.status().1 == 0);
    let (after, _) = lab.status();
    assert_eq!((&after["server-a"], &after["server-b"]), (&before["server-a"], &before["server-b"]));
}

#[test]
fn servers_restart_one_after_the_other_until_one_fails() {
    let lab = Lab::new("restart", &three());
    succeeds(lab.up());
    let restart = || {
        let mut command = lab.up();
        command.arg("--restart");
        command
    };
    let pids = |parts: &Value| ["agent", "server-a", "server-b"].map(|part| parts[part]["pid"].as_u64());
    let (before, _) = lab.status();
    let (lines, code) = lab.json(restart());
    let hosts: Vec<&Value> = lines.iter().map(|line| &line["host"]).take(3).collect();
    assert_eq!((code, hosts), (0, vec![&json!("head"), &json!("a"), &json!("b")]));
    let (after, code) = lab.status();
    let ([agent, a, b], [agent_after, a_after, b_after]) = (pids(&before), pids(&after));
    assert!(code == 0 && agent == agent_after && a != a_after && b != b_after, "{before} {after}");
    lab.write(&three().replace("OFFER", "missing.idl"));
    let (lines, code) = lab.json(restart());
    assert!(code == 3 && lines[1]["host"] == "a" && lines[1]["error"].is_string(), "{lines:?}");
    let [_, a_left, b_left] = pids(&lab.status().0);
    assert_eq!((a_left, b_left), (None, b_after));
}

#[test]
fn another_users_grid_of_the_same_name_is_left_alone() {
    let lab = Lab::new("two", &three());
    succeeds(lab.up());
    let (parts, _) = lab.status();
    let other = || {
        let mut command = lab.up();
        command.env("XDG_STATE_HOME", lab.folder.join("other"));
        command
    };
    let (code, why) = status_and_stderr(other());
    assert!(code == 1 && why.contains("another grid of that name runs 'agent' here"), "{why}");
    let mut down = lab.command(&["down"]);
    down.env("XDG_STATE_HOME", lab.folder.join("other"));
    let (code, why) = status_and_stderr(down);
    assert!(code == 3 && why.contains("choose another --name"), "{why}");
    assert_eq!(lab.status(), (parts, 0));
}

#[test]
fn a_host_without_gridloom_gets_a_copy() {
    let lab =
        Lab::new("copied", &[three(), host("fresh", r#"role = "server", serve = "OFFER", send = true"#)].concat());
    succeeds(lab.up());
    let (parts, code) = lab.status();
    assert_eq!(code, 0, "{parts}");
    // Only root may follow /proc/PID/exe of a process that hides its memory.
    let words = std::fs::read(format!("/proc/{}/cmdline", pid(&parts["server-fresh"]))).unwrap();
    let program = PathBuf::from(OsStr::from_bytes(words.split(|byte| *byte == 0).next().unwrap()));
    let bin = lab.folder.join("hosts/fresh/.cache/gridloom/bin");
    assert!(program.starts_with(&bin), "{}", program.display());
    // The second time nothing is copied, and of the other copies there the last two are kept.
    for old in 1..=4 {
        std::fs::write(bin.join(format!("gridloom-0.0.{old}-0")), "").unwrap();
    }
    succeeds(lab.up());
    let names = std::fs::read_dir(&bin).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("gridloom-")).count(), 3);
    assert!(program.exists());
    // The copy of a new version does not exist yet: each command sends it.
    for command in [&["status"][..], &["drain", "fresh"], &["down"]] {
        std::fs::remove_dir_all(&bin).unwrap();
        succeeds(lab.command(command));
        if command[0] == "drain" {
            succeeds(lab.up());
        }
    }
    succeeds(lab.up());
    std::fs::remove_dir_all(&bin).unwrap();
    let mut restart = lab.up();
    restart.arg("--restart");
    succeeds(restart);
    assert_eq!(lab.status().1, 0);
}

#[test]
fn a_copy_that_was_cut_short_is_sent_again() {
    let lab = Lab::new(
        "cut",
        &[host("head", HEAD), host("cutprogram", r#"role = "server", serve = "OFFER", send = true"#)].concat(),
    );
    let (lines, code) = lab.json(lab.up());
    assert!(code == 3 && lines[1]["host"] == "cutprogram" && lines[1]["error"].is_string(), "{lines:?}");
    succeeds(lab.up());
    assert_eq!(lab.status().1, 0);
}

#[test]
fn the_nodes_of_a_pbs_job_become_a_grid() {
    let mut lab = Lab::new("pbs", "");
    lab.write(
        "[[host]]\nname = \"node\"\nspeed = \"1Gf\"\nproperties = { role = \"agent, server\", serve = \"OFFER\" }\n",
    );
    let up = |lab: &Lab| {
        let mut command = lab.up();
        command.arg("--pbs");
        command
    };
    let (code, why) = status_and_stderr(up(&lab));
    assert!(code == 1 && why.contains("PBS_JOBID is not set"), "{why}");
    // One line for each MPI process.
    let nodes = lab.folder.join("nodes");
    std::fs::write(&nodes, "127.0.0.1\n127.0.0.1\n127.0.0.2\n").unwrap();
    lab.variables = vec![("PBS_JOBID", "17.head".into()), ("PBS_NODEFILE", path(&nodes).into())];
    let (lines, code) = lab.json(up(&lab));
    assert_eq!((code, &lines.last().unwrap()["grid"]), (0, &json!("grid-17")), "{lines:?}");
    let (parts, code) = lab.status();
    assert_eq!((code, parts.as_object().unwrap().len()), (0, 3), "{parts}");
    assert!(parts["server-127.0.0.2"]["address"].as_str().unwrap().starts_with("127.0.0.2:"), "{parts}");
    let words = std::fs::read_to_string(lab.folder.join("words")).unwrap();
    assert!(words.lines().all(|line| line.contains("-- 127.0.0.")), "{words}");
    succeeds(lab.command(&["down", "grid-17"]));
}
