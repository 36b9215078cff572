//! `gridloom up --slurm` with real Slurm daemons: a controller and two nodes on this machine, with keys, ports and
//! folders of the test's own. Without the daemons the tests are skipped.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::up::{Lab, let_go, path, pid};
use crate::support::bounds::{WAIT_LIMIT, ends, output_of, until, until_true};
use crate::support::{file, process_ended, quoted, skipped, status_and_stderr, succeeds};

/// Slurm with the nodes `n1` and `n2`.
pub struct Slurm {
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // The jobs end before the daemons that manage their processes.
        let jobs = || {
            let left = self.command("squeue", &["--noheader", "--format=%i"]).output();
            let left = left.ok().filter(|left| left.status.success()).map(|left| left.stdout);
            String::from_utf8(left.unwrap_or_default()).unwrap_or_default()
        };
        for job in jobs().lines() {
            let _ = self.command("scancel", &[job]).output();
        }
        // Errors are ignored here: a panic may already be unwinding.
        let end = Instant::now() + WAIT_LIMIT;
        while !jobs().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the path of a program of Slurm or munge. Some are in folders that only root has on the path.
fn daemon(name: &str) -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&on_path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Configuration without control groups and task plugins: the daemons need no privileges, and one machine has both
/// nodes.
const SETTINGS: &str = "
ClusterName=gridloom
SlurmctldHost=HOST(127.0.0.1)
SlurmctldPort=PORT
SlurmUser=USER
SlurmdUser=USER
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge.socket
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/%n
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=permit_job_expansion
KillWait=1
ReturnToService=2
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
";

impl Slurm {
    /// Starts the daemons. Returns `None` if they are missing or do not start.
    pub fn start() -> Option<Slurm> {
        let started = Slurm::try_start();
        started.map_err(|why| skipped(&why)).ok()
    }

    fn try_start() -> Result<Slurm, String> {
        let packages = "Debian: slurmctld slurmd slurm-client munge";
        let find = |name: &str| daemon(name).ok_or_else(|| format!("there is no {name} ({packages})"));
        let (munged, slurmctld, slurmd) = (find("munged")?, find("slurmctld")?, find("slurmd")?);
        // The path of a socket has to be short.
        let folder = std::env::temp_dir().join(format!("gridloom-slurm-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(folder.join("state")).unwrap();
        let mut slurm = Slurm { folder: folder.clone(), daemons: Vec::new() };
        let (host, user) = (printed_by("hostname", &[]), printed_by("id", &["-un"]));
        let mut settings = SETTINGS.replace("FOLDER", path(&folder)).replace("HOST", &host);
        settings = settings.replace("=USER", &format!("={user}")).replace("=PORT", &format!("={}", free_port()));
        for node in ["n1", "n2"] {
            std::fs::create_dir_all(folder.join(node)).unwrap();
            let port = free_port();
            settings.push_str(&format!("NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4\n"));
        }
        std::fs::write(folder.join("slurm.conf"), settings).unwrap();
        let mut key =
            std::fs::File::options().mode(0o400).write(true).create_new(true).open(folder.join("key")).unwrap();
        std::io::copy(&mut std::fs::File::open("/dev/urandom").unwrap().take(128), &mut key).unwrap();
        let options =
            [("socket", "munge.socket"), ("key-file", "key"), ("pid-file", "munge.pid"), ("seed-file", "seed")];
        let words = options.map(|(option, file)| format!("--{option}={}", path(&folder.join(file))));
        slurm.run(&munged, words.each_ref().map(String::as_str).iter().chain(&["--foreground"]));
        slurm.wait(|slurm| slurm.folder.join("munge.socket").exists())?;
        slurm.run(&slurmctld, &["-D", "-i"]);
        for node in ["n1", "n2"] {
            slurm.run(&slurmd, &["-D", "-N", node]);
        }
        slurm.wait(|slurm| {
            let shown = output_of(&mut slurm.command("sinfo", &["--noheader", "--Node", "--format=%T"]));
            shown.stdout == b"idle\nidle\n"
        })?;
        Ok(slurm)
    }

    fn run<'a>(&mut self, daemon: &Path, words: impl IntoIterator<Item = &'a &'a str>) {
        let name = format!("{}-{}.log", daemon.file_name().unwrap().to_str().unwrap(), self.daemons.len());
        let log = std::fs::File::create(self.folder.join(name)).unwrap();
        let mut command = self.command(path(daemon), &[]);
        command.args(words).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    /// Waits until the condition is true. Returns the logs if a daemon ends before, or if the wait takes too long.
    fn wait(&mut self, is_so: impl Fn(&Slurm) -> bool) -> Result<(), String> {
        let end = Instant::now() + WAIT_LIMIT;
        while !is_so(self) {
            if self.daemons.iter_mut().any(|daemon| daemon.try_wait().unwrap().is_some()) || Instant::now() > end {
                let logs = std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path());
                let logs = logs.filter(|log| log.extension().is_some_and(|kind| kind == "log"));
                let logs: Vec<String> = logs.map(|log| std::fs::read_to_string(log).unwrap()).collect();
                return Err(format!("the daemons of Slurm do not start here: {}", logs.concat().trim()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn settings(&self) -> String {
        path(&self.folder.join("slurm.conf")).into()
    }

    pub fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).env("SLURM_CONF", self.settings()).env_remove("GRIDLOOM_KEYS");
        command
    }

    /// Returns the number of a new allocation.
    pub fn allocate(&self, words: &[&str]) -> String {
        let output = output_of(&mut self.command("salloc", &[&["--no-shell"], words].concat()));
        let said = String::from_utf8(output.stderr).unwrap();
        let job = said.lines().find_map(|line| line.strip_prefix("salloc: Granted job allocation "));
        job.unwrap_or_else(|| panic!("{said}")).to_string()
    }

    /// Returns a user of this Slurm, whose file describes one host that represents all nodes.
    pub fn lab(&self, name: &str, serve: &str) -> Lab {
        let program = env!("CARGO_BIN_EXE_gridloom");
        let properties = format!(r#"role = "agent, server", serve = "{serve}", gridloom = "{program}""#);
        let mut lab =
            Lab::new(name, &format!("[[host]]\nname = \"node\"\nspeed = \"1Gf\"\nproperties = {{ {properties} }}\n"));
        lab.variables = vec![("SLURM_CONF", self.settings())];
        lab
    }

    /// Returns the number of steps of a job, without that of its script.
    fn steps(&self, job: &str) -> usize {
        let shown = output_of(&mut self.command("squeue", &["--noheader", "--steps", "--jobs", job, "--format=%i"]));
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.lines().filter(|step| !step.ends_with(".batch") && !step.ends_with(".extern")).count()
    }
}

fn printed_by(program: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(words);
    succeeds(command).trim().to_string()
}

/// Returns the command 'gridloom up' for nodes of an allocation.
pub fn up(lab: &Lab, words: &[&str]) -> Command {
    let mut command = lab.command(&["up", path(&lab.folder.join("grid.toml")), "--slurm"]);
    command.args(words);
    command
}

#[test]
fn the_nodes_of_an_allocation_become_a_grid_and_are_free_again() {
    let Some(slurm) = Slurm::start() else { return };
    let job = slurm.allocate(&["--nodes=2", "--ntasks-per-node=3"]);
    let lab = slurm.lab("slurm", "OFFER");
    let (lines, code) = lab.json(up(&lab, &["--job", &job]));
    assert_eq!(code, 0, "{lines:?}");
    let agent = lines.last().unwrap()["agent"].as_str().unwrap();
    let (parts, code) = lab.status();
    assert_eq!((code, parts.as_object().unwrap().len()), (0, 3), "{parts}");
    for part in ["agent", "server-n1", "server-n2"] {
        assert_eq!((&parts[part]["state"], &parts[part]["registered"]), (&json!("runs"), &json!(true)), "{parts}");
    }
    // A server has as many slots as the job has processors on the node.
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", pid(&parts["server-n2"]))).unwrap();
    assert!(words.contains("--slots\x003\x00"), "{words}");
    let called = succeeds(lab.command(&["call", "--agent", agent, "cli/scale", "2", "[1, 2]"]));
    assert_eq!(called, "y = [2.0,4.0]\n");
    assert_eq!(succeeds(lab.command(&["drain", "n2"])), "n2: ended server-n2\n");
    process_ended(pid(&parts["server-n2"]));
    succeeds(up(&lab, &["--job", &job]));
    let (again, code) = lab.status();
    assert_eq!((code, &again["agent"], &again["server-n1"]), (0, &parts["agent"], &parts["server-n1"]));
    succeeds(lab.command(&["down"]));
    for part in ["agent", "server-n1", "server-n2"] {
        process_ended(pid(&again[part]));
    }
    until_true("the job has no steps any more", || slurm.steps(&job) == 0);
    drop(lab);
}

const SCRIPT: &str = r#"#!/bin/sh
PROGRAM up FOLDER/grid.toml --slurm || exit
export GRIDLOOM_AGENT=$(PROGRAM status --agent)
PROGRAM call cli/scale 2 '[1, 2]'
PROGRAM status --json
PROGRAM down
"#;

/// Two simultaneous jobs on the same nodes each have a grid of their own.
#[test]
fn a_script_has_a_grid_of_its_own_in_each_of_its_jobs() {
    let Some(slurm) = Slurm::start() else { return };
    let lab = slurm.lab("slurm-script", "OFFER");
    let script = SCRIPT
        .replace("PROGRAM", &quoted(env!("CARGO_BIN_EXE_gridloom")))
        .replace("FOLDER", &quoted(path(&lab.folder)));
    std::fs::write(lab.folder.join("script"), script).unwrap();
    let output = |number: u32| lab.folder.join(format!("output-{number}"));
    let submit = |number: u32| {
        let mut command = slurm.command("sbatch", &["--wait", "--parsable", "--nodes=2", "--output"]);
        let mine = lab.command(&[]);
        command.envs(mine.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.arg(output(number)).arg(lab.folder.join("script")).stdout(Stdio::null()).spawn().unwrap()
    };
    let jobs = [1, 2].map(submit);
    for (number, job) in (1..).zip(jobs) {
        let is_well = ends("the script's job", job).status.success();
        let said = std::fs::read_to_string(output(number)).unwrap();
        assert!(is_well && said.contains("runs with 2 servers") && said.contains("y = [2.0,4.0]"), "{said}");
        assert!(said.contains("n1: ended agent, server-n1\nn2: ended server-n2\n"), "{said}");
        let shown: Value = said.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap();
        assert!(shown["agent_error"].is_null() && shown["hosts"].as_array().unwrap().len() == 2, "{shown}");
    }
}

#[test]
fn servers_drain_before_their_allocation_ends() {
    let Some(slurm) = Slurm::start() else { return };
    let job = slurm.allocate(&["--nodes=2", "--time=60"]);
    let lab = slurm.lab("slurm-end", "OFFER");
    let (code, why) = status_and_stderr(up(&lab, &["--job", &job, "--drain-before", "3601"]));
    assert!(code == 1 && why.contains("ends in 3") && why.contains("lower --drain-before"), "{why}");
    succeeds(up(&lab, &["--job", &job, "--drain-before", "3585"]));
    let (parts, _) = lab.status();
    for part in ["server-n1", "server-n2"] {
        let process = Path::new("/proc").join(pid(&parts[part]).to_string());
        until_true("servers drain and end before their allocation", || !process.exists());
    }
    let (after, code) = lab.status();
    assert_eq!((code, &after["server-n2"]["state"], &after["agent"]), (3, &json!("ended"), &parts["agent"]));
}

/// `hold` waits until somebody opens the other end of a pipe; it returns the process number of its server.
const HOLDING: &str = r#"Module drain;
Globals { #include <stdio.h>
#include <unistd.h> }
Define hold(IN string pipe, OUT int *server) { FILE *end = fopen(pipe, "r"); if (end) fclose(end); *server = getppid(); }
"#;

/// Returns the server that runs a call, once one that is not `other` does.
fn holder(lab: &Lab, agent: &str, other: &str) -> String {
    until("a call runs", || {
        let shown = succeeds(lab.command(&["calls", "--agent", agent, "--json"]));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let mut servers = shown["calls"].as_array().unwrap().iter().filter(|call| call["stage"] == "running");
        let server = servers.find_map(|call| call["server"].as_str().filter(|server| *server != other))?;
        Some(server.to_string())
    })
}

#[test]
fn a_grid_grows_by_an_allocation_and_outlives_it() {
    let Some(slurm) = Slurm::start() else { return };
    let first = slurm.allocate(&["--nodelist=n1"]);
    let lab = slurm.lab("slurm-grows", &format!("{} --models none", file("slurm.idl", HOLDING)));
    succeeds(up(&lab, &["--job", &first, "--name", "mine"]));
    let agent = succeeds(lab.command(&["status", "--agent"])).trim().to_string();
    let second = slurm.allocate(&["--nodelist=n1,n2"]);
    let (lines, code) = lab.json(up(&lab, &["--job", &second, "--name", "mine"]));
    assert_eq!(code, 0, "{lines:?}");
    let (parts, code) = lab.status();
    // Both allocations have the node n1.
    let shared = format!("server-n1-{second}");
    assert_eq!((code, parts.as_object().unwrap().len(), &parts[&shared]["state"]), (0, 4, &json!("runs")), "{parts}");
    // A call that runs in the second allocation.
    succeeds(lab.command(&["drain", "n1", "--name", "mine"]));
    let pipe = lab.folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut held = lab.command(&["call", "--agent", &agent, "--json", "drain/hold", path(&pipe)]);
    let held = held.stdout(Stdio::piped()).spawn().unwrap();
    let lost = holder(&lab, &agent, "");
    assert!(lost != "n1", "{lost}");
    succeeds(up(&lab, &["--job", &first, "--name", "mine"]));
    succeeds(slurm.command("scancel", &[&second]));
    // It may run on the other server of that allocation first.
    until_true("the call runs in the other allocation", || holder(&lab, &agent, &lost) == "n1");
    let why = format!("its allocation {second} has ended: CANCELLED");
    let (parts, code) = until("status says that the allocation has ended", || {
        let (parts, code) = lab.status();
        [&shared, "server-n2"].iter().all(|part| parts[part]["why"] == why).then_some((parts, code))
    });
    for part in [&shared, "server-n2"] {
        assert_eq!((code, &parts[part]["state"], &parts[part]["why"]), (3, &json!("ended"), &json!(why)), "{parts}");
    }
    let_go(&pipe);
    let held = String::from_utf8(ends("the call that was held", held).stdout).unwrap();
    assert_eq!(held, format!("{{\"results\":{{\"server\":{}}}}}\n", pid(&parts["server-n1"])));
    let (code, why) = status_and_stderr(up(&lab, &["--job", &second, "--name", "mine"]));
    assert!(code == 1 && why.contains(&format!("the allocation {second} has ended")), "{why}");
    succeeds(up(&lab, &["--job", &first, "--name", "mine"]));
    let (parts, code) = lab.status();
    assert_eq!((code, parts.as_object().unwrap().len()), (0, 2), "{parts}");
    succeeds(slurm.command("scancel", &[&first]));
    let ended = succeeds(lab.command(&["down"]));
    assert_eq!(ended, "n1: ended agent, server-n1\n");
}

#[test]
fn a_released_node_leaves_the_grid() {
    let Some(slurm) = Slurm::start() else { return };
    let job = slurm.allocate(&["--nodes=2"]);
    let lab = slurm.lab("slurm-shrinks", "OFFER");
    succeeds(up(&lab, &["--job", &job]));
    let (parts, _) = lab.status();
    succeeds(lab.command(&["drain", "n2"]));
    succeeds(slurm.command("scontrol", &["update", &format!("JobId={job}"), "NumNodes=1"]));
    let (lines, code) = lab.json(up(&lab, &["--job", &job]));
    assert_eq!((code, lines.len()), (0, 2), "{lines:?}");
    let (after, code) = lab.status();
    assert_eq!((code, &after["server-n1"], after.as_object().unwrap().len()), (0, &parts["server-n1"], 2));
}
