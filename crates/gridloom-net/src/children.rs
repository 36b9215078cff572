//! Child processes of a program that may ignore SIGCHLD. In this case, the kernel discards the exit statuses, and waiting
//! for an ended child fails with ECHILD.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::Builder;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

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

/// Runs a command like [`output`], and kills it after `limit`. Returns `None` if it did.
///
/// # Errors
/// As [`output`].
pub fn output_within(command: &mut Command, limit: Duration) -> io::Result<Option<Output>> {
    // SAFETY: between fork and exec the function makes one system call and allocates nothing.
    unsafe { command.pre_exec(end_with_parent) };
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let output = threads::spawn(Builder::new(), move || read(stdout));
    let has_ended = ends_within(&child, limit);
    if !matches!(has_ended, Ok(true)) {
        child.kill()?;
    }
    let status = wait(&mut child);
    if !has_ended? {
        // Its children may keep the pipe open, so the thread is not joined.
        return Ok(None);
    }
    let output = output?.join().expect("reading does not panic");
    Ok(Some(Output { status: status?, stdout: output?, stderr: Vec::new() }))
}

/// Waits for the end of a child. Returns false if it has not ended after `limit`.
fn ends_within(child: &Child, limit: Duration) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let run = |script: &str, limit| output_within(Command::new("sh").args(["-c", script]), limit).unwrap();
        let output = run("echo line; exit 3", Duration::from_secs(60)).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"line\n"[..]));
        let begin = Instant::now();
        // The child of the command keeps the pipe open.
        assert!(run("sleep 20 & sleep 20", Duration::from_millis(50)).is_none());
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
}
