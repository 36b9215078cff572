//! What an interrupt (SIGINT) and a request to end (SIGTERM), sent to the tool, do to its testbed.
//!
//! | inside | interrupt | another | request to end |
//! |---|---|---|---|
//! | a program | is its own, as at a terminal; if the tool alone had it, a request to end follows after [`PATIENCE`] | all is killed | is passed on; all is killed after [`PATIENCE`] |
//! | processes of a deployment | all are killed | | all are killed |
//! | nothing but a grid | it is taken down | | it is taken down |
//!
//! Whether the tool alone had an interrupt, or its whole group of processes, as from a terminal, the first process inside
//! can tell, which is in that group.

use std::path::Path;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::control::{self, Answer, Request};
use crate::spec::Spec;

/// How long a program gets to end after having been asked to.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What runs in a testbed that signals are for.
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
    /// Of a testbed like that.
    pub fn of(spec: &Spec) -> Inside {
        match (spec.program.is_some(), spec.processes.is_empty()) {
            (true, _) => Inside::Program,
            (_, false) => Inside::Processes,
            _ => Inside::Nothing,
        }
    }
}

/// How far the end of a testbed has come.
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
    /// Nothing has come yet.
    pub fn new(inside: Inside) -> Ending {
        Ending { inside, step: Step::Runs, due: None, by: None }
    }

    /// When to go on at the latest.
    pub fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// 128 and the number of the signal that has ended it, if one has.
    pub fn status(&self) -> Option<u8> {
        self.by.and_then(|signal| u8::try_from(128 + signal).ok())
    }

    /// After a signal (0 if none), or when it is due: does what is next to the testbed of that folder. `false` if that
    /// does not hear, and has to be ended otherwise.
    pub fn go_on(&mut self, signal: i32, folder: &Path) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if signal == 0 && !is_due {
            return true;
        }
        if self.step == Step::Killed {
            // It has heard, and has had its time.
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
                // It ends instead of answering; its report is read when it has.
                let _ = control::ask(folder, &Request::Down);
                true
            }
        }
    }

    fn interrupt(&mut self, folder: &Path) -> bool {
        self.step = Step::Interrupted;
        let patience = PATIENCE.as_secs();
        match control::ask(folder, &Request::Tell(SIGINT)) {
            Ok((Answer::Told { was_alone: true }, _)) => {
                (self.by, self.due) = (Some(SIGINT), Some(Instant::now() + PATIENCE));
                gridloom_core::say!(
                    "gridloom: testbed: the program was interrupted; it is asked to end after {patience} s and killed after \
                     {patience} s more, or at once by another interrupt"
                );
            }
            Ok(_) => gridloom_core::say!("gridloom: testbed: another interrupt ends the program at once"),
            Err(_) => return false,
        }
        true
    }

    fn ask_to_end(&mut self, signal: i32, folder: &Path) -> bool {
        self.step = Step::Asked;
        self.by = self.by.or(Some(if signal == 0 { SIGINT } else { signal }));
        self.due = Some(Instant::now() + PATIENCE);
        control::ask(folder, &Request::Tell(SIGTERM)).is_ok()
    }

    fn end(&mut self, signal: i32) {
        self.step = Step::Killed;
        self.due = Some(Instant::now() + PATIENCE);
        self.by = self.by.or(Some(if signal == 0 { SIGTERM } else { signal }));
    }
}
