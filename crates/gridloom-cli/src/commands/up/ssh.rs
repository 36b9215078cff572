//! The system's `ssh`: how a host is reached, what a failed connection means, and what to do about it.
//!
//! The command never asks for anything (BatchMode). What is sent goes through its standard input.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gridloom_net::identity::SECRET_VARIABLE;
use serde::{Deserialize, Serialize};

use super::request::{Answer, PartState, Refusal, Request, VERSION};

/// When ssh has ended, its last words are there within.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);

/// How a host is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The command and its first arguments: `ssh`.
    pub ssh: Vec<String>,
    /// A host as ssh knows it: a name, an address, or an entry of `~/.ssh/config`.
    pub destination: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// Hosts on the way, in words of ProxyJump.
    pub jump: Option<String>,
    /// Seconds until a host must have answered.
    pub connect_s: u32,
    /// The program there, in words of its shell.
    pub gridloom: String,
}

/// Why a host does not do its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub host: String,
    /// What is wrong.
    pub why: String,
    /// The command that was run.
    pub tried: String,
    pub remedy: String,
    /// A part may run there all the same: the connection was lost, or the host is silent.
    pub may_run: bool,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host '{}': {}\n  tried: {}\n  remedy: {}", self.host, self.why, self.tried, self.remedy)
    }
}

/// Where a copy of this program is put on a host.
pub struct Copy {
    pub file: PathBuf,
    /// Name of the copy, by its content.
    pub name: String,
    bytes: usize,
}

impl Copy {
    /// The program there, in words of a shell.
    pub fn path(&self) -> String {
        format!("~/.cache/gridloom/bin/{}", self.name)
    }
}

/// What the other side of a connection has said.
struct Said {
    /// The exit status; `None` after a signal.
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Target {
    /// The words before those of the command on the host.
    fn words(&self) -> Vec<String> {
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

    /// For people: what was run.
    fn tried(&self, command: &str) -> String {
        let words = self.words();
        let words = words.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { word.clone() });
        format!("{} {command}", words.collect::<Vec<_>>().join(" "))
    }

    /// Asks the host. It has `limit` for its answer, beside the time to connect.
    pub fn ask(&self, host: &str, request: &Request, limit: Duration) -> Result<Vec<PartState>, Trouble> {
        let command = format!("{} host", self.gridloom);
        let trouble = |fault: Fault| fault.at(host, self.tried(&command));
        let mut request = serde_json::to_string(request).expect("text and numbers");
        request.push('\n');
        let said = self.run(&command, &mut request.as_bytes(), limit).map_err(trouble)?;
        let answer = said.output.lines().rev().find_map(|line| serde_json::from_str::<Answer>(line).ok());
        match answer.map(|answer| answer.result) {
            Some(Ok(states)) => Ok(states),
            Some(Err(refusal)) => Err(trouble(refused(refusal))),
            None => Err(trouble(no_answer(&said, &self.gridloom))),
        }
    }

    /// Puts a copy of this program on the host, unless it is there.
    pub fn send(&self, host: &str, copy: &Copy, limit: Duration) -> Result<(), Trouble> {
        let path = copy.path();
        let folder = "~/.cache/gridloom/bin";
        let (part, bytes) = (format!("{folder}/.{}.$$", copy.name), copy.bytes);
        // The copy gets its name when it is whole: a connection that is lost looks like the end of the input. Hosts may share the folder:
        // a copy that another has put there meanwhile may run already.
        let script = format!(
            "umask 077; test -x {path} && exit 0; mkdir -p {folder} && cat > {part} && test $(wc -c < {part}) -eq {bytes} && \
             chmod 700 {part} && {{ test -x {path} || mv {part} {path}; }} && rm -f {part} || {{ rm -f {part}; exit 73; }}"
        );
        let command = format!("exec sh -c '{script}'");
        let trouble = |fault: Fault| fault.at(host, self.tried("sh, with this program as its input"));
        let unreadable =
            |error| trouble(Fault::new(format!("cannot read '{}': {error}", copy.file.display()), "install it"));
        let mut file = File::open(&copy.file).map_err(unreadable)?;
        let said = self.run(&command, &mut file, limit).map_err(trouble)?;
        match said.code {
            Some(0) => Ok(()),
            Some(73) if said.errors.contains("No space left") || said.errors.contains("quota exceeded") => {
                let room =
                    "make room in the home folder there, or install Gridloom elsewhere and name it with 'gridloom'";
                Err(trouble(Fault::new(format!("no room for the program: {}", last(&said.errors)), room)))
            }
            _ => Err(trouble(Fault { may_run: false, ..no_answer(&said, "sh") })),
        }
    }

    /// Runs a command there, with that input; ends it after `limit` beside the time to connect.
    fn run(&self, command: &str, input: &mut dyn Read, limit: Duration) -> Result<Said, Fault> {
        let words = self.words();
        let no_ssh = |error: std::io::Error| {
            Fault::new(format!("cannot run '{}': {error}", words[0]), "install ssh, or name it with --ssh")
        };
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg(command)
            .env_remove(SECRET_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_ssh)?;
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let limit = limit + Duration::from_secs(u64::from(self.connect_s));
        let (output, errors) = (Heard::of(stdout.expect("a pipe")), Heard::of(stderr.expect("a pipe")));
        let pid = child.id();
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            let is_late = is_done.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if is_late {
                // Its parent waits for it only after this thread: the number is still its own.
                let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
                let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
            }
            is_late
        });
        if let Some(stdin) = &mut stdin {
            // A host that refuses closes the pipe: its status and its words say why.
            let _ = std::io::copy(input, stdin).and_then(|_| stdin.flush());
        }
        drop(stdin);
        output.wait(None);
        drop(done);
        let is_late = guard.join().unwrap_or(true);
        let status = child.wait().map_err(no_ssh)?;
        // A connection to a host on the way, or one that ssh keeps for later, may hold standard error open.
        errors.wait(Some(LAST_WORDS_WITHIN));
        let (output, errors) = (output.text(), errors.text());
        if is_late {
            let why = format!("does not answer: nothing came within {} s", limit.as_secs());
            return Err(Fault { may_run: true, ..Fault::new(why, "look after that host, or raise --wait") });
        }
        Ok(Said { code: status.code(), output, errors })
    }
}

/// What a pipe gives, until it is closed.
struct Heard {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Nothing is ever sent: it is closed with the pipe.
    is_closed: Receiver<()>,
}

impl Heard {
    fn of(mut pipe: impl Read + Send + 'static) -> Heard {
        let (closes, is_closed) = channel();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let heard = bytes.clone();
        std::thread::spawn(move || {
            let _closes: Sender<()> = closes;
            let mut part = [0; 4096];
            // What came before an error is what there is.
            while let Ok(length @ 1..) = pipe.read(&mut part) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..length]);
            }
        });
        Heard { bytes, is_closed }
    }

    /// Until the pipe is closed, or for so long.
    fn wait(&self, limit: Option<Duration>) {
        match limit {
            None => _ = self.is_closed.recv(),
            Some(limit) => _ = self.is_closed.recv_timeout(limit),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

const FULL: &str = "make room on that host, or set XDG_STATE_HOME there to a folder of another disk";

/// What is wrong, and what to do about it.
struct Fault {
    why: String,
    remedy: String,
    may_run: bool,
}

impl Fault {
    fn new(why: String, remedy: &str) -> Fault {
        Fault { why, remedy: remedy.into(), may_run: false }
    }

    fn at(self, host: &str, tried: String) -> Trouble {
        Trouble { host: host.into(), why: self.why, tried, remedy: self.remedy, may_run: self.may_run }
    }
}

fn refused(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Version(there) => Fault::new(
            format!("gridloom there is of version {there}, and here of {VERSION}"),
            "install the same version there, or let 'up' copy this program: send = true",
        ),
        Refusal::Full(why) => Fault::new(format!("no room: {why}"), FULL),
        Refusal::Other(why) => Fault { may_run: true, ..Fault::new(why, "correct it there, then start again") },
    }
}

/// Why there is no answer of `gridloom host`.
fn no_answer(said: &Said, program: &str) -> Fault {
    let line = last(&said.errors);
    let has = |text: &str| said.errors.contains(text);
    let install =
        "install Gridloom there; name its program with the property 'gridloom', or let 'up' copy this one: send = true";
    let (what, remedy) = match said.code {
        Some(255) => {
            let known = SSH_ERRORS.iter().find(|(texts, ..)| texts.iter().any(|text| has(text)));
            known.map_or(("ssh failed", "try the same command by hand"), |(_, what, remedy)| (*what, *remedy))
        }
        Some(127) => ("there is no program 'gridloom' on its path", install),
        Some(126) if has("Exec format error") || has("cannot execute binary file") => {
            ("the program is for another kind of machine", "build Gridloom for that machine and install it there")
        }
        Some(126) => ("its program cannot be run", install),
        Some(2) if has("unrecognized subcommand") => ("its gridloom is of another version", install),
        Some(_) if has("GLIBC_") => {
            ("its system is older than the program", "install the wheel of 'make wheel-portable'")
        }
        _ => ("it gave no answer", "try the same command by hand: it should print a line of JSON"),
    };
    let code = said.code.map_or("a signal".to_string(), |code| format!("exit status {code}"));
    let program =
        if said.code == Some(127) && program != "gridloom" { format!(" ('{program}')") } else { String::new() };
    let never_came = ["connect to host", "Permission denied", "Host key", "HOST IDENTIFICATION", "resolve hostname"];
    let may_run = match said.code {
        Some(2 | 126 | 127) => false,
        Some(255) => !never_came.iter().any(|text| has(text)),
        _ => true,
    };
    let said = if line.is_empty() { code } else { line };
    Fault { may_run, ..Fault::new(format!("{what}{program}: {said}"), remedy) }
}

/// What ssh says, what that means, and the remedy. The first that fits counts.
const SSH_ERRORS: [(&[&str], &str, &str); 5] = [
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
        "check that it runs and that ssh is let through; then correct the properties 'address', 'port' and 'jump'",
    ),
    (&["Bad configuration option", "Bad owner"], "ssh refuses its settings", "correct ~/.ssh/config"),
];

fn last(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_string()
}

/// This program, to be copied.
pub fn own_copy() -> std::io::Result<Copy> {
    let file = std::env::current_exe()?;
    let content = std::fs::read(&file)?;
    let mut hash = gridloom_base::Fnv::default();
    content.iter().for_each(|byte| hash.byte(*byte));
    Ok(Copy { name: format!("gridloom-{VERSION}-{:016x}", hash.0), bytes: content.len(), file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            ssh: vec!["ssh".into(), "-v".into()],
            destination: "node-1".into(),
            user: Some("ada".into()),
            port: Some(2222),
            jump: Some("gate:22".into()),
            connect_s: 7,
            gridloom: "gridloom".into(),
        }
    }

    #[test]
    fn the_command_never_asks_and_ends_its_options_before_the_host() {
        let words = target().words().join(" ");
        assert_eq!(
            words,
            "ssh -v -T -o BatchMode=yes -o ConnectTimeout=7 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
             -o ProxyJump=gate:22 -l ada -p 2222 -- node-1"
        );
    }

    /// As of `ssh -W` to a host on the way, or a connection that is kept for later.
    #[test]
    fn a_process_that_ssh_leaves_keeps_nobody() {
        let left = "echo refused >&2; sleep 60 >/dev/null & echo $!; exit 255";
        let ssh = vec!["sh".into(), "-c".into(), left.into()];
        let target = Target { ssh, ..target() };
        let said = target.run("command", &mut std::io::empty(), Duration::from_secs(60));
        let said = said.unwrap_or_else(|fault| panic!("{}", fault.why));
        let pid = said.output.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs on");
        assert_eq!((said.code, said.errors.trim()), (Some(255), "refused"));
    }

    #[test]
    fn errors_of_ssh_have_names_and_remedies() {
        let meaning = |code: i32, errors: &str| {
            no_answer(&Said { code: Some(code), output: String::new(), errors: errors.into() }, "gridloom")
        };
        let cases = [
            (255, "ada@node-1: Permission denied (publickey).", "refuses the key", "ssh-copy-id"),
            (255, "ssh: connect to host node-1 port 22: Connection timed out", "does not answer", "'jump'"),
            (255, "Host key verification failed.\n", "host key", "log in once by hand"),
            (255, "ssh: Could not resolve hostname node-1: Name or service not known", "name is unknown", "address"),
            (127, "sh: 1: gridloom: not found", "no program 'gridloom'", "send = true"),
            (2, "gridloom: unrecognized subcommand 'host'", "another version", "install"),
            (0, "", "gave no answer", "by hand"),
        ];
        for (code, errors, what, remedy) in cases {
            let fault = meaning(code, errors);
            assert!(fault.why.contains(what) && fault.remedy.contains(remedy), "{} / {}", fault.why, fault.remedy);
            assert!(fault.why.ends_with(errors.trim()), "{}", fault.why);
            assert_eq!(fault.may_run, code == 0, "{}", fault.why);
        }
    }
}
