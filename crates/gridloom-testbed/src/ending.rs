//! Effects of an interrupt (SIGINT) and a request to end (SIGTERM), sent to the tool, on its testbed.
//!
//! | inside | interrupt | another | request to end |
//! |---|---|---|---|
//! | a program | is its own, as at a terminal; if the tool alone had it, a request to end follows after [`GRACE`] | all is killed | is passed on; all is killed after [`GRACE`] |
//! | processes of a deployment | all are killed | | all are killed |
//! | nothing but a grid | it is taken down | | it is taken down |
//!
//! A terminal sends an interrupt to the tool's whole process group. The first process inside is in this group: it tells
//! whether only the tool had the interrupt.

use std::path::Path;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::control::{self, Answer, Request};
use crate::spec::Spec;

/// Time that a program has to end after a request to end.
pub const GRACE: Duration = Duration::from_secs(5);

/// The kind of processes in a testbed that signals are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inside {
    /// One program.
    Program,
    /// Processes of a deployment.
    Processes,
    /// No program of a user.
    Nothing,
}

impl Inside {
    pub fn of(spec: &Spec) -> Inside {
        match (spec.program.is_some(), spec.processes.is_empty()) {
            (true, _) => Inside::Program,
            (_, false) => Inside::Processes,
            _ => Inside::Nothing,
        }
    }
}

/// The state of a testbed's end.
#[derive(Debug)]
pub struct Ending {
    inside: Inside,
    step: Step,
    due: Option<Instant>,
    /// The signal that has ended it.
    by: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Runs,
    Interrupted,
    Asked,
    Killed,
}

impl Ending {
    /// Whether no signal has come yet.
    pub fn new(inside: Inside) -> Ending {
        Ending { inside, step: Step::Runs, due: None, by: None }
    }

    /// Time of the next step, if one is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// 128 and the number of the signal that has ended it, if one has.
    pub fn status(&self) -> Option<u8> {
        self.by.and_then(|signal| u8::try_from(128 + signal).ok())
    }

    /// Does the next step to the testbed of that folder, after a signal (0 if none) or when a step is due. `false` if the
    /// testbed does not answer, and has to be killed.
    pub fn go_on(&mut self, signal: i32, folder: &Path) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if signal == 0 && !is_due {
            return true;
        }
        if self.step == Step::Killed {
            // It has had its time since the request to end.
            return !is_due;
        }
        self.due = None;
        match (self.inside, self.step, signal) {
            (Inside::Program, Step::Runs, SIGINT) => self.interrupt(folder),
            (Inside::Program, Step::Runs | Step::Interrupted, 0 | SIGTERM) => self.ask_to_end(signal, folder),
            (Inside::Processes, _, _) => {
                self.end(signal);
                let told = control::ask(folder, &Request::Tell(if signal == 0 { SIGTERM } else { signal }));
                told.is_ok()
            }
            _ => {
                self.end(signal);
                // It ends instead of answering; its report is read afterwards.
                let _ = control::ask(folder, &Request::Down);
                true
            }
        }
    }

    fn interrupt(&mut self, folder: &Path) -> bool {
        self.step = Step::Interrupted;
        let grace = GRACE.as_secs();
        match control::ask(folder, &Request::Tell(SIGINT)) {
            Ok((Answer::Told { was_alone: true }, _)) => {
                (self.by, self.due) = (Some(SIGINT), Some(Instant::now() + GRACE));
                gridloom_base::say!(
                    "gridloom: testbed: the program was interrupted; it is asked to end after {grace} s and killed after \
                     {grace} s more, or at once by another interrupt"
                );
            }
            Ok(_) => gridloom_base::say!("gridloom: testbed: another interrupt ends the program at once"),
            Err(_) => return false,
        }
        true
    }

    fn ask_to_end(&mut self, signal: i32, folder: &Path) -> bool {
        self.step = Step::Asked;
        self.by = self.by.or(Some(if signal == 0 { SIGINT } else { signal }));
        self.due = Some(Instant::now() + GRACE);
        control::ask(folder, &Request::Tell(SIGTERM)).is_ok()
    }

    fn end(&mut self, signal: i32) {
        self.step = Step::Killed;
        self.due = Some(Instant::now() + GRACE);
        self.by = self.by.or(Some(if signal == 0 { SIGTERM } else { signal }));
    }
}
