//! Bounds for everything that tests wait for: when a bound is reached, the test fails and reports what it waited for.

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit of all waits, long enough for a machine that is busy with other work.
pub const WAIT_LIMIT: Duration = Duration::from_secs(150);
/// Interval between two checks.
const PAUSE: Duration = Duration::from_millis(20);

/// Calls `ask` until it returns an answer. `what` describes what is waited for.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WAIT_LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "not within {} s: {what}", WAIT_LIMIT.as_secs());
        std::thread::sleep(PAUSE);
    }
}

/// Calls `is_so` until it returns true.
pub fn until_true(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// Kills a process that runs longer than [`WAIT_LIMIT`], so that waits for it or for its output end.
pub struct ProcessTimeout {
    ended: Option<Sender<()>>,
    guard: Option<JoinHandle<bool>>,
}

impl ProcessTimeout {
    pub fn of(child: &Child) -> ProcessTimeout {
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        let (ended, has_ended) = channel();
        let guard = std::thread::spawn(move || {
            let is_late = has_ended.recv_timeout(WAIT_LIMIT) == Err(RecvTimeoutError::Timeout);
            if is_late {
                // It may have ended just now.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            is_late
        });
        ProcessTimeout { ended: Some(ended), guard: Some(guard) }
    }

    /// Stops the guard after the process has ended. Returns true if the process was killed.
    fn is_over(&mut self) -> bool {
        drop(self.ended.take());
        self.guard.take().is_some_and(|guard| guard.join().unwrap())
    }
}

impl Drop for ProcessTimeout {
    fn drop(&mut self) {
        self.is_over();
    }
}

/// Runs a command to its end and returns its output.
pub fn output_of(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    ends(&format!("{command:?}"), child)
}

/// Waits for a process to end and returns its output. `what` describes the process.
pub fn ends(what: &str, child: Child) -> Output {
    let mut bound = ProcessTimeout::of(&child);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!bound.is_over(), "it has not ended within {} s: {what}: {error}", WAIT_LIMIT.as_secs());
    output
}
