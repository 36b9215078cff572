//! The real processes of a deployment: one loop for their starts, their kill times, their ends, and signals.
//!
//! `gridloom deploy` runs this loop for processes that all run on this machine. The first process of a testbed also
//! runs it, for processes on their hosts. The caller defines how a process starts; this loop decides when, and reports
//! its end.
//!
//! **Invariants:** as in simulation, a process never starts if its kill time is not after its start. After an interrupt
//! or a request to end, nothing starts any more, and the status is 128 plus the signal's number. The kernel kills the
//! remaining processes when the thread of the loop ends. A process ended by [`Limits`] gets SIGTERM first, and is
//! killed after [`END_GRACE`]. **Limit:** descendants of a killed process may still print; the loop waits for their
//! output until [`OUTPUT_TIMEOUT`].

use gridloom_base::EscapedBytes;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::each_line;
use gridloom_base::limits::OUTPUT_PART_BYTES_MAX;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::SIGCHLD;

use crate::error::Error;
use crate::kernel::sys;
use crate::run_output::OutputFormat;
use crate::signals::Signals;
use crate::spec::{Deployed, Launch};

mod changes;

pub use changes::{AfterEnd, ExitCause, RunController};

/// Maximum wait for output after a signal.
pub const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for a process to end after SIGTERM before it is killed.
pub const END_GRACE: Duration = Duration::from_secs(2);

/// Maximum wait for the first process's check of the deployment, before the other processes start.
const FIRST_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval for checking whether it has ended.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The limits at which the loop ends the processes that still run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Limits {
    /// Seconds after the start of the run.
    pub until_s: Option<f64>,
    /// Seconds after the first failure.
    pub grace_s: Option<f64>,
    /// Environment variable for the first process, which makes it check the whole deployment. The other processes
    /// start once it has read which process it is; if it ends before, they do not start.
    pub first: Option<(String, OsString)>,
    /// True to print which processes still run after a failure.
    pub shows_running: bool,
    /// Output format.
    pub format: OutputFormat,
}

/// Maximum number of running processes that are named.
const LABELS_SHOWN_MAX: usize = 8;

/// Runs all processes. Returns the first status that is not 0, in the order in which the processes ended. `command`
/// prepares a process and its standard input, and `other_ended` is called for children that do not belong to the deployment.
///
/// # Errors
/// If a process cannot be started, or waiting for processes fails. Running processes then end with this one.
pub fn run(
    deployed: &[Deployed],
    command: impl FnMut(&Launch) -> Result<Command, Error>,
    other_ended: impl FnMut(Pid, WaitStatus),
) -> Result<u8, Error> {
    run_within(deployed, &Limits::default(), command, other_ended)
}

/// Like [`run`], with limits.
///
/// # Errors
/// As [`run`].
pub fn run_within(
    deployed: &[Deployed],
    limits: &Limits,
    command: impl FnMut(&Launch) -> Result<Command, Error>,
    other_ended: impl FnMut(Pid, WaitStatus),
) -> Result<u8, Error> {
    run_changing(deployed, limits, command, other_ended, &mut changes::Unchanged)
}

/// Like [`run_within`], with the decisions of `changes`.
///
/// # Errors
/// As [`run`], and those of `changes`.
pub fn run_changing(
    deployed: &[Deployed],
    limits: &Limits,
    mut command: impl FnMut(&Launch) -> Result<Command, Error>,
    mut other_ended: impl FnMut(Pid, WaitStatus),
    changes: &mut dyn RunController,
) -> Result<u8, Error> {
    let failed = || Error::system("waiting for processes");
    let signals = Signals::new(&[SIGCHLD]).map_err(failed())?;
    let mut fleet = Fleet::new(deployed, limits);
    loop {
        fleet.signalled(signals.caught());
        fleet.start_others();
        fleet.end_due();
        fleet.kill_due();
        while let Some(next) = fleet.start_due() {
            let made = command(&next.launch)?;
            fleet.start(next, made)?;
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => match fleet.running.remove(&pid.as_raw_pid()) {
                    Some(running) => {
                        let then = match running.was_killed {
                            true => AfterEnd::Counts,
                            false => changes.ended(&running.deployed.launch, ExitCause::of(status))?,
                        };
                        match then {
                            AfterEnd::Counts => fleet.ended(&running, status),
                            AfterEnd::Restarts => fleet.report_restart(&running, status),
                            AfterEnd::IsDone => fleet.report_end(&running, status),
                        }
                    }
                    None => other_ended(pid, status),
                },
                Ok(None) | Err(Errno::CHILD) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed()(error.into())),
            }
        }
        let more = changes.more()?;
        fleet.add(more);
        fleet.end_unneeded(changes);
        if fleet.running.is_empty() && fleet.waiting.is_empty() {
            return Ok(fleet.finish());
        }
        match changes.wake_fd() {
            Some(bell) => signals.wait_for(bell, fleet.next_due()).map(drop),
            None => signals.wait(fleet.next_due()),
        }
        .map_err(failed())?;
    }
}

struct Running {
    deployed: Rc<Deployed>,
    was_killed: bool,
    /// Time of its next signal, if it is no longer needed.
    ends_at: Option<Instant>,
    /// True if it got SIGTERM for that reason.
    got_sigterm: bool,
}

struct Fleet<'a> {
    limits: &'a Limits,
    began: Instant,
    has_started: bool,
    /// The first process and its start time, while the others wait for its check.
    first: Option<(Rc<Deployed>, Instant)>,
    /// Time of SIGTERM for all processes, after a failure.
    failed_at: Option<Instant>,
    /// Time of SIGKILL for processes that got SIGTERM.
    kill_at: Option<Instant>,
    /// Processes that have not started, the next one last.
    waiting: Vec<Rc<Deployed>>,
    /// Processes that start once no other process with their label runs.
    queued: Vec<Rc<Deployed>>,
    /// Running processes by pid.
    running: BTreeMap<i32, Running>,
    status: u8,
    was_signalled: bool,
    /// A sender clone is in each thread that copies output; the channel is disconnected when all threads are done.
    copying: Sender<()>,
    copied: Receiver<()>,
}

impl<'a> Fleet<'a> {
    fn new(deployed: &[Deployed], limits: &'a Limits) -> Fleet<'a> {
        let lives = |one: &&Deployed| one.kill_s.is_none_or(|kill_s| kill_s > one.start_s);
        let mut waiting: Vec<Rc<Deployed>> = deployed.iter().filter(lives).cloned().map(Rc::new).collect();
        // Processes with the same start time start in the order of the file.
        waiting.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        waiting.reverse();
        let (copying, copied) = channel();
        let (status, was_signalled, running, queued) = (0, false, BTreeMap::new(), Vec::new());
        let (began, first, failed_at, kill_at) = (Instant::now(), None, None, None);
        let has_started = false;
        Fleet {
            limits,
            began,
            has_started,
            first,
            failed_at,
            kill_at,
            waiting,
            queued,
            running,
            status,
            was_signalled,
            copying,
            copied,
        }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.began + Duration::from_secs_f64(seconds)
    }

    fn signalled(&mut self, signal: usize) {
        if signal == 0 {
            return;
        }
        self.status = u8::try_from(128 + signal).unwrap_or(u8::MAX);
        self.was_signalled = true;
        self.waiting.clear();
        self.kill(|_| true);
    }

    /// Starts the clock once the first process has checked the deployment, or takes too long.
    fn start_others(&mut self) {
        if let Some((first, since)) = self.first.clone()
            && (first.ready_file.exists() || since.elapsed() >= FIRST_CHECK_TIMEOUT)
        {
            if !first.ready_file.exists() {
                let (label, waited_s) = (&first.launch.label, FIRST_CHECK_TIMEOUT.as_secs());
                self.limits.format.message(&format!(
                    "{label} has not asked which process it is within {waited_s} s: the others start although the \
                     deployment was not checked"
                ));
            }
            self.first = None;
            self.began = Instant::now() - Duration::from_secs_f64(first.start_s);
        }
    }

    /// Returns when all processes get SIGTERM, and why.
    fn end_at(&self) -> Option<(Instant, &'static str)> {
        let until = self.limits.until_s.map(|seconds| (self.at(seconds), "at the end of --until"));
        let failed = self.failed_at.map(|at| (at, "after the failure"));
        until.into_iter().chain(failed).min_by_key(|(at, _)| *at).filter(|_| self.kill_at.is_none())
    }

    /// Sends SIGTERM to running processes when a limit is reached, and kills those that keep running.
    fn end_due(&mut self) {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| at <= now) {
            self.signal(Signal::KILL, |_| true);
        }
        let Some((_, why)) = self.end_at().filter(|(at, _)| *at <= now) else { return };
        self.limits.format.message(&format!("ended {why}: {}", self.still_running()));
        self.waiting.clear();
        self.first = None;
        self.was_signalled = true;
        self.status = self.status.max(1);
        self.kill_at = Some(now + END_GRACE);
        for running in self.running.values_mut() {
            running.was_killed = true;
        }
        self.signal(Signal::TERM, |_| true);
    }

    /// Ends processes that are no longer needed and whose time has run out.
    fn end_unneeded(&mut self, changes: &dyn RunController) {
        let now = Instant::now();
        for (pid, running) in self.running.iter_mut().filter(|(_, running)| !running.was_killed) {
            if !running.got_sigterm {
                running.ends_at = changes.to_end(&running.deployed.launch);
            }
            if running.ends_at.is_none_or(|at| at > now) {
                continue;
            }
            let signal = if running.got_sigterm { Signal::KILL } else { Signal::TERM };
            if !running.got_sigterm {
                let label = &running.deployed.launch.label;
                self.limits.format.message(&format!(
                    "{label} has left and has not ended: it is ended now, because others wait for its end"
                ));
            }
            running.ends_at = (!running.got_sigterm).then_some(now + END_GRACE);
            running.got_sigterm = true;
            let _ = kill_process(Pid::from_raw(*pid).expect("it was a child's"), signal);
        }
    }

    /// Lists the processes that have not ended, for a message.
    fn still_running(&self) -> String {
        let runs = self.running.values().map(|running| running.deployed.launch.label.clone());
        let waits = self.waiting.iter().rev().map(|next| format!("{} (not started yet)", next.launch.label));
        let mut told: Vec<String> = runs.chain(waits).collect();
        if told.len() > LABELS_SHOWN_MAX {
            let rest = told.len() - LABELS_SHOWN_MAX;
            told.truncate(LABELS_SHOWN_MAX);
            told.push(format!("{rest} others"));
        }
        told.join(", ")
    }

    fn kill_due(&mut self) {
        if self.first.is_some() {
            return;
        }
        let elapsed_s = self.began.elapsed().as_secs_f64();
        self.kill(|one| one.kill_s.is_some_and(|kill_s| kill_s <= elapsed_s));
    }

    fn kill(&mut self, is_it: impl Fn(&Deployed) -> bool) {
        self.signal(Signal::KILL, |running| !running.was_killed && is_it(&running.deployed));
        for running in self.running.values_mut() {
            running.was_killed |= is_it(&running.deployed);
        }
    }

    fn signal(&self, signal: Signal, is_it: impl Fn(&Running) -> bool) {
        for (pid, _) in self.running.iter().filter(|(_, running)| is_it(running)) {
            // Only this loop waits for the process: even if it has ended, its pid is not reused.
            let pid = Pid::from_raw(*pid).expect("it was a child's");
            let _ = kill_process(pid, signal);
        }
    }

    /// Queues processes that start as soon as none with their label runs, unless the run ends.
    fn add(&mut self, more: Vec<Deployed>) {
        self.queued.extend(more.into_iter().map(Rc::new));
        if self.was_signalled {
            self.queued.clear();
        }
        let runs =
            |one: &Rc<Deployed>| self.running.values().any(|other| other.deployed.launch.label == one.launch.label);
        let ready: Vec<Rc<Deployed>> = self.queued.extract_if(.., |one| !runs(one)).collect();
        self.waiting.extend(ready);
    }

    fn start_due(&mut self) -> Option<Rc<Deployed>> {
        if self.first.is_some() {
            return None;
        }
        let is_due = self.waiting.last().is_some_and(|next| self.at(next.start_s) <= Instant::now());
        if is_due { self.waiting.pop() } else { None }
    }

    fn start(&mut self, deployed: Rc<Deployed>, mut command: Command) -> Result<(), Error> {
        if let Some((name, value)) = &self.limits.first {
            if self.has_started {
                // This process may belong to another deployment.
                command.env_remove(name);
            } else {
                command.env(name, value);
                self.first = Some((deployed.clone(), Instant::now()));
            }
        }
        self.has_started = true;
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        sys::end_with_this_thread(&mut command);
        let what = format!("cannot run '{}'", EscapedBytes::of(&deployed.launch.command[0]));
        let mut child = command.spawn().map_err(Error::system(what))?;
        let (output, error) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
        self.copy(output, &deployed.launch.label, false);
        self.copy(error, &deployed.launch.label, true);
        self.running.insert(
            Pid::from_child(&child).as_raw_pid(),
            Running { deployed, was_killed: false, ends_at: None, got_sigterm: false },
        );
        Ok(())
    }

    /// Copies output line by line, or in parts, each with the label.
    fn copy(&self, from: impl Read + Send + 'static, label: &str, is_error: bool) {
        let (label, copying, telling) = (label.to_string(), self.copying.clone(), self.limits.format);
        thread::spawn(move || {
            each_line(BufReader::new(from), OUTPUT_PART_BYTES_MAX, |line| telling.line(&label, is_error, line));
            drop(copying);
        });
    }

    fn report_restart(&mut self, running: &Running, status: WaitStatus) {
        self.report_end(running, status);
        self.waiting.push(running.deployed.clone());
    }

    fn report_end(&self, running: &Running, status: WaitStatus) {
        let label = &running.deployed.launch.label;
        self.limits.format.ended(label, ExitStatus::from_raw(status.as_raw()), running.was_killed);
    }

    fn ended(&mut self, running: &Running, status: WaitStatus) {
        // The process may have created its file and ended since the last check.
        if self.first.as_ref().is_some_and(|(first, _)| first.ready_file.exists()) {
            self.start_others();
        }
        let was_first = self.first.take_if(|(first, _)| Rc::ptr_eq(first, &running.deployed)).is_some();
        let (label, telling) = (&running.deployed.launch.label, self.limits.format);
        self.report_end(running, status);
        if running.was_killed {
            return;
        }
        let has_asked = running.deployed.ready_file.exists();
        let code = match status.exit_status() {
            Some(0) if has_asked => 0,
            Some(0) => {
                telling.never_read_config(label);
                1
            }
            code => code.or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1),
        };
        if self.status == 0 {
            self.status = u8::try_from(code).unwrap_or(1);
        }
        if code != 0 {
            self.failed(was_first && !has_asked);
        }
    }

    /// Handles a failure: prints the processes that still run, and gives them some time.
    fn failed(&mut self, before_all: bool) {
        if before_all && !self.waiting.is_empty() {
            self.limits.format.message("nothing else was started");
            self.waiting.clear();
        }
        let is_over = self.running.is_empty() && self.waiting.is_empty();
        if is_over || !self.limits.shows_running || self.kill_at.is_some() {
            return;
        }
        let left = match self.limits.grace_s {
            Some(grace_s) if self.failed_at.is_none() => format!("; they are ended in {grace_s} s"),
            _ => String::new(),
        };
        self.limits.format.message(&format!("still running: {}{left}", self.still_running()));
        let grace = self.limits.grace_s.map(Duration::from_secs_f64);
        self.failed_at = self.failed_at.or_else(|| grace.map(|grace| Instant::now() + grace));
    }

    fn next_due(&self) -> Option<Instant> {
        let looks = self.first.as_ref().map(|_| Instant::now() + FIRST_CHECK_INTERVAL);
        if looks.is_some() {
            return looks;
        }
        let start = self.waiting.last().map(|next| self.at(next.start_s));
        let kills = self.running.values().filter(|running| !running.was_killed);
        let kills = kills.filter_map(|running| running.deployed.kill_s).map(|kill_s| self.at(kill_s));
        let unneeded = self.running.values().filter_map(|running| running.ends_at);
        let ends = self.end_at().map(|(at, _)| at).or(self.kill_at.filter(|at| *at > Instant::now()));
        start.into_iter().chain(kills).chain(unneeded).chain(ends).min()
    }

    /// Prints the rest of the output once all processes have ended.
    fn finish(self) -> u8 {
        drop(self.copying);
        // Nothing is ever sent: both calls wait until the last thread has ended.
        let _ = match self.was_signalled {
            true => self.copied.recv_timeout(OUTPUT_TIMEOUT).ok(),
            false => self.copied.recv().ok(),
        };
        self.limits.format.done(self.status);
        self.status
    }
}
