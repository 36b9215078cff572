//! Children of a program that may ignore SIGCHLD. Then the kernel discards their exit statuses, and waiting for a child fails with ECHILD once it
//! has ended.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::Builder;

use crate::threads;

/// Runs a command and returns its output, as [`Command::output`] does, but its standard error only if it is piped. A discarded exit status counts as success, as in Python's `subprocess`.
///
/// # Errors
/// If the command cannot be started, or its output cannot be read.
pub fn output(command: &mut Command) -> io::Result<Output> {
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
