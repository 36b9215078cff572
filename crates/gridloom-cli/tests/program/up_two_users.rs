//! Two users of one machine start grids of the same file and name, also in one Slurm. Each is a process with another
//! user number; no account is created, but root is needed to switch users. Slurm requires numbers with an account, so
//! the test uses two that each Debian has.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::up::{HEAD, Lab, host, path};
use super::up_slurm::Slurm;
use crate::support::{gridloom, quoted, skipped, succeeds, write_executable};

/// A user by number, with a home folder.
struct User {
    id: u32,
    home: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl User {
    fn new(lab: &Lab, id: u32) -> User {
        let home = lab.folder.join(id.to_string());
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(id), Some(id)).unwrap();
        User { id, home, variables: lab.variables.clone() }
    }

    /// The folder of sockets and shared memory, which does not depend on TMPDIR.
    fn sockets(&self) -> PathBuf {
        format!("/tmp/gridloom-{}", self.id).into()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = gridloom(words);
        // Each user makes a grid of its own.
        command.env_remove("GRIDLOOM_KEYS").env("HOME", &self.home).env_remove("XDG_STATE_HOME");
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_RUNTIME_DIR").env_remove("XDG_CACHE_HOME");
        command.envs(self.variables.iter().cloned());
        command.uid(self.id).gid(self.id).current_dir("/");
        command
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.command(&["down", "--grace", "1"]).output();
        let _ = std::fs::remove_dir_all(self.sockets());
    }
}

/// A stub of ssh whose hosts are this machine, as this user.
const STUB: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
cd; exec sh -c "$3"
"#;

#[test]
fn grids_of_two_users_with_one_name_share_a_machine_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        skipped("two users on one machine: only root can be two users");
        return;
    }
    let server = format!(r#"role = "server", serve = "OFFER", gridloom = "{}""#, env!("CARGO_BIN_EXE_gridloom"));
    let head = format!(r#"{HEAD}, gridloom = "{}""#, env!("CARGO_BIN_EXE_gridloom"));
    let lab = Lab::new("users", &[host("head", &head), host("a", &server)].concat());
    let (file, ssh) = (lab.folder.join("grid.toml"), lab.folder.join("local"));
    write_executable(&ssh, STUB);
    let users = [61_111, 61_112].map(|id| User::new(&lab, id));
    if users[0].command(&["--version"]).output().is_err() {
        skipped("two users on one machine: the program stands where only root can run it");
        return;
    }
    let agents = users.each_ref().map(|user| {
        let up = user.command(&["up", path(&file), "--ssh", &quoted(path(&ssh)), "--json"]);
        let last: Value = succeeds(up).lines().last().map(|line| serde_json::from_str(line).unwrap()).unwrap();
        assert_eq!((&last["grid"], &last["servers"]), (&"grid".into(), &1.into()), "{last}");
        last["agent"].as_str().unwrap().to_string()
    });
    check_apart(&users, &agents);
}

#[test]
fn grids_of_two_users_share_a_slurm_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        skipped("two users of one Slurm: only root can be two users");
        return;
    }
    let accounts = ["daemon", "games"].map(|name| {
        let id = Command::new("id").args(["-u", name]).output().unwrap();
        String::from_utf8(id.stdout).unwrap().trim().parse::<u32>().ok()
    });
    let [Some(one), Some(other)] = accounts else {
        skipped("two users of one Slurm: there are no accounts 'daemon' and 'games'");
        return;
    };
    let Some(slurm) = Slurm::start() else { return };
    let lab = slurm.lab("slurm-users", "OFFER");
    let file = lab.folder.join("grid.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("role = ", "sbatch = \"--nodes=2 --time=60\", role = ")).unwrap();
    let users = [one, other].map(|id| User::new(&lab, id));
    if users[0].command(&["--version"]).output().is_err() {
        skipped("two users of one Slurm: the program stands where only root can run it");
        return;
    }
    // Both grids have both nodes.
    let agents = users.each_ref().map(|user| {
        let up = user.command(&["up", path(&file), "--slurm", "--json"]);
        let last: Value = succeeds(up).lines().last().map(|line| serde_json::from_str(line).unwrap()).unwrap();
        assert_eq!((&last["grid"], &last["servers"]), (&"grid".into(), &2.into()), "{last}");
        last["agent"].as_str().unwrap().to_string()
    });
    let owners = succeeds(slurm.command("squeue", &["--noheader", "--format=%U %N", "--sort=i"]));
    assert_eq!(owners, format!("{one} n[1-2]\n{other} n[1-2]\n"));
    check_apart(&users, &agents);
}

/// Checks that two grids run, and that each user sees and ends only its own.
fn check_apart(users: &[User; 2], agents: &[String; 2]) {
    for (user, agent) in users.iter().zip(agents) {
        let called = succeeds(user.command(&["call", "--agent", agent, "cli/scale", "2", "[1, 2]"]));
        assert_eq!(called, "y = [2.0,4.0]\n");
        for private in [".config/gridloom/keys", ".local/state/gridloom/up", ".local/state/gridloom/host"] {
            let mode = std::fs::metadata(user.home.join(private)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{private}");
        }
        let sockets = std::fs::metadata(user.sockets()).unwrap();
        assert_eq!(sockets.permissions().mode() & 0o077, 0);
    }
    let intruder = users[1].command(&["call", "--agent", &agents[0], "cli/scale", "2", "[1, 2]"]).output().unwrap();
    let why = String::from_utf8(intruder.stderr).unwrap();
    assert!(!intruder.status.success() && why.contains("the peer's certificate is of the grid "), "{why}");
    // Ending one grid does not end the other.
    succeeds(users[0].command(&["down"]));
    let called = succeeds(users[1].command(&["call", "--agent", &agents[1], "cli/scale", "2", "[1, 2]"]));
    assert_eq!(called, "y = [2.0,4.0]\n");
}
