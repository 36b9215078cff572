//! `gridloom host`: the command that `gridloom up`, `status` and `down` run on each host by ssh. It starts parts of
//! the grid, checks them and ends them.
//!
//! ```text
//!  $XDG_STATE_HOME/gridloom/host/GRID/      for this user only
//!    LABEL.lock                             locked while the part is started, asked to drain or ended
//!    LABEL.json                             process, and the grid's id
//!    LABEL.out  LABEL.log                   standard output and error
//! ```
//!
//! **Invariants:** only a process that was started here for the same grid is ended: its number, start time and the
//! boot of the machine must match the record. The keys of a part are passed from standard input to that of the
//! part; they are in no file and in no command line. In an allocation of Slurm the command keeps running until the parts
//! that it has started have ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use gridloom_keys::{Bundle, GRID_VARIABLE, KEYS_VARIABLE, KeysFolder};
use gridloom_net::identity::FUNCTION_KEYS_VARIABLE;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::code::{PYTHON_PATH, python_path};
use super::copies::{self, ReceivedCopy};
use super::folders::{state_folder, working_folder};
use super::plan::{AGENT, CPUS, SERVER_LABEL};
use super::process::{Process, is_stopped, stop, wait_for};
use super::python::{Environment, PythonError, PythonSpec};
use super::request::{
    Action, Answer, CODE, Launch, Part, PartState, PythonCheck, Refusal, Reply, Request, RunRequest, StartRequest,
    State, StayOptions, VERSION,
};
use super::running;
use super::slurm::CPUS_VARIABLE;
use super::wait_for_end::wait_and_drain;
use crate::commands::{OwnFolder, hide_memory, print_json};

/// Free space that a log needs when a part starts.
const LOG_BYTES_MIN: usize = 64 << 10;
/// How often the output of a part is checked; there is no notification of it.
const PAUSE: Duration = Duration::from_millis(20);
/// A process on another host with the same home folder, or from before this host was rebooted, is assumed to run for this long.
const REMOTE_RECORD_LIMIT: Duration = Duration::from_secs(30 * 86400);
/// A process that was killed ends within this time.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Start, check or end parts of a grid on this host, as requested by a line on standard input
#[derive(clap::Args)]
pub struct Options {}

pub fn run(_: Options) -> Result<ExitCode> {
    hide_memory()?;
    let (mut line, mut input) = (String::new(), io::stdin().lock());
    input.read_line(&mut line).context("standard input")?;
    if let Some(request) = run_request(&line) {
        drop(input);
        return running::run(&request);
    }
    let mut staying = None;
    let answer = Answer { gridloom_host: VERSION.into(), result: answer(&line, input, &mut staying) };
    print_json(&serde_json::to_value(&answer)?)?;
    if let Some(RunningParts { host, labels, stay: until }) = staying {
        host.wait_for_end(&labels, &until)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the request for a process of a program, if it is one of this version.
fn run_request(line: &str) -> Option<RunRequest> {
    let request: Request = serde_json::from_str(line).ok().filter(|request: &Request| request.version == VERSION)?;
    match request.action {
        Action::Run(run) => Some(run),
        _ => None,
    }
}

/// Parts that this command has started and has to outlive.
struct RunningParts {
    host: LocalHost,
    labels: Vec<String>,
    stay: StayOptions,
}

fn of_error(error: &anyhow::Error) -> Refusal {
    match error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Refusal::Full(format!("{error:#}")),
        _ => Refusal::Other(format!("{error:#}")),
    }
}

/// `rest` is the input after the line.
fn answer(line: &str, rest: impl Read, staying: &mut Option<RunningParts>) -> Result<Reply, Refusal> {
    let other = |error: anyhow::Error| match error.downcast::<PythonError>() {
        Ok(PythonError { why, remedy }) => Refusal::Unfit { why, remedy },
        Err(error) => of_error(&error),
    };
    // Only the version is in the same place in all versions.
    let whole: Value = serde_json::from_str(line).map_err(|error| other(anyhow!("no request: {error}")))?;
    if whole["version"] != VERSION {
        return Err(Refusal::Version(VERSION.into()));
    }
    let request: Request = serde_json::from_value(whole).map_err(|error| other(anyhow!("no request: {error}")))?;
    let carry_out = || -> Result<Reply> {
        if let Action::Reach = &request.action {
            return Ok(Reply::Parts(Vec::new()));
        }
        if let Action::Receive { hash, bytes } = &request.action {
            let used = || used().into_iter().filter_map(|used| used.code).collect();
            let ReceivedCopy { copy, was_there } = copies::receive(hash, *bytes, rest, used)?;
            return Ok(Reply::Received { copy, was_there });
        }
        if let Action::Python(PythonCheck { python: asked, code, folder }) = &request.action {
            let (_, found) = look(asked, code.as_deref(), folder.as_deref())?;
            found.check()?;
            return Ok(Reply::Python(found));
        }
        let host = LocalHost::open(&request)?;
        if let Action::Start(StartRequest { stay: Some(stay), parts, .. }) = &request.action {
            let mut labels = Vec::new();
            for Part { launch, .. } in parts {
                labels.extend(host.running(&launch.label)?.is_none().then(|| launch.label.clone()));
            }
            *staying = Some(RunningParts { host: host.clone(), labels, stay: stay.clone() });
        }
        host.carry_out(request.action).map(Reply::Parts)
    };
    carry_out().map_err(other)
}

/// This machine, for one grid.
#[derive(Clone)]
struct LocalHost {
    folder: PathBuf,
    grid_id: String,
}

/// The record of a part.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    grid_id: String,
    process: Process,
    /// True if it was asked to drain.
    drains: bool,
    /// The copy of the program's folder that it uses.
    code: Option<String>,
    /// Its program; only in records of this release.
    program: Option<PathBuf>,
}

impl LocalHost {
    fn open(request: &Request) -> Result<LocalHost> {
        let folder = state_folder()?.join("host").join(&request.grid);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("the folder of the grid's logs '{}'", folder.display()))?;
        Ok(LocalHost { folder, grid_id: request.grid_id.clone() })
    }

    fn carry_out(&self, action: Action) -> Result<Vec<PartState>> {
        match action {
            Action::Start(start) => {
                // A record without it belongs to a part that an older release started.
                if let Some(used) = used().into_iter().map(|used| used.program).collect::<Option<Vec<PathBuf>>>() {
                    copies::remove_old_programs(&used).context("old copies of Gridloom")?;
                }
                let labels: Vec<String> = start.parts.iter().map(|part| part.launch.label.clone()).collect();
                // This may take a while: other commands may check these parts meanwhile.
                let pythons = start.parts.iter().map(|part| python_of(&part.launch, &start)).collect();
                self.lock(&labels).and_then(|_held| self.start(&start, pythons))
            }
            Action::Receive { .. } | Action::Python(_) | Action::Reach | Action::Run(_) => {
                unreachable!("the request names no part")
            }
            Action::Look { labels } => labels.iter().map(|label| self.look(label)).collect(),
            Action::Drain { labels, wait_s } => self.drain(&labels, Duration::from_secs_f64(wait_s)),
            Action::End { labels, grace_s } => {
                self.lock(&labels).and_then(|_held| self.end(&labels, Duration::from_secs_f64(grace_s)))
            }
        }
    }

    /// Locks out other commands from these parts until the result is dropped. Each part has a lock of its own: hosts
    /// with the same home folder start their servers at the same time.
    fn lock(&self, labels: &[String]) -> Result<Vec<File>> {
        let lock = |label: &String| -> Result<File> {
            let lock = File::create(self.file(label, "lock")).with_context(|| format!("the lock of '{label}'"))?;
            flock(&lock, FlockOperation::LockExclusive).with_context(|| format!("the lock of '{label}'"))?;
            Ok(lock)
        };
        labels.iter().collect::<BTreeSet<_>>().into_iter().map(lock).collect()
    }

    fn file(&self, label: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{label}.{kind}"))
    }

    /// Starts the parts one after the other, because the agent must run before a server. Stops at the first failure.
    fn start(&self, start: &StartRequest, pythons: Vec<Result<Option<FoundPython>>>) -> Result<Vec<PartState>> {
        let mut states = Vec::new();
        for (part, python) in start.parts.iter().zip(pythons) {
            let launch = &part.launch;
            let state = match self.running(&launch.label)? {
                Some(running) if running.drains => bail!("'{}' drains: start it again when it has ended", launch.label),
                // The part runs although its Python lacks something; the reply reports what.
                Some(_) => {
                    let python = python.ok().flatten().map(|(_, found)| found);
                    self.answering(launch, start, PartState { python, ..self.look(&launch.label)? })?
                }
                None => self.start_one(part, start, python?)?,
            };
            let is_failed = state.state == State::Failed;
            states.push(state);
            if is_failed {
                break;
            }
        }
        Ok(states)
    }

    fn start_one(&self, part: &Part, start: &StartRequest, python: Option<FoundPython>) -> Result<PartState> {
        let launch = &part.launch;
        python.iter().try_for_each(|(_, found)| found.check())?;
        let log = self.new_log(&launch.label)?;
        let out = File::create(self.file(&launch.label, "out")).context("a file for its output")?;
        let program = std::env::current_exe().context("this program's own path")?;
        let mut command = Command::new(&program);
        let code = launch.code.as_deref().map(copies::path).transpose()?;
        if let Some(code) = &code {
            ensure!(
                code.is_dir(),
                "the copy '{}' of the program's folder no longer exists: start again",
                code.display()
            );
            command.env(PYTHON_PATH, python_path(code)?);
        }
        let words = launch.arguments.iter().map(|word| match (word.split_once(CODE), &code) {
            (Some((before, file)), Some(code)) => {
                let mut word = OsString::from(before);
                word.push(code.join(file));
                word
            }
            _ if word == CPUS => allocated_cpus().into(),
            _ => word.into(),
        });
        command.args(words);
        if let Some((file, _)) = &python {
            command.arg("--python").arg(file);
        }
        command.args(["--json", "--keys-on-stdin"]).env_remove(FUNCTION_KEYS_VARIABLE);
        command.stdin(Stdio::piped()).stdout(out).stderr(log);
        let folder = working_folder(start.folder.as_deref())?;
        command.current_dir(&folder).env("PWD", &folder);
        // Signals to this command's process group must not reach the part.
        command.process_group(0);
        // The part inherits these locks.
        let _held: Vec<File> =
            code.iter().chain(copies::program_copy(&program)).filter_map(|copy| copies::mark_in_use(copy)).collect();
        let mut child = command.spawn().with_context(|| format!("'{}' in '{}'", launch.label, folder.display()))?;
        let record = |process| {
            let (grid_id, code) = (self.grid_id.clone(), launch.code.clone());
            Record { grid_id, process, drains: false, code, program: Some(program) }
        };
        let written = Process::of(child.id()).and_then(|process| self.write(&launch.label, &record(process)));
        if let Err(error) = written {
            stop(&mut child);
            return Err(error);
        }
        if let Some(mut stdin) = child.stdin.take() {
            // A part that has ended reports why in its log.
            let _ = stdin.write_all(format!("{}\n", part.keys).as_bytes());
        }
        let until = Instant::now() + Duration::from_secs_f64(start.wait_s);
        let why = loop {
            if self.ready(&launch.label).is_some() {
                return Ok(PartState { python: python.map(|(_, found)| found), ..self.look(&launch.label)? });
            }
            if child.try_wait()?.is_some() {
                break self.last_line(&launch.label).unwrap_or_else(|| "it ended at once, without a message".into());
            }
            if Instant::now() > until {
                let said = self.last_line(&launch.label).map(|line| format!("; its log: {line}")).unwrap_or_default();
                break format!("it has not registered with the agent within {} s{said}", start.wait_s);
            }
            std::thread::sleep(PAUSE);
        };
        stop(&mut child);
        Ok(PartState { state: State::Failed, why: Some(why), pid: None, ..self.look(&launch.label)? })
    }

    /// Checks that a running part answers: an agent must answer a client, and a server must be registered with the agent.
    fn answering(&self, launch: &Launch, start: &StartRequest, state: PartState) -> Result<PartState> {
        let failed = |why: String| PartState { state: State::Failed, why: Some(why), ..state.clone() };
        if let Some(pid) = state.pid.filter(|pid| is_stopped(*pid)) {
            return Ok(failed(format!("process {pid} is stopped; continue it with 'kill -CONT {pid}', or kill it")));
        }
        let of_server = launch.arguments.windows(2).find(|pair| pair[0] == "--agent").map(|pair| pair[1].clone());
        let Some(agent) = of_server.clone().or_else(|| state.address.clone()) else { return Ok(state) };
        let program = std::env::current_exe().context("this program's own path")?;
        let keys = OwnFolder::new("host")?;
        KeysFolder::at(&keys.0).store(&Bundle::from_pem(start.client_keys.as_bytes())?)?;
        let until = Instant::now() + Duration::from_secs_f64(start.wait_s);
        loop {
            let mut command = Command::new(&program);
            command.args(["servers", "--json", "--agent", &agent]).env(KEYS_VARIABLE, &keys.0);
            command.env_remove(GRID_VARIABLE).env_remove(FUNCTION_KEYS_VARIABLE);
            let output = command.stdin(Stdio::null()).output()?;
            let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let mut names = listed["servers"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
            let why = match output.status.success() {
                true if of_server.is_none()
                    || names.any(|name| launch.label.strip_prefix(SERVER_LABEL) == Some(name)) =>
                {
                    return Ok(state);
                }
                true => format!("it is not registered with the agent at {agent}"),
                false => String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("gridloom: ").to_string(),
            };
            if Instant::now() > until {
                return Ok(failed(why));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Creates a log that has free space: a part that cannot log an error would fail silently.
    fn new_log(&self, label: &str) -> Result<File> {
        let path = self.file(label, "log");
        let trial = || -> io::Result<File> {
            let mut file = File::create(&path)?;
            file.write_all(&[b'\n'; LOG_BYTES_MIN])?;
            file.sync_all()?;
            file.set_len(0)?;
            drop(file);
            File::options().append(true).open(&path)
        };
        trial().with_context(|| format!("its log '{}'", path.display()))
    }

    fn write(&self, label: &str, record: &Record) -> Result<()> {
        // The record is written atomically: a process without a record would never be ended.
        let (path, part) = (self.file(label, "json"), self.file(label, "part"));
        let written = fs::write(&part, serde_json::to_string(record)?).and_then(|()| fs::rename(&part, &path));
        written.with_context(|| path.display().to_string())
    }

    /// Returns the record of the part, if it runs.
    fn running(&self, label: &str) -> Result<Option<Record>> {
        let path = self.file(label, "json");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| path.display().to_string())?,
        };
        let record: Record = serde_json::from_str(&text).with_context(|| {
            let file = path.display();
            format!("'{file}' was written by another version of Gridloom, or damaged: end '{label}' by hand, and delete that file")
        })?;
        if !record.process.runs() {
            return Ok(None);
        }
        if record.grid_id != self.grid_id {
            bail!(
                "another grid of that name runs '{label}' here as this user, process {}: choose another --name",
                record.process.pid
            );
        }
        Ok(Some(record))
    }

    /// Waits until these parts have ended. The servers among them drain before the allocation ends.
    fn wait_for_end(&self, labels: &[String], until: &StayOptions) -> Result<()> {
        let mut left = Vec::new();
        for label in labels {
            left.extend(self.running(label)?.map(|running| running.process));
        }
        let servers: Vec<String> = labels.iter().filter(|label| *label != AGENT).cloned().collect();
        wait_and_drain(left, until, || self.drain(&servers, Duration::ZERO).map(drop))
    }

    fn look(&self, label: &str) -> Result<PartState> {
        let running = self.running(label)?;
        Ok(PartState {
            label: label.into(),
            state: match &running {
                None => State::Ended,
                Some(running) if running.drains => State::Drains,
                Some(_) => State::Runs,
            },
            address: self.ready(label),
            log: self.file(label, "log").display().to_string(),
            why: if running.is_some() { None } else { self.last_line(label) },
            pid: running.as_ref().map(|running| running.process.pid),
            code: running.and_then(|running| running.code),
            python: None,
        })
    }

    /// Returns its address, once it has registered.
    fn ready(&self, label: &str) -> Option<String> {
        let text = fs::read_to_string(self.file(label, "out")).ok()?;
        let line: Value = serde_json::from_str(text.lines().next()?).ok()?;
        Some(line["address"].as_str()?.to_string())
    }

    fn last_line(&self, label: &str) -> Option<String> {
        let text = fs::read(self.file(label, "log")).ok()?;
        let text = String::from_utf8_lossy(&text);
        text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_string)
    }

    /// Asks each part to drain, then waits for all of them, at most `wait`.
    fn drain(&self, labels: &[String], wait: Duration) -> Result<Vec<PartState>> {
        let mut left = Vec::new();
        // A part that is being started does not handle the signal yet, and would be killed by it.
        let held = self.lock(labels)?;
        for label in labels {
            let Some(record) = self.running(label)? else { continue };
            if !record.drains {
                self.write(label, &Record { drains: true, ..record.clone() })?;
            }
            let process = record.process;
            // A part that was asked before is signalled again: that command may have ended before it sent the signal.
            process.signal(Signal::USR1)?;
            left.push(process);
        }
        drop(held);
        wait_for(&mut left, Instant::now() + wait)?;
        labels.iter().map(|label| self.look(label)).collect()
    }

    /// Signals all parts, then waits for all of them.
    fn end(&self, labels: &[String], grace: Duration) -> Result<Vec<PartState>> {
        let mut left = Vec::new();
        for label in labels {
            left.extend(self.running(label)?.map(|running| running.process));
        }
        for process in &left {
            process.signal(Signal::TERM)?;
        }
        wait_for(&mut left, Instant::now() + grace)?;
        left.iter().try_for_each(Process::kill)?;
        wait_for(&mut left, Instant::now() + KILL_TIMEOUT)?;
        if let Some(process) = left.first() {
            bail!("process {} cannot be killed", process.pid);
        }
        for label in labels {
            match fs::remove_file(self.file(label, "json")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("what is written down of '{label}'"));
                }
                _ => {}
            }
        }
        labels.iter().map(|label| self.look(label)).collect()
    }
}

/// An interpreter and its packages.
type FoundPython = (PathBuf, Environment);

/// Returns the Python that runs the functions of a part.
fn python_of(launch: &Launch, start: &StartRequest) -> Result<Option<FoundPython>> {
    let asked = launch.python.as_ref();
    asked.map(|asked| look(asked, launch.code.as_deref(), start.folder.as_deref())).transpose()
}

fn look(asked: &PythonSpec, code: Option<&str>, folder: Option<&str>) -> Result<FoundPython> {
    let file = asked.file(&working_folder(folder)?)?;
    let code = code.map(copies::path).transpose()?;
    let found = asked.inspect(&file, code.as_deref())?;
    Ok((file, found))
}

/// Returns the records of running parts of this user's grids, also on other hosts with the same home folder.
fn used() -> Vec<Record> {
    let read = |file: &Path| -> Option<Record> { serde_json::from_str(&fs::read_to_string(file).ok()?).ok() };
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let grids = state_folder().map(|folder| entries(folder.join("host"))).into_iter().flatten();
    let files = grids.flat_map(entries).filter(|file| file.extension().is_some_and(|kind| kind == "json"));
    let is_recent = |file: &Path| {
        let written = fs::metadata(file).and_then(|file| file.modified());
        written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age < REMOTE_RECORD_LIMIT))
    };
    let runs =
        |file: &Path, record: &Record| record.process.runs() || record.process.is_on_other_boot() && is_recent(file);
    files.filter_map(|file| read(&file).filter(|record| runs(&file, record))).collect()
}

/// Returns the number of processors that the allocation has on this node.
fn allocated_cpus() -> String {
    let of_job = std::env::var(CPUS_VARIABLE).ok().filter(|text| text.parse::<u32>().is_ok_and(|cpus| cpus > 0));
    of_job.unwrap_or_else(|| gridloom_resources::processors().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later release reads the records of parts that an earlier one started.
    #[test]
    fn the_names_in_the_record_of_a_part_are_fixed() {
        let process = Process::of(std::process::id()).unwrap();
        let record = Record { grid_id: "1".into(), process, drains: false, code: None, program: None };
        let found = crate::key_paths::key_paths(&serde_json::to_string(&record).unwrap());
        assert_eq!(found, include_str!("../../../tests/formats/up_part.keys"));
    }

    #[test]
    fn parts_have_locks_of_their_own() {
        let folder = std::env::temp_dir().join(format!("gridloom-host-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let host = LocalHost { folder: folder.clone(), grid_id: "1".into() };
        let _held = host.lock(&["server-a".into()]).unwrap();
        // Without the check for duplicates this would deadlock.
        let _other = host.lock(&["server-b".into(), "server-b".into()]).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_request_of_another_version_is_refused_whatever_it_holds() {
        let refused = answer(r#"{"version": "99.0.0", "unknown": true}"#, io::empty(), &mut None);
        assert_eq!(refused, Err(Refusal::Version(VERSION.into())));
    }
}
