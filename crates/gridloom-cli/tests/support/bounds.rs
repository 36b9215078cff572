//! What tests wait for has a bound: then they fail, and say what has not come.

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Whatever is waited for comes within, also on a machine that has much else to do.
pub const WITHIN: Duration = Duration::from_secs(150);
/// How often it is asked.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer. `what` says what is waited for.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WITHIN;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "not within {} s: {what}", WITHIN.as_secs());
        std::thread::sleep(PAUSE);
    }
}

/// Asks until that is so.
pub fn until_so(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// Kills a process that goes on for longer than [`WITHIN`]: what waits for it, or for its output, goes on.
pub struct Bound {
    ended: Option<Sender<()>>,
    guard: Option<JoinHandle<bool>>,
}

impl Bound {
    pub fn of(child: &Child) -> Bound {
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        let (ended, has_ended) = channel();
        let guard = std::thread::spawn(move || {
            let is_late = has_ended.recv_timeout(WITHIN) == Err(RecvTimeoutError::Timeout);
            if is_late {
                // It may have ended just now.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            is_late
        });
        Bound { ended: Some(ended), guard: Some(guard) }
    }

    /// The process has ended. Whether it was killed.
    fn is_over(&mut self) -> bool {
        drop(self.ended.take());
        self.guard.take().is_some_and(|guard| guard.join().unwrap())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.is_over();
    }
}

/// What it prints until its end.
pub fn output_of(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    ends(&format!("{command:?}"), child)
}

/// What a process that runs prints until its end. `what` says what it does.
pub fn ends(what: &str, child: Child) -> Output {
    let mut bound = Bound::of(&child);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!bound.is_over(), "it has not ended within {} s: {what}: {error}", WITHIN.as_secs());
    output
}
