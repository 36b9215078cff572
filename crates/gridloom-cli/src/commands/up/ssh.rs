//! The system's `ssh`: how it reaches a host, and how to interpret a failed connection.
//!
//! ssh never prompts (BatchMode).

use serde::{Deserialize, Serialize};

use super::fault::{CommandOutput, Fault, last_line};

/// A host that is reached by `ssh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ssh {
    /// The command and its first arguments: `ssh`.
    pub ssh: Vec<String>,
    /// The host's name for ssh: a host name, an address, or an entry of `~/.ssh/config`.
    pub destination: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// Jump hosts, in the syntax of ProxyJump.
    pub jump: Option<String>,
    /// Seconds until a host must have answered.
    pub connect_s: u32,
}

impl Ssh {
    /// Returns the arguments that precede the command on the host.
    pub fn command_prefix(&self) -> Vec<String> {
        let mut words = self.ssh.clone();
        let timeout = format!("ConnectTimeout={}", self.connect_s);
        let options = ["BatchMode=yes", &timeout, "ServerAliveInterval=5", "ServerAliveCountMax=3"];
        words.push("-T".into());
        options.iter().for_each(|option| words.extend(["-o".to_string(), option.to_string()]));
        if let Some(jump) = &self.jump {
            words.extend(["-o".into(), format!("ProxyJump={jump}")]);
        }
        if let Some(user) = &self.user {
            words.extend(["-l".into(), user.clone()]);
        }
        if let Some(port) = self.port {
            words.extend(["-p".into(), port.to_string()]);
        }
        words.extend(["--".into(), self.destination.clone()]);
        words
    }

    /// Returns why there is no connection; `None` if there was one and the command failed.
    pub fn failure(&self, said: &CommandOutput) -> Option<Fault> {
        if said.code != Some(FAILED) {
            return None;
        }
        let has = |text: &&str| said.errors.contains(text);
        let known = ERRORS.iter().find(|(texts, ..)| texts.iter().any(has));
        let (what, remedy) =
            known.map_or(("ssh failed", "try the same command by hand"), |(_, what, remedy)| (*what, *remedy));
        let never_came =
            ["connect to host", "Permission denied", "Host key", "HOST IDENTIFICATION", "resolve hostname"];
        let line = last_line(&said.errors);
        let said = if line.is_empty() { format!("exit status {FAILED}") } else { line };
        let may_run = !never_came.iter().any(has);
        Some(Fault { may_run, ..Fault::new(format!("{what}: {said}"), remedy) })
    }
}

/// Exit status of ssh after an error of its own.
pub const FAILED: i32 = 255;

/// Messages of ssh, their meaning, and the remedy. The first match counts.
const ERRORS: [(&[&str], &str, &str); 5] = [
    (
        &["REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed", "No ED25519 host key is known"],
        "its host key is unknown or has changed",
        "log in once by hand and compare the key that ssh shows with that of the host",
    ),
    (
        &["Permission denied", "Too many authentication failures", "No supported authentication methods"],
        "it refuses the key",
        "give it your key with 'ssh-copy-id', unlock the key with 'ssh-add', or correct the property 'user'",
    ),
    (
        &["Could not resolve hostname"],
        "its name is unknown",
        "correct the property 'address' or 'ssh', or give it an entry in ~/.ssh/config",
    ),
    (
        &[
            "timed out",
            "Connection refused",
            "No route to host",
            "Network is unreachable",
            "Connection closed",
            "not responding",
            "Connection reset",
        ],
        "it does not answer",
        "check that it runs and that no firewall blocks ssh; then correct the properties 'address', 'port' and 'jump'",
    ),
    (&["Bad configuration option", "Bad owner"], "ssh refuses its settings", "correct ~/.ssh/config"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_never_asks_and_ends_its_options_before_the_host() {
        let ssh = Ssh {
            ssh: vec!["ssh".into(), "-v".into()],
            destination: "node-1".into(),
            user: Some("ada".into()),
            port: Some(2222),
            jump: Some("gate:22".into()),
            connect_s: 7,
        };
        assert_eq!(
            ssh.command_prefix().join(" "),
            "ssh -v -T -o BatchMode=yes -o ConnectTimeout=7 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
             -o ProxyJump=gate:22 -l ada -p 2222 -- node-1"
        );
    }
}
