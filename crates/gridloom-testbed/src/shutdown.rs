//! The effects of an interrupt (SIGINT) and of a request to end (SIGTERM), sent to the tool of a testbed.
//!
//! | inside | interrupt | second interrupt | request to end |
//! |---|---|---|---|
//! | a program | handled by the program, as at a terminal; if only the tool received it, a request to end follows after [`GRACE`] | everything is killed | passed on; everything is killed after [`GRACE`] |
//! | processes of a deployment | all are killed | | all are killed |
//! | only a grid | it is taken down | | it is taken down |
//!
//! A terminal sends an interrupt to the tool's whole process group. The first process inside is in this group, and
//! reports whether only the tool received the interrupt.

use std::path::Path;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::control::{self, ReplyBody, Request};
use crate::spec::Spec;

/// Time for a program to end after a request to end.
pub const GRACE: Duration = Duration::from_secs(5);

/// The content of a testbed, which receives signals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// One program.
    Program,
    /// Processes of a deployment.
    Processes,
    /// A grid without a program of a user.
    Nothing,
}

impl Content {
    pub fn of(spec: &Spec) -> Content {
        match (spec.program.is_some(), spec.processes.is_empty()) {
            (true, _) => Content::Program,
            (_, false) => Content::Processes,
            _ => Content::Nothing,
        }
    }
}

/// The state of a testbed's shutdown.
#[derive(Debug)]
pub struct Shutdown {
    inside: Content,
    step: Step,
    due: Option<Instant>,
    /// Signal that ended the testbed.
    by: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Runs,
    Interrupted,
    Asked,
    Killed,
}

impl Shutdown {
    /// Creates the state before any signal.
    pub fn new(inside: Content) -> Shutdown {
        Shutdown { inside, step: Step::Runs, due: None, by: None }
    }

    /// Returns the time of the next step, if one is scheduled.
    pub fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns 128 plus the number of the signal that ended the testbed, if any.
    pub fn status(&self) -> Option<u8> {
        self.by.and_then(|signal| u8::try_from(128 + signal).ok())
    }

    /// Performs the next step of the shutdown, after a signal (0 if none) or when a step is due. Returns `false` if
    /// the testbed does not reply and has to be killed.
    pub fn advance(&mut self, signal: i32, folder: &Path) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if signal == 0 && !is_due {
            return true;
        }
        if self.step == Step::Killed {
            // Its time since the request to end has run out.
            return !is_due;
        }
        self.due = None;
        match (self.inside, self.step, signal) {
            (Content::Program, Step::Runs, SIGINT) => self.interrupt(folder),
            (Content::Program, Step::Runs | Step::Interrupted, 0 | SIGTERM) => self.ask_to_end(signal, folder),
            (Content::Processes, _, _) => {
                self.end(signal);
                let told = control::request(folder, &Request::Signal(if signal == 0 { SIGTERM } else { signal }));
                told.is_ok()
            }
            _ => {
                self.end(signal);
                // The testbed ends instead of replying; its report is read afterwards.
                let _ = control::request(folder, &Request::Down);
                true
            }
        }
    }

    fn interrupt(&mut self, folder: &Path) -> bool {
        self.step = Step::Interrupted;
        let grace = GRACE.as_secs();
        match control::request(folder, &Request::Signal(SIGINT)) {
            Ok((ReplyBody::Signalled { was_alone: true }, _)) => {
                (self.by, self.due) = (Some(SIGINT), Some(Instant::now() + GRACE));
                gridloom_base::stderr_line!(
                    "gridloom: testbed: the program was interrupted; it gets SIGTERM after {grace} s and is killed \
                     after {grace} s more, or at once by another interrupt"
                );
            }
            Ok(_) => gridloom_base::stderr_line!("gridloom: testbed: another interrupt ends the program at once"),
            Err(_) => return false,
        }
        true
    }

    fn ask_to_end(&mut self, signal: i32, folder: &Path) -> bool {
        self.step = Step::Asked;
        self.by = self.by.or(Some(if signal == 0 { SIGINT } else { signal }));
        self.due = Some(Instant::now() + GRACE);
        control::request(folder, &Request::Signal(SIGTERM)).is_ok()
    }

    fn end(&mut self, signal: i32) {
        self.step = Step::Killed;
        self.due = Some(Instant::now() + GRACE);
        self.by = self.by.or(Some(if signal == 0 { SIGTERM } else { signal }));
    }
}
