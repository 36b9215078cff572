//! Child processes of a program that may ignore SIGCHLD. In this case, the kernel discards the exit statuses, and waiting
//! for an ended child fails with ECHILD.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::Builder;

use crate::process::end_with_parent;
use crate::threads;

/// Returns the children of all threads of a process, given its number or `self`; empty if the kernel does not list them.
pub(crate) fn of(process: impl Display) -> BTreeSet<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return BTreeSet::new() };
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Runs a command and returns its output like [`Command::output`], but its standard error only if that is piped. The
/// command is killed if this process ends. A discarded exit status counts as success, as in Python's `subprocess`.
///
/// # Errors
/// If the command cannot be started, or its output cannot be read.
pub fn output(command: &mut Command) -> io::Result<Output> {
    // The signal is bound to this thread, which waits for the child, so the child ends with this process.
    // SAFETY: between fork and exec the function makes one system call and allocates nothing.
    unsafe { command.pre_exec(end_with_parent) };
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = threads::spawn(Builder::new(), move || read(stderr));
    let output = read(stdout);
    let status = wait(&mut child);
    let errors = errors?.join().expect("reading does not panic");
    Ok(Output { status: status?, stdout: output?, stderr: errors? })
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    match child.wait() {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(ExitStatus::from_raw(0)),
        waited => waited,
    }
}

fn read(stream: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    stream.map_or(Ok(0), |mut stream| stream.read_to_end(&mut all))?;
    Ok(all)
}
