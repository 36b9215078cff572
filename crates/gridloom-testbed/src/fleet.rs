//! The processes of a deployment for real: one loop for their starts, their kill times, their ends, and signals.
//!
//! It is the whole life of `gridloom deploy`, where all run on this machine, and of the first process of a testbed, where
//! each runs on its host. How a process is started is the caller's; when, and what comes of it, is decided here.
//!
//! **Invariants:** as in simulation, a process whose kill time is not after its start never starts. After an interrupt
//! or a request to end nothing starts any more, and the status is 128 and the signal's number. The kernel kills what is
//! left when the thread that runs the loop ends.
//! **Limit:** what a killed process has left behind and still prints is not waited for longer than [`OUTPUT_PATIENCE`].

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGCHLD;

use crate::error::Error;
use crate::kernel::sys;
use crate::signals::Signals;
use crate::spec::Launch;

/// How long output is waited for after a signal.
pub const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);

/// A process to start, and when; times count from the beginning of the loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deployed {
    /// What to start, and where.
    pub launch: Launch,
    /// When it starts, seconds.
    pub start_s: f64,
    /// When it is killed, seconds.
    pub kill_s: Option<f64>,
    /// The file that it makes when it asks which process it is.
    pub asked: PathBuf,
}

/// Runs them all; the first status that is not 0, in the order of the ends. `command` makes one ready to be started, and
/// `other_ended` hears of children that are not of the deployment.
///
/// # Errors
/// If a process cannot be started, or the system does not let this one wait. What runs then ends with this process.
pub fn run(
    deployed: &[Deployed],
    mut command: impl FnMut(&Launch) -> Result<Command, Error>,
    mut other_ended: impl FnMut(Pid, WaitStatus),
) -> Result<u8, Error> {
    let failed = || Error::system("waiting for processes");
    let signals = Signals::new(&[SIGCHLD]).map_err(failed())?;
    let mut fleet = Fleet::new(deployed);
    loop {
        fleet.signalled(signals.caught());
        fleet.kill_due();
        while let Some(next) = fleet.start_due() {
            let made = command(&next.launch)?;
            fleet.start(next, made)?;
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => match fleet.running.remove(&pid.as_raw_pid()) {
                    Some(running) => fleet.ended(&running, status),
                    None => other_ended(pid, status),
                },
                Ok(None) | Err(Errno::CHILD) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed()(error.into())),
            }
        }
        if fleet.running.is_empty() && fleet.waiting.is_empty() {
            return Ok(fleet.finish());
        }
        signals.wait(fleet.next_due()).map_err(failed())?;
    }
}

struct Running<'a> {
    deployed: &'a Deployed,
    was_killed: bool,
}

struct Fleet<'a> {
    began: Instant,
    /// Those that have not been started, the next at the end.
    waiting: Vec<&'a Deployed>,
    /// By process identifier.
    running: BTreeMap<i32, Running<'a>>,
    status: u8,
    was_signalled: bool,
    /// A copy in each thread that copies output; it is disconnected when all are done.
    copying: Sender<()>,
    copied: Receiver<()>,
}

impl<'a> Fleet<'a> {
    fn new(deployed: &'a [Deployed]) -> Fleet<'a> {
        let lives = |one: &&Deployed| one.kill_s.is_none_or(|kill_s| kill_s > one.start_s);
        let mut waiting: Vec<&Deployed> = deployed.iter().filter(lives).collect();
        // Those of one time in the order of the file.
        waiting.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        waiting.reverse();
        let (copying, copied) = channel();
        let (status, was_signalled, running) = (0, false, BTreeMap::new());
        Fleet { began: Instant::now(), waiting, running, status, was_signalled, copying, copied }
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

    fn kill_due(&mut self) {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        self.kill(|one| one.kill_s.is_some_and(|kill_s| kill_s <= elapsed_s));
    }

    fn kill(&mut self, is_it: impl Fn(&Deployed) -> bool) {
        for (pid, running) in &mut self.running {
            if !running.was_killed && is_it(running.deployed) {
                running.was_killed = true;
                // Only this loop waits for it, so that the number is still its own, if it may have ended.
                let pid = Pid::from_raw(*pid).expect("it was a child's");
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn start_due(&mut self) -> Option<&'a Deployed> {
        let is_due = self.waiting.last().is_some_and(|next| self.at(next.start_s) <= Instant::now());
        if is_due { self.waiting.pop() } else { None }
    }

    fn start(&mut self, deployed: &'a Deployed, mut command: Command) -> Result<(), Error> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        sys::end_with_this_thread(&mut command);
        let what = format!("cannot run '{}'", deployed.launch.command[0]);
        let mut child = command.spawn().map_err(Error::system(what))?;
        let (output, error) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
        self.copy(output, &deployed.launch.label, io::stdout());
        self.copy(error, &deployed.launch.label, io::stderr());
        self.running.insert(Pid::from_child(&child).as_raw_pid(), Running { deployed, was_killed: false });
        Ok(())
    }

    /// Line by line, each with its label.
    fn copy(&self, from: impl Read + Send + 'static, label: &str, mut to: impl Write + Send + 'static) {
        let (label, copying) = (label.to_string(), self.copying.clone());
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                // Nobody reads on: the process still runs to its end.
                let _ = writeln!(to, "{label}| {}", String::from_utf8_lossy(&line)).and_then(|()| to.flush());
            }
            drop(copying);
        });
    }

    fn ended(&mut self, running: &Running<'_>, status: WaitStatus) {
        if running.was_killed {
            return;
        }
        let label = &running.deployed.launch.label;
        let code = match status.exit_status() {
            Some(0) if running.deployed.asked.exists() => 0,
            Some(0) => {
                gridloom_core::say!(
                    "gridloom: {label} ended without having asked for its function: the program is not one of Gridloom's \
                     processes, or has ended before it ran them"
                );
                1
            }
            code => {
                gridloom_core::say!("gridloom: {label} ended with {}", ExitStatus::from_raw(status.as_raw()));
                code.or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(1)
            }
        };
        if self.status == 0 {
            self.status = u8::try_from(code).unwrap_or(1);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let start = self.waiting.last().map(|next| self.at(next.start_s));
        let kills = self.running.values().filter(|running| !running.was_killed);
        let kills = kills.filter_map(|running| running.deployed.kill_s).map(|kill_s| self.at(kill_s));
        start.into_iter().chain(kills).min()
    }

    /// All have ended: what they printed is printed.
    fn finish(self) -> u8 {
        drop(self.copying);
        // Nothing is sent: both wait for the last thread to hang up.
        let _ = match self.was_signalled {
            true => self.copied.recv_timeout(OUTPUT_PATIENCE).ok(),
            false => self.copied.recv().ok(),
        };
        self.status
    }
}
