//! Requests to a host: sends them, reads the answer, and explains failures and their remedies.
//!
//! Requests are sent through the standard input of a command that reaches the host. The modules `ssh` and `slurm`
//! define such commands.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::copies::ReceivedCopy;
use super::fault::{CommandOutput, Fault, HostFailure, last_line};
use super::folders::step_log;
use super::pipe_reader::PipeReader;
use super::progress_reader::ProgressReader;
use super::python::Environment;
use super::request::{Action, Answer, PartState, Refusal, Reply, Request, VERSION};
use super::slurm::Step;
use super::ssh::Ssh;

/// Time limit for ssh's last output after it has ended.
const LAST_OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// A host, and the program there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub connection: Connection,
    /// Command of the program there, quoted for its shell.
    pub gridloom: String,
    /// True if it is a copy of the local program, which is sent when it is missing.
    #[serde(default)]
    pub is_sent: bool,
}

/// How a host is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connection {
    Ssh(Ssh),
    Slurm(Step),
}

impl Connection {
    /// Returns the command and arguments that precede the command on the host.
    fn command_prefix(&self) -> Vec<String> {
        match self {
            Connection::Ssh(ssh) => ssh.command_prefix(),
            Connection::Slurm(step) => step.command_prefix(),
        }
    }

    /// Returns why the host was not reached; `None` if it was reached and the command failed.
    fn failure(&self, said: &CommandOutput) -> Option<Fault> {
        match self {
            Connection::Ssh(ssh) => ssh.failure(said),
            Connection::Slurm(step) => step.failure(said),
        }
    }

    /// Returns why nothing can run there any more, if that is so.
    fn lost(&self) -> Option<String> {
        match self {
            Connection::Ssh(_) => None,
            Connection::Slurm(step) => step.lost(),
        }
    }

    /// True if the processes that a command has started end with the command.
    pub fn ends_with_command(&self) -> bool {
        matches!(self, Connection::Slurm(_))
    }

    /// Returns the seconds within which the host must connect, in addition to the time for the request.
    fn connect_s(&self) -> u32 {
        match self {
            Connection::Ssh(ssh) => ssh.connect_s,
            Connection::Slurm(_) => STEP_S,
        }
    }
}

/// Exit status of a shell that does not find the program.
const NOT_FOUND: i32 = 127;
/// Number of bytes written at once.
const PART_BYTES: usize = 64 << 10;
/// Limit for a host that receives data: it is reported if it accepts nothing for this long, or does not answer this
/// long after the last byte. ssh and the network buffer some of the data.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// Seconds until a step of Slurm runs.
const STEP_S: u32 = 60;

/// A copy of this program, for hosts.
struct ProgramCopy {
    file: PathBuf,
    /// Name of the copy, derived from its content.
    name: String,
    bytes: usize,
}

impl ProgramCopy {
    /// Returns the path of the program there, quoted for a shell.
    fn path(&self) -> String {
        format!("~/.cache/gridloom/bin/{}", self.name)
    }
}

/// Writes a path for the shell of a host, which expands `~` and variables unless the path has blanks.
fn shell_word(path: &str) -> Cow<'_, str> {
    if !path.contains(char::is_whitespace) {
        return path.into();
    }
    let (home, rest) = path.strip_prefix("~/").map_or(("", path), |rest| ("~/", rest));
    format!("{home}'{}'", rest.replace('\'', r"'\''")).into()
}

impl Target {
    /// Returns the command that was run, for messages.
    fn command_text(&self, command: &str) -> String {
        let words = self.connection.command_prefix();
        let words = words.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { word.clone() });
        format!("{} {command}", words.collect::<Vec<_>>().join(" "))
    }

    /// Sends a request to the host. It has `limit` for its answer, in addition to the time to connect.
    ///
    /// If parts end with the command that has started them, the command keeps running, and writes later messages to a file.
    pub fn request(&self, host: &str, request: &Request, limit: Duration) -> Result<Vec<PartState>, HostFailure> {
        match self.request_with_input(host, request, &[], limit)? {
            Reply::Parts(states) => Ok(states),
            Reply::Received { .. } | Reply::Python(_) => {
                unreachable!("it was asked about parts, by a program of this version")
            }
        }
    }

    /// Sends the folder of a program to the host, unless the host has a copy.
    pub fn send_code(&self, host: &str, request: &Request, archive: &[u8]) -> Result<ReceivedCopy, HostFailure> {
        match self.request_with_input(host, request, archive, SILENCE_LIMIT)? {
            Reply::Received { copy, was_there } => Ok(ReceivedCopy { copy, was_there }),
            Reply::Parts(_) | Reply::Python(_) => {
                unreachable!("it was asked about a folder, by a program of this version")
            }
        }
    }

    /// Returns the Python environment of a server.
    pub fn python(&self, host: &str, request: &Request, limit: Duration) -> Result<Environment, HostFailure> {
        match self.request_with_input(host, request, &[], limit)? {
            Reply::Python(found) => Ok(found),
            Reply::Parts(_) | Reply::Received { .. } => {
                unreachable!("it was asked about Python, by a program of this version")
            }
        }
    }

    /// A copy of the program may have another version than this one, or may have been removed: then this program is sent.
    fn request_with_input(
        &self,
        host: &str,
        request: &Request,
        more: &[u8],
        limit: Duration,
    ) -> Result<Reply, HostFailure> {
        if !self.is_sent {
            return self.send_to_program(&self.gridloom, host, request, more, limit);
        }
        let unreadable = |error: &std::io::Error| {
            Fault::new(format!("cannot read this program's own file: {error}"), "install it").at(host, "a copy".into())
        };
        let copy = own_copy().as_ref().map_err(unreadable)?;
        match self.send_to_program(&copy.path(), host, request, more, limit) {
            Err(trouble) if trouble.is_missing => {
                self.send(host, copy)?;
                self.send_to_program(&copy.path(), host, request, more, limit)
            }
            answered => answered,
        }
    }

    /// Returns the words of the command that carries out a request there, whose input begins with the request.
    pub fn host_command(&self) -> Result<Vec<String>, std::io::Error> {
        let program = match self.is_sent {
            true => own_copy().as_ref().map_err(|error| std::io::Error::new(error.kind(), error.to_string()))?.path(),
            false => self.gridloom.clone(),
        };
        let mut words = self.connection.command_prefix();
        words.push(format!("{} host", shell_word(&program)));
        Ok(words)
    }

    fn send_to_program(
        &self,
        program: &str,
        host: &str,
        request: &Request,
        more: &[u8],
        limit: Duration,
    ) -> Result<Reply, HostFailure> {
        let command = format!("{} host", shell_word(program));
        let trouble = |fault: Fault| fault.at(host, self.command_text(&command));
        let errors = match &request.action {
            Action::Start(_) if self.connection.ends_with_command() => Some(step_log(&request.grid, host)),
            _ => None,
        };
        let errors = errors.transpose().map_err(|error| trouble(Fault::new(format!("{error:#}"), FULL)))?;
        let mut text = serde_json::to_string(request).expect("text and numbers");
        text.push('\n');
        let all = text.as_bytes().chain(more);
        let mut input = ProgressReader::new(all, host, "the folder of code", (text.len() + more.len()) as u64);
        let said = self.run(&command, &mut input, limit, errors.as_deref()).map_err(trouble)?;
        match said.output.lines().rev().find_map(read_answer).map(|answer| answer.result) {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(refusal)) => Err(trouble(refused(refusal))),
            None => match (request.action.labels(), self.connection.lost()) {
                (Some(labels), Some(why)) => {
                    Ok(Reply::Parts(labels.iter().map(|label| PartState::lost(label, &why)).collect()))
                }
                _ => Err(HostFailure {
                    is_missing: is_not_found(&said),
                    ..trouble(no_answer(&said, program, &self.connection))
                }),
            },
        }
    }

    /// Puts a copy of this program on the host, unless it exists.
    fn send(&self, host: &str, copy: &ProgramCopy) -> Result<(), HostFailure> {
        let path = copy.path();
        let folder = "~/.cache/gridloom/bin";
        let (part, bytes) = (format!("{folder}/.{}.$$", copy.name), copy.bytes);
        // The copy gets its name when it is complete, because a lost connection looks like the end of the input. Hosts
        // may share the folder: a copy that another host has put there meanwhile may already run.
        let script = format!(
            "umask 077; test -x {path} && exit 0; mkdir -p {folder} && cat > {part} && test $(wc -c < {part}) -eq {bytes} && \
             chmod 700 {part} && {{ test -x {path} || mv {part} {path}; }} && rm -f {part} || {{ rm -f {part}; exit 73; }}"
        );
        let command = format!("exec sh -c '{script}'");
        let trouble = |fault: Fault| fault.at(host, self.command_text("sh, with this program as its input"));
        let unreadable =
            |error| trouble(Fault::new(format!("cannot read '{}': {error}", copy.file.display()), "install it"));
        let file = File::open(&copy.file).map_err(unreadable)?;
        let mut input = ProgressReader::new(file, host, "this program", copy.bytes as u64);
        let said = self.run(&command, &mut input, SILENCE_LIMIT, None).map_err(trouble)?;
        match said.code {
            Some(0) => Ok(()),
            Some(73) if said.errors.contains("No space left") || said.errors.contains("quota exceeded") => {
                let room =
                    "make room in the home folder there, or install Gridloom elsewhere and name it with 'gridloom'";
                Err(trouble(Fault::new(format!("no room for the program: {}", last_line(&said.errors)), room)))
            }
            _ => Err(trouble(Fault { may_run: false, ..no_answer(&said, "sh", &self.connection) })),
        }
    }

    /// Runs a command there with that input. It is killed if for `limit`, in addition to the time to connect, it has
    /// neither accepted input nor answered. If `stays` is given, the command keeps running after its answer, and
    /// `stays` is the file of its standard error.
    fn run(
        &self,
        command: &str,
        input: &mut dyn Read,
        limit: Duration,
        stays: Option<&Path>,
    ) -> Result<CommandOutput, Fault> {
        let words = self.connection.command_prefix();
        let cannot_run = |error: std::io::Error| {
            let program = &words[0];
            Fault::new(format!("cannot run '{program}': {error}"), "install it; --ssh names another ssh")
        };
        let stderr = match stays {
            None => Stdio::piped(),
            Some(file) => File::create(file).map_err(cannot_run)?.into(),
        };
        let mut run = Command::new(&words[0]);
        run.args(&words[1..]).arg(command);
        if stays.is_some() {
            // Terminal signals that end this command must not end it.
            run.process_group(0);
        }
        let run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = run.spawn().map_err(cannot_run)?;
        let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let limit = limit + Duration::from_secs(u64::from(self.connection.connect_s()));
        let is_to_stay = stays.is_some();
        let is_last = move |line: &str| is_to_stay && read_answer(line).is_some();
        let output = PipeReader::of(stdout.expect("a pipe"), is_last);
        let errors = stderr.map(|pipe| PipeReader::of(pipe, |_| false));
        let pid = child.id();
        let (passes, has_passed) = std::sync::mpsc::channel::<()>();
        let guard = std::thread::spawn(move || {
            let is_late = loop {
                match has_passed.recv_timeout(limit) {
                    Ok(()) => {}
                    Err(ended) => break ended == RecvTimeoutError::Timeout,
                }
            };
            if is_late {
                // Its parent waits for it only after this thread has ended, so the number is still valid.
                let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
                let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
            }
            is_late
        });
        let mut part = vec![0; PART_BYTES];
        // A host that refuses closes the pipe: the exit status and the output explain why.
        while let (Some(stdin), Ok(bytes @ 1..)) = (&mut stdin, input.read(&mut part)) {
            if stdin.write_all(&part[..bytes]).is_err() {
                break;
            }
            let _ = passes.send(());
        }
        drop(stdin);
        output.wait(None);
        drop(passes);
        let is_late = guard.join().unwrap_or(true);
        let code = match output.has_last_line() {
            true => None,
            false => child.wait().map_err(cannot_run)?.code(),
        };
        let errors = match (errors, stays) {
            // A connection to a jump host, or one that ssh keeps for later, may hold standard error open.
            (Some(errors), _) => {
                errors.wait(Some(LAST_OUTPUT_LIMIT));
                errors.text()
            }
            (None, Some(file)) => std::fs::read_to_string(file).map_err(cannot_run)?,
            (None, None) => String::new(),
        };
        let output = output.text();
        if is_late {
            let why = format!("does not answer: nothing was transferred for {} s", limit.as_secs());
            return Err(Fault { may_run: true, ..Fault::new(why, "check that host, or raise --wait") });
        }
        Ok(CommandOutput { code, output, errors })
    }
}

const FULL: &str =
    "make room on that host, or set XDG_STATE_HOME (logs) or XDG_CACHE_HOME (copies) there to a folder of another disk";

fn refused(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Version(there) => Fault::new(
            format!("gridloom has version {there} there, and {VERSION} here"),
            "install the same version there, or let 'up' copy this program: send = true",
        ),
        Refusal::Full(why) => Fault::new(format!("no room: {why}"), FULL),
        Refusal::Unfit { why, remedy } => Fault::new(why, &remedy),
        Refusal::Other(why) => Fault { may_run: true, ..Fault::new(why, "correct it there, then start again") },
    }
}

fn read_answer(line: &str) -> Option<Answer> {
    serde_json::from_str(line).ok()
}

/// True if a login shell did not find the program. csh and tcsh exit with status 1 in this case.
fn is_not_found(said: &CommandOutput) -> bool {
    said.code == Some(NOT_FOUND) || said.code == Some(1) && last_line(&said.errors).ends_with(": Command not found.")
}

/// Returns why there is no answer of `gridloom host`.
fn no_answer(said: &CommandOutput, program: &str, way: &Connection) -> Fault {
    if let Some(fault) = way.failure(said) {
        return fault;
    }
    // srun's message about a failed command is less specific than the command's own.
    let own: Vec<&str> = said.errors.lines().filter(|line| !line.starts_with("srun: ")).collect();
    let line = last_line(&own.join("\n"));
    let has = |text: &str| said.errors.contains(text);
    let install =
        "install Gridloom there; name its program with the property 'gridloom', or let 'up' copy this one: send = true";
    let is_missing = is_not_found(said);
    let (what, remedy) = match said.code {
        _ if is_missing => ("there is no program 'gridloom' on its path", install),
        Some(126) if has("Exec format error") || has("cannot execute binary file") => {
            ("the program is for another kind of machine", "build Gridloom for that machine and install it there")
        }
        Some(126) => ("its program cannot be run", install),
        Some(2) if has("unrecognized subcommand") => ("its gridloom has another version", install),
        Some(_) if has("GLIBC_") => {
            ("its system is older than the program", "install the wheel of 'make wheel-portable'")
        }
        _ => ("it did not answer", "try the same command by hand: it should print a line of JSON"),
    };
    let code = said.code.map_or("a signal".to_string(), |code| format!("exit status {code}"));
    let program = if is_missing && program != "gridloom" { format!(" ('{program}')") } else { String::new() };
    let may_run = !is_missing && !matches!(said.code, Some(2 | 126));
    let said = if line.is_empty() { code } else { line };
    Fault { may_run, ..Fault::new(format!("{what}{program}: {said}"), remedy) }
}

/// Returns this program, to be copied.
fn own_copy() -> &'static std::io::Result<ProgramCopy> {
    static OWN: OnceLock<std::io::Result<ProgramCopy>> = OnceLock::new();
    OWN.get_or_init(read_own)
}

fn read_own() -> std::io::Result<ProgramCopy> {
    let file = std::env::current_exe()?;
    let content = std::fs::read(&file)?;
    let mut hash = gridloom_base::Fnv::default();
    content.iter().for_each(|byte| hash.byte(*byte));
    Ok(ProgramCopy { name: format!("gridloom-{VERSION}-{:016x}", hash.0), bytes: content.len(), file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_path_has_blanks_is_one_word_for_the_shell() {
        for (path, word) in [
            ("gridloom", "gridloom"),
            ("~/venv/bin/gridloom", "~/venv/bin/gridloom"),
            ("/opt/my tools/gridloom", "'/opt/my tools/gridloom'"),
            ("~/Anna's tools/gridloom", r"~/'Anna'\''s tools/gridloom'"),
        ] {
            assert_eq!(shell_word(path), word);
        }
    }

    fn target(ssh: Vec<String>) -> Target {
        let ssh = Ssh { ssh, destination: "node-1".into(), user: None, port: None, jump: None, connect_s: 7 };
        Target { connection: Connection::Ssh(ssh), gridloom: "gridloom".into(), is_sent: false }
    }

    /// Like `ssh -W` to a jump host, or a connection that is kept for later.
    #[test]
    fn a_process_that_ssh_leaves_keeps_nobody() {
        let left = "echo refused >&2; sleep 60 >/dev/null & echo $!; exit 255";
        let ssh = vec!["sh".into(), "-c".into(), left.into()];
        let said = target(ssh).run("command", &mut std::io::empty(), Duration::from_secs(60), None);
        let said = said.unwrap_or_else(|fault| panic!("{}", fault.why));
        let pid = said.output.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs on");
        assert_eq!((said.code, said.errors.trim()), (Some(255), "refused"));
    }

    #[test]
    fn a_host_that_takes_no_more_is_abandoned() {
        let ssh = vec!["sh".into(), "-c".into(), "head -c 100000 >/dev/null; exec sleep 1000".into()];
        let mut target = target(ssh);
        let Connection::Ssh(ssh) = &mut target.connection else { unreachable!("made above") };
        ssh.connect_s = 0;
        let mut input = std::io::repeat(b'x').take(1 << 20);
        let fault = target.run("command", &mut input, Duration::from_millis(200), None).err().unwrap();
        assert!(fault.may_run && fault.why.contains("nothing was transferred for"), "{}", fault.why);
    }

    #[test]
    fn errors_of_ssh_have_names_and_remedies() {
        let meaning = |code: i32, errors: &str| {
            let said = CommandOutput { code: Some(code), output: String::new(), errors: errors.into() };
            no_answer(&said, "gridloom", &target(vec!["ssh".into()]).connection)
        };
        let cases = [
            (255, "ada@node-1: Permission denied (publickey).", "refuses the key", "ssh-copy-id"),
            (255, "ssh: connect to host node-1 port 22: Connection timed out", "does not answer", "'jump'"),
            (255, "Host key verification failed.\n", "host key", "log in once by hand"),
            (255, "ssh: Could not resolve hostname node-1: Name or service not known", "name is unknown", "address"),
            (127, "sh: 1: gridloom: not found", "no program 'gridloom'", "send = true"),
            (1, "gridloom: Command not found.", "no program 'gridloom'", "send = true"),
            (2, "gridloom: unrecognized subcommand 'host'", "another version", "install"),
            (0, "", "did not answer", "by hand"),
        ];
        for (code, errors, what, remedy) in cases {
            let fault = meaning(code, errors);
            assert!(fault.why.contains(what) && fault.remedy.contains(remedy), "{} / {}", fault.why, fault.remedy);
            assert!(fault.why.ends_with(errors.trim()), "{}", fault.why);
            assert_eq!(fault.may_run, code == 0, "{}", fault.why);
        }
    }
}
