//! `gridloom up`, `status`, `drain` and `down` with the system's `ssh` and a real `sshd` on loopback, whose ports,
//! host keys and user keys are the test's own. Without `sshd` the tests are skipped; `GRIDLOOM_SSHD` names one that is
//! not on the path.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::up::{Lab, path, pid};
use crate::support::bounds::ProcessTimeout;
use crate::support::{process_ended, quoted, skipped, status_and_stderr, succeeds};

/// A host: an `sshd` with a home folder of its own.
struct Sshd {
    child: Child,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program by its absolute path, which it requires.
fn sshd() -> Option<PathBuf> {
    let named = std::env::var_os("GRIDLOOM_SSHD").map(PathBuf::from);
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&on_path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    named.into_iter().chain(folders.map(|folder| folder.join("sshd"))).find(|file| file.is_file())
}

/// Namespaces in which root's `sshd` finds what it requires of the system: a folder, and a user for the process that
/// communicates before the login.
const AS_ROOT: &str = r#"
mount -t tmpfs none /run && mkdir -m 755 /run/sshd && cp /etc/passwd /run/passwd || exit 1
grep -q '^sshd:' /run/passwd || echo 'sshd:x:74:74::/run/sshd:/usr/sbin/nologin' >> /run/passwd
mount --bind /run/passwd /etc/passwd && exec "$@"
"#;

fn key(file: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status().unwrap();
    assert!(made.success());
}

impl Sshd {
    /// Starts an `sshd` that accepts the users of `keys`. Its host key is appended to `known`.
    fn start(program: &Path, folder: &Path, name: &str, keys: &Path, known: &mut String) -> Result<Sshd, String> {
        let (own, home) = (folder.join(format!("{name}-key")), folder.join("homes").join(name));
        std::fs::create_dir_all(&home).unwrap();
        key(&own);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nSetEnv HOME={home} XDG_STATE_HOME={home}/state\n",
            own.display(),
            keys.display(),
            home = home.display()
        );
        let file = folder.join(format!("{name}.conf"));
        std::fs::write(&file, settings).unwrap();
        let mut command = match rustix::process::geteuid().is_root() {
            false => Command::new(program),
            true => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "private", "sh", "-c", AS_ROOT, "sh"]).arg(program);
                command
            }
        };
        command.args(["-D", "-e", "-f"]).arg(&file).env_remove("GRIDLOOM_KEYS");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut seen = String::new();
        let bound = ProcessTimeout::of(&child);
        let is_up = log.by_ref().any(|line| {
            seen.push_str(&line);
            line.contains("Server listening")
        });
        drop(bound);
        // The process keeps writing its log.
        std::thread::spawn(move || log.for_each(drop));
        let sshd = Sshd { child, port };
        let public = std::fs::read_to_string(own.with_extension("pub")).unwrap();
        known.push_str(&format!("[127.0.0.1]:{port} {public}"));
        if is_up { Ok(sshd) } else { Err(seen) }
    }
}

/// Starts the hosts `head`, `a`, and `b`, which accepts only another user. Returns their ports; `None` without an `sshd`.
pub fn hosts(lab: &mut Lab) -> Option<[u16; 3]> {
    let Some(program) = sshd() else {
        skipped("there is no sshd (Debian: openssh-server; GRIDLOOM_SSHD names one elsewhere)");
        return None;
    };
    let folder = lab.folder.clone();
    for name in ["mine-key", "other-key"] {
        key(&folder.join(name));
    }
    let (mine, other) = (folder.join("mine-key.pub"), folder.join("other-key.pub"));
    let mut known = String::new();
    let mut start = |name: &str, keys: &Path| Sshd::start(&program, &folder, name, keys, &mut known);
    let started = (|| Ok::<_, String>([start("head", &mine)?, start("a", &mine)?, start("b", &other)?]))();
    match started {
        Err(why) => {
            skipped(&format!("sshd does not start here: {why}"));
            None
        }
        Ok(started) => {
            std::fs::write(folder.join("known"), known).unwrap();
            let settings = format!(
                "Host *\nUserKnownHostsFile {0}/known\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n\
                 IdentityFile {0}/mine-key\nIdentitiesOnly yes\nIdentityAgent none\n",
                folder.display()
            );
            std::fs::write(folder.join("settings"), settings).unwrap();
            lab.ssh = format!("ssh -F {}", quoted(path(&folder.join("settings"))));
            let ports = started.each_ref().map(|sshd| sshd.port);
            lab.hosts = started.into_iter().map(|sshd| Box::new(sshd) as Box<dyn std::any::Any>).collect();
            Some(ports)
        }
    }
}

/// This program, at the place where it was built.
pub const BUILT: &str = concat!("gridloom = \"", env!("CARGO_BIN_EXE_gridloom"), "\"");

/// Returns a host of the file, at that port of this machine, with that program.
pub fn host(name: &str, port: u16, program: &str, properties: &str) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\nspeed = \"1Gf\"\n\
         properties = {{ address = \"127.0.0.1\", port = {port}, {program}, {properties} }}\n"
    )
}

#[test]
fn a_grid_starts_by_ssh_also_through_a_jump_host_and_ends_again() {
    let mut lab = Lab::new("ssh", "");
    let Some([head, a, b]) = hosts(&mut lab) else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = r#"role = "server", serve = "OFFER""#;
    let jump = format!(r#"{server}, jump = "127.0.0.1:{}""#, head);
    let file = [
        host("head", head, BUILT, r#"role = "agent, server", serve = "OFFER", agent_listen = "127.0.0.1:0""#),
        host("a", a, "send = true", &jump),
        host("b", b, BUILT, server),
        host("c", silent, BUILT, server),
    ];
    lab.write(&file.concat());
    let (lines, code) = lab.json(lab.up());
    assert_eq!(code, 3, "{lines:?}");
    let error = |name: &str| lines.iter().find(|line| line["host"] == name).unwrap()["error"].as_str().unwrap();
    assert!(error("b").starts_with("it refuses the key: "), "{}", error("b"));
    assert!(error("c").starts_with("it does not answer: "), "{}", error("c"));
    let agent = lines.last().unwrap()["agent"].as_str().unwrap();
    let (parts, code) = lab.status();
    assert_eq!((code, parts.as_object().unwrap().len()), (0, 3), "{parts}");
    let server = &parts["server-a"];
    assert!(server["log"].as_str().unwrap().starts_with(path(&lab.folder.join("homes/a"))), "{server}");
    assert_eq!((&server["state"], &server["registered"]), (&json!("runs"), &json!(true)));
    let called = succeeds(lab.command(&["call", "--agent", agent, "cli/scale", "2", "[1, 2]"]));
    assert_eq!(called, "y = [2.0,4.0]\n");
    assert_eq!(succeeds(lab.command(&["drain", "head"])), "head: ended server-head\n");
    process_ended(pid(&parts["server-head"]));
    // From here on no host key is known.
    std::fs::write(lab.folder.join("known"), "").unwrap();
    let (_, code) = lab.json(lab.command(&["down"]));
    assert_eq!(code, 3);
    let (_, why) = status_and_stderr(lab.command(&["down"]));
    assert!(why.contains("host 'a': its host key is unknown or has changed"), "{why}");
    let known: String = ["head", "a"]
        .iter()
        .zip([head, a])
        .map(|(name, port)| {
            let public = std::fs::read_to_string(lab.folder.join(format!("{name}-key.pub"))).unwrap();
            format!("[127.0.0.1]:{port} {public}")
        })
        .collect();
    std::fs::write(lab.folder.join("known"), known).unwrap();
    succeeds(lab.command(&["down"]));
    for part in ["agent", "server-a"] {
        process_ended(pid(&parts[part]));
    }
}

#[test]
fn processes_of_a_deployment_run_on_their_hosts() {
    let mut lab = Lab::new("ssh-deploy", "");
    let Some([head, a, b]) = hosts(&mut lab) else { return };
    let file = [host("head", head, BUILT, ""), host("a", a, "send = true", ""), host("b", b, BUILT, "")];
    lab.write(&file.concat().replace(",  }", " }"));
    let script = r#"echo "$1 in $HOME"; : > "$GRIDLOOM_PROCESS_READY""#;
    let run = |hosts: &[&str], script: &str| {
        let process = |host: &&str| format!("[[process]]\nhost = '{host}'\nfunction = 'at_{host}'\n");
        let deployment = lab.folder.join("processes.toml");
        std::fs::write(&deployment, hosts.iter().map(process).collect::<String>()).unwrap();
        let hosts = lab.folder.join("grid.toml");
        let options = ["deploy", "-d", path(&deployment), "--hosts", path(&hosts), "--ssh", &lab.ssh, "--"];
        lab.command(&[&options[..], &["sh", "-c", script]].concat())
    };
    // A system's sshd limits the connections of users that it does not know yet.
    let many = [["head", "a"]; 12].concat();
    let output = succeeds(run(&many, script));
    for name in ["head", "a"] {
        let line = format!("at_{name}@{name}| ");
        assert_eq!(output.lines().filter(|one| one.starts_with(&line)).count(), 12, "{output}");
    }
    let (status, errors) = status_and_stderr(run(&["head", "b"], script));
    assert!(status == 1 && errors.contains("b: it refuses the key"), "{status}: {errors}");
    for code in [7, 255] {
        let (status, errors) = status_and_stderr(run(&["head"], &format!("exit {code}")));
        let ended = format!("at_head@head ended with exit status: {code}");
        assert!(status == code && errors.matches(&ended).count() == 1, "{status}: {errors}");
    }
}
