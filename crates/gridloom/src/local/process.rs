//! A process of the embedded grid: its output, the line by which it reports that it is ready, and its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gridloom_net::descriptors::{describe, have_run_out};
use gridloom_net::identity::IssuedKeys;
use gridloom_net::threads;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::progress::StartProgress;
use super::{PROGRAM_VARIABLE, STOP_PATIENCE};
use crate::Error;

/// Maximum number of bytes of an unfinished line that are kept.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of bytes kept of a process's output.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Interval of the checks for processes without a descriptor that reports their end.
const POLL_PAUSE: Duration = Duration::from_millis(50);
/// Number of last lines of a process that an error or a report contains.
const LINES_SHOWN: usize = 5;

/// A process of the grid. Its standard error is forwarded once the process is ready, unless `is_silent`. The last lines are
/// kept for the error if the process does not start or ends.
pub(super) struct LocalProcess {
    pub(super) child: Child,
    name: String,
    is_silent: bool,
    /// Standard output up to the end of the first line.
    ready_line: Vec<u8>,
    output: Arc<Mutex<Output>>,
    /// Readable once the process has ended; `None` if the kernel or valgrind does not support process descriptors.
    end: Option<OwnedFd>,
    /// Disconnected once the listener has read all output.
    ended: Receiver<()>,
    listener: Option<JoinHandle<()>>,
}

/// The last output of a process.
#[derive(Default)]
struct Output {
    is_forwarded: bool,
    last: String,
}

fn spawn(command: &mut Command) -> Result<Child, Error> {
    let program = command.get_program().to_os_string();
    command.spawn().map_err(|error| {
        let (program, why) = (program.to_string_lossy(), describe(&error));
        let remedy = match have_run_out(&error) {
            true => String::new(),
            false => format!("; set {PROGRAM_VARIABLE} to the gridloom program"),
        };
        Error::Connect(format!("cannot run '{program}': {why}{remedy}"))
    })
}

/// Waits until all these processes are ready. Fails as soon as one of them has ended.
pub(super) fn await_ready(processes: &mut [&mut LocalProcess], progress: &mut StartProgress) -> Result<(), Error> {
    loop {
        check_all(processes)?;
        let Some(first) = processes.iter().find(|process| !process.is_ready()) else { return Ok(()) };
        progress.report(|| format!("{} is not ready yet{}", first.name, first.last_lines()));
        let is_polled = processes.iter().any(|process| process.end.is_none());
        let left = if is_polled { progress.left().min(POLL_PAUSE) } else { progress.left() };
        let limit = Timespec::try_from(left).expect("a report is due within hours");
        let starting: Vec<usize> = (0..processes.len()).filter(|index| !processes[*index].is_ready()).collect();
        let ready: Vec<bool> = {
            let outputs = starting.iter().map(|index| processes[*index].stdout());
            let ends = processes.iter().filter_map(|process| Some(process.end.as_ref()?.as_fd()));
            let mut polled: Vec<PollFd<'_>> =
                outputs.chain(ends).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut polled, Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::Connect(format!("waiting for the local grid: {error}"))),
            }
            polled[..starting.len()].iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        for (index, is_ready) in starting.into_iter().zip(ready) {
            if is_ready {
                processes[index].read_ready_line()?;
            }
        }
    }
}

/// Returns the error of the first process that has ended.
pub(super) fn check_all(processes: &mut [&mut LocalProcess]) -> Result<(), Error> {
    processes.iter_mut().try_for_each(|process| match process.child.try_wait() {
        Ok(None) => Ok(()),
        Ok(Some(status)) => Err(process.ended(&status.to_string())),
        Err(error) => Err(process.ended(&error.to_string())),
    })
}

impl LocalProcess {
    /// Starts a process of the grid, and passes it its keys.
    pub(super) fn start(
        mut command: Command,
        name: &str,
        keys: &IssuedKeys,
        is_silent: bool,
    ) -> Result<LocalProcess, Error> {
        let mut child = spawn(&mut command)?;
        let stdin = child.stdin.as_mut().expect("its input is piped");
        // A process that has ended reports why on its standard error.
        let _ = stdin.write_all(format!("{}\n", keys.to_line()).as_bytes());
        LocalProcess::new(child, name, is_silent)
    }

    fn new(mut child: Child, name: &str, is_silent: bool) -> Result<LocalProcess, Error> {
        let error = child.stderr.take().expect("its errors are piped");
        let output = Arc::new(Mutex::new(Output::default()));
        let (kept, (end, ended)) = (output.clone(), channel());
        let thread = thread::Builder::new().name("gridloom-log".into());
        // Dropping `end` signals that all output was read.
        let listener = threads::spawn(thread, move || drop((forward_output(error, &kept, is_silent), end)));
        let end = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Err(Errno::NOSYS) => Ok(None),
            end => end.map(Some),
        };
        match (listener, end) {
            (Ok(listener), Ok(end)) => {
                let (name, listener, ready_line) = (name.to_string(), Some(listener), Vec::new());
                Ok(LocalProcess { child, name, is_silent, ready_line, output, end, ended, listener })
            }
            (listener, end) => {
                // Without a listener, the process would block when its output pipe is full. It may already have exited.
                let _ = child.kill();
                let _ = child.wait();
                let why = listener.err().map(|error| error.to_string()).or(end.err().map(|error| error.to_string()));
                Err(Error::Connect(format!("{name} of the local grid: {}", why.unwrap_or_default())))
            }
        }
    }

    /// Waits for the listener of a process that has exited, until the deadline at the latest.
    pub(super) fn join(&mut self, deadline: Instant) {
        let has_read_all = !matches!(
            self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            Err(RecvTimeoutError::Timeout)
        );
        if has_read_all && let Some(listener) = self.listener.take() {
            // A panic was reported on its own thread.
            let _ = listener.join();
        }
    }

    /// Returns the line that the process printed when it was ready.
    pub(super) fn ready_line(&self) -> &str {
        std::str::from_utf8(&self.ready_line).unwrap_or_default().trim()
    }

    fn is_ready(&self) -> bool {
        self.ready_line.ends_with(b"\n")
    }

    fn stdout(&self) -> BorrowedFd<'_> {
        self.child.stdout.as_ref().expect("its output is piped").as_fd()
    }

    /// Reads the available part of the line that the process prints when it is ready.
    fn read_ready_line(&mut self) -> Result<(), Error> {
        let mut bytes = [0; 4096];
        let stdout = self.child.stdout.as_mut().expect("its output is piped");
        match stdout.read(&mut bytes) {
            Ok(0) => {
                // The process closes its output only when it ends.
                let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(self.ended(&status));
            }
            Ok(length) => self.ready_line.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::Connect(format!("{} of the local grid: {error}", self.name))),
        }
        if self.is_ready() {
            let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
            output.is_forwarded = true;
            if !self.is_silent {
                write_error(output.last.as_bytes());
            }
        }
        Ok(())
    }

    /// Returns the error of a process that has ended.
    fn ended(&mut self, status: &str) -> Error {
        // The last output may still be in the pipe. The wait is limited, because an orphan process may keep the pipe open.
        let _ = self.ended.recv_timeout(STOP_PATIENCE);
        let name = &self.name;
        let what = if self.is_ready() { "has ended" } else { "did not start" };
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let last = output.last.trim().trim_start_matches("gridloom: ");
        Error::Connect(match (last.is_empty(), self.is_ready()) {
            (true, _) => format!("{name} of the local grid {what}: {status}"),
            (false, false) => format!("{name} of the local grid {what}: {last}"),
            (false, true) => {
                format!("{name} of the local grid {what}: {status}; its last lines:\n{}", last_lines(last))
            }
        })
    }

    fn last_lines(&self) -> String {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        match last_lines(output.last.trim()) {
            "" => String::new(),
            lines => format!("; its last lines:\n{lines}"),
        }
    }
}

fn last_lines(text: &str) -> &str {
    let begin = text.rmatch_indices('\n').nth(LINES_SHOWN - 1).map_or(0, |(at, _)| at + 1);
    &text[begin..]
}

/// Forwards a process's standard error line by line, once that is requested, and keeps the last lines. A line that
/// exceeds the limit is forwarded in pieces.
fn forward_output(error: impl Read, output: &Mutex<Output>, is_silent: bool) {
    let mut lines = BufReader::new(error);
    let mut line = Vec::new();
    while lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.is_forwarded && !is_silent {
            write_error(&line);
        }
        output.last.push_str(&String::from_utf8_lossy(&line));
        while output.last.len() > OUTPUT_BYTES_MAX {
            let first = output.last.find('\n').map_or(output.last.len(), |end| end + 1);
            output.last.drain(..first);
        }
        line.clear();
    }
}

/// Writes to standard error. Failures are ignored, because they cannot be reported.
fn write_error(bytes: &[u8]) {
    let _ = std::io::stderr().write_all(bytes);
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn process(script: &str) -> LocalProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        LocalProcess::new(spawn(&mut command).unwrap(), "server-1", true).unwrap()
    }

    fn wait(processes: &mut [&mut LocalProcess]) -> Result<(), String> {
        await_ready(processes, &mut StartProgress::new()).map_err(|error| error.to_string())
    }

    fn end(mut process: LocalProcess) {
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }

    #[test]
    fn a_process_is_ready_with_its_first_line_in_whatever_pieces_it_arrives() {
        let mut process = process("printf '{\"address\":'; read go; printf '\"a\"}\\n'; read end");
        let mut stdin = process.child.stdin.take().unwrap();
        while process.ready_line.is_empty() {
            process.read_ready_line().unwrap();
        }
        assert!(!process.is_ready());
        stdin.write_all(b"go\n").unwrap();
        wait(&mut [&mut process]).unwrap();
        assert_eq!(process.ready_line(), "{\"address\":\"a\"}");
        end(process);
    }

    #[test]
    fn the_end_of_one_process_ends_the_wait_for_the_others() {
        // An orphan process keeps the pipes open.
        let mut ready = process("echo ready; sleep 60 & read end; echo 'gridloom: out of luck' >&2; exit 7");
        wait(&mut [&mut ready]).unwrap();
        let mut starts = process("read never");
        drop(ready.child.stdin.take());
        let why = wait(&mut [&mut starts, &mut ready]).unwrap_err();
        assert!(why.starts_with("server-1 of the local grid has ended: exit status: 7; its last lines:"), "{why}");
        assert!(why.ends_with("out of luck"), "{why}");
        end(starts);
        let why = wait(&mut [&mut process("echo 'gridloom: no such file' >&2; exit 1")]).unwrap_err();
        assert_eq!(why, "server-1 of the local grid did not start: no such file");
    }

    #[test]
    fn the_last_lines_are_few() {
        assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n7"), "3\n4\n5\n6\n7");
        assert_eq!(last_lines("1\n2"), "1\n2");
    }
}
