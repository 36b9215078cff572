//! A process of a program on this host, as `gridloom deploy` requests it.
//!
//! The process is ended when standard input closes, that is, when the connection or `gridloom deploy` ends. All processes of
//! its process group end with it: if the command is a script, the program is another process. Its keys are in a folder
//! of this user, which exists as long as this command.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gridloom::process::READY_FILE_VARIABLE;
use gridloom_keys::{Bundle, GRID_VARIABLE, KEYS_VARIABLE, KeysFolder};
use gridloom_net::identity::FUNCTION_KEYS_VARIABLE;
use gridloom_net::process::PROCESS_VARIABLES;
use gridloom_testbed::fleet::END_GRACE;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::folders::working_folder;
use super::process::{Process, wait_for};
use super::request::RunRequest;
use crate::commands::OwnFolder;

/// Time between checks whether a process of the group still runs.
const POLL: Duration = Duration::from_millis(10);

/// Runs the process, and returns its exit status.
pub fn run(request: &RunRequest) -> Result<ExitCode> {
    let own = OwnFolder::new("host")?;
    let (keys, ready) = (own.0.join("keys"), own.0.join("ready"));
    KeysFolder::at(&keys).store(&Bundle::from_pem(request.keys.as_bytes())?)?;
    let (program, arguments) = request.command.split_first().context("the command is empty")?;
    let folder = working_folder(request.folder.as_deref())?;
    let mut command = Command::new(program);
    PROCESS_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command.args(arguments).envs(request.environment.iter().map(|(name, value)| (name, value)));
    command.env(READY_FILE_VARIABLE, &ready).env(KEYS_VARIABLE, &keys);
    command.env_remove(GRID_VARIABLE).env_remove(FUNCTION_KEYS_VARIABLE);
    command.current_dir(&folder).env("PWD", &folder).stdin(Stdio::null()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot run '{program}' in '{}'", folder.display()))?;
    let process = Process::of(child.id())?;
    let kill_at = Arc::new(OnceLock::new());
    thread::spawn({
        let (process, kill_at) = (process.clone(), kill_at.clone());
        move || end_with_input(process, &kill_at)
    });
    let status = wait_for_group(&mut child, &process, &kill_at)?;
    if status.success() && !ready.exists() {
        gridloom_base::stderr_line!(
            "gridloom: it ended without asking which process it is: '{program}' does not run Gridloom processes, or ended \
             before it ran them"
        );
        return Ok(ExitCode::FAILURE);
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Waits for the end of standard input, then ends the process group; sets the time at which it is killed.
fn end_with_input(process: Process, kill_at: &OnceLock<Instant>) {
    // An error is an end, too.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let until = *kill_at.get_or_init(|| Instant::now() + END_GRACE);
    // It may have ended already.
    let _ = process.signal_group(Signal::TERM);
    let _ = wait_for(&mut vec![process.clone()], until);
    if process.runs() {
        let _ = process.kill();
    }
}

/// Waits for the end of the process, then kills the rest of its group: at once, or at the time that is set.
fn wait_for_group(child: &mut Child, process: &Process, kill_at: &OnceLock<Instant>) -> Result<ExitStatus> {
    // The number of the process stays in use until `Child::wait`, so the group is not another one.
    let own = WaitId::Pid(Pid::from_child(child));
    retry_on_intr(|| waitid(own.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT))?;
    if let Some(until) = kill_at.get() {
        while process.group_runs() && Instant::now() < *until {
            thread::sleep(POLL);
        }
    }
    // Only processes of another user can be left.
    let _ = process.kill();
    Ok(child.wait()?)
}
