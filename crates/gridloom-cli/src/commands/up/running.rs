//! A process of a program on this host, as `gridloom deploy` requests it.
//!
//! The process is ended when standard input closes, that is, when the connection or `gridloom deploy` ends. Its keys are in
//! a folder of this user, which exists as long as this command.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use gridloom::process::READY_FILE_VARIABLE;
use gridloom_keys::{Bundle, GRID_VARIABLE, KEYS_VARIABLE, KeysFolder};
use gridloom_net::identity::FUNCTION_KEYS_VARIABLE;
use gridloom_net::process::PROCESS_VARIABLES;
use gridloom_testbed::fleet::END_GRACE;
use rustix::process::Signal;

use super::folders::working_folder;
use super::process::{Process, wait_for};
use super::request::RunRequest;
use crate::commands::OwnFolder;

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
    std::thread::spawn(move || end_with_input(process));
    let status = child.wait()?;
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

/// Waits for the end of standard input, then ends the process.
fn end_with_input(process: Process) {
    // An error is an end, too.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    // It may have ended already.
    let _ = process.signal(Signal::TERM);
    let _ = wait_for(&mut vec![process.clone()], Instant::now() + END_GRACE);
    if process.runs() {
        let _ = process.kill();
    }
}
