//! Explains in text why a plan places a task on its server.

use std::collections::BTreeSet;
use std::fmt;

use gridloom_base::Method;
use gridloom_map::{CriticalPathStep, DecidingFactor, Outcome, Problem, StepKind, critical_path, explain};
use serde::Serialize;

use super::record::{Basis, PlanRecord, TaskRecord, bytes};
use crate::Error;

/// Why a task of a plan is on its server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// Number of the task.
    pub task: usize,
    pub function: String,
    pub server: String,
    /// True if the makespan depends on it.
    pub is_critical: bool,
    /// Its own server first, then the other servers by increasing makespan, and at the end those that
    /// cannot run it.
    pub alternatives: Vec<AlternativeRecord>,
}

/// A task on one server, with all other tasks on theirs, scheduled again in the same order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlternativeRecord {
    pub server: String,
    /// When the last input is available, seconds from the start of the plan.
    pub inputs_seconds: f64,
    /// The last input to arrive; empty if there is none.
    pub last_input: String,
    pub start_seconds: f64,
    pub end_seconds: f64,
    pub makespan_seconds: f64,
    /// The part with the greatest difference from the task's own server (for that server itself: the longest part):
    /// `inputs`, `slots` or `run`; or `behind`, if the makespan differs because of later tasks rather than the task's
    /// own end.
    pub deciding_part: &'static str,
    /// Why the server cannot run it; the times are 0 then.
    pub cannot: Option<String>,
}

/// A step of the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepRecord {
    /// `task 3 linalg/dgemm on server-1`, `result of task 2 from server-1 to client`.
    pub what: String,
    /// The number of the task, if the step is one.
    pub task: Option<usize>,
    /// Start, seconds from the start of the plan.
    pub start_seconds: f64,
    pub end_seconds: f64,
    /// True if it waits for the previous step only because that occupies its slot.
    pub waits_for_slot: bool,
}

impl PlanRecord {
    /// Explains why a task is on its server, by comparison with the other servers.
    ///
    /// # Errors
    /// If there is no such task, or the basis of the plan is not known (a plan of a [`Report`](crate::Report)).
    pub fn explain(&self, task: usize) -> Result<Explained, Error> {
        let (problem, _) = self.basis_problem()?;
        let explanation = explain(&self.imposed(), &problem, task).map_err(super::unusable)?;
        let alternatives = explanation.alternatives.iter().map(|alternative| {
            let server = problem.name(alternative.server).to_string();
            match &alternative.outcome {
                Ok(outcome) => possible(server, outcome, &problem),
                Err(why) => AlternativeRecord {
                    server,
                    inputs_seconds: 0.0,
                    last_input: String::new(),
                    start_seconds: 0.0,
                    end_seconds: 0.0,
                    makespan_seconds: 0.0,
                    deciding_part: "",
                    cannot: Some(why.clone()),
                },
            }
        });
        Ok(Explained {
            task,
            function: problem.function(task).to_string(),
            server: problem.name(explanation.server).to_string(),
            is_critical: self.critical_tasks().contains(&task),
            alternatives: alternatives.collect(),
        })
    }

    /// Returns the chain of tasks and transfers that determines the makespan, from first to last.
    ///
    /// # Errors
    /// If the basis of the plan is not known.
    pub fn critical_path(&self) -> Result<Vec<StepRecord>, Error> {
        let (problem, _) = self.basis_problem()?;
        let plan = self.imposed().plan(&problem).map_err(super::unusable)?;
        let path = critical_path(&plan, &problem).map_err(super::unusable)?;
        Ok(path.iter().map(|step| self.step_record(step, &problem)).collect())
    }

    /// Returns the numbers of the tasks on the critical path; none if the basis of the plan is not known.
    pub(super) fn critical_tasks(&self) -> BTreeSet<usize> {
        self.critical_path().map_or_else(|_| BTreeSet::new(), |path| path.iter().filter_map(|step| step.task).collect())
    }

    fn step_record(&self, step: &CriticalPathStep, problem: &Problem) -> StepRecord {
        let place = |node| problem.place(node).map_or("?", |place| problem.name(place));
        let (what, task) = match step.what {
            StepKind::Task(task) => {
                let TaskRecord { function, server, .. } = &self.tasks[task as usize];
                (format!("task {task} {function} on {server}"), Some(task as usize))
            }
            StepKind::Transfer(moved) => {
                let (from, to) = (place(moved.from), place(moved.to));
                let by = match moved.method {
                    Method::Auto => String::new(),
                    method => format!(" by {method}"),
                };
                (format!("{} from {from} to {to}{by}", datum_text(moved.datum, problem)), None)
            }
        };
        let CriticalPathStep { start_s, end_s, waits_for_slot, .. } = *step;
        StepRecord { what, task, start_seconds: start_s, end_seconds: end_s, waits_for_slot }
    }

    fn basis_problem(&self) -> Result<(Problem, &Basis), Error> {
        let Some(basis) = self.basis.as_deref() else {
            let why = "the basis of this plan is not known: explain a plan that was returned by the group's plan()";
            return Err(Error::Usage(why.into()));
        };
        Ok((self.problem(basis)?, basis))
    }
}

fn possible(server: String, outcome: &Outcome, problem: &Problem) -> AlternativeRecord {
    AlternativeRecord {
        server,
        inputs_seconds: outcome.inputs_s,
        last_input: outcome.last_input.map(|datum| datum_text(datum, problem)).unwrap_or_default(),
        start_seconds: outcome.start_s,
        end_seconds: outcome.end_s,
        makespan_seconds: outcome.makespan_s,
        deciding_part: match outcome.decides {
            DecidingFactor::Inputs => "inputs",
            DecidingFactor::Slots => "slots",
            DecidingFactor::Run => "run",
            DecidingFactor::Successors => "behind",
        },
        cannot: None,
    }
}

/// Names a datum in the terms of the program.
fn datum_text(datum: u32, problem: &Problem) -> String {
    let facts = &problem.data()[datum as usize];
    match (&facts.name, facts.producer) {
        (Some(name), _) => format!("'{name}'"),
        (None, Some(task)) => format!("result of task {task}"),
        (None, None) => format!("an argument of {}", bytes(facts.size_bytes)),
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explained { task, function, server, is_critical, alternatives } = self;
        let here = &alternatives[0];
        let hangs = if *is_critical { "the makespan depends on it" } else { "the makespan does not depend on it" };
        writeln!(
            f,
            "task {task} {function} on {server}: {:.4} s to {:.4} s of {:.4} s; {hangs}",
            here.start_seconds, here.end_seconds, here.makespan_seconds
        )?;
        writeln!(f, "  {}", own_times(here))?;
        if alternatives.len() == 1 {
            return writeln!(f, "there is no other server");
        }
        writeln!(f, "elsewhere, with all other tasks unchanged and in the same order:")?;
        let width =
            alternatives.iter().map(|other| other.server.chars().count()).max().unwrap_or(0).max("server".len());
        writeln!(f, "  {:width$} {:>12} {:>12} {:>12} {:>12}  why", "server", "inputs", "start", "end", "makespan")?;
        for other in alternatives.iter().take(ALTERNATIVES_SHOWN) {
            if let Some(why) = &other.cannot {
                let why = why.split_once(", ").map_or(why.as_str(), |(_, why)| why);
                writeln!(f, "  {:width$} cannot run it: {}", other.server, why)?;
                continue;
            }
            let AlternativeRecord { server, inputs_seconds, start_seconds, end_seconds, makespan_seconds, .. } = other;
            let why = if std::ptr::eq(other, here) { "where it is".to_string() } else { difference(other, here) };
            writeln!(
                f,
                "  {server:width$} {inputs_seconds:>12.4} {start_seconds:>12.4} {end_seconds:>12.4} {makespan_seconds:>12.4}  {why}"
            )?;
        }
        if alternatives.len() > ALTERNATIVES_SHOWN {
            writeln!(f, "  and {} more", alternatives.len() - ALTERNATIVES_SHOWN)?;
        }
        Ok(())
    }
}

fn own_times(here: &AlternativeRecord) -> String {
    let AlternativeRecord { inputs_seconds, last_input, start_seconds, end_seconds, .. } = here;
    let inputs = match last_input.as_str() {
        "" => "it has no inputs".to_string(),
        last => format!("its inputs arrive at {inputs_seconds:.4} s (last: {last})"),
    };
    let slot = match start_seconds - inputs_seconds {
        wait_s if wait_s > SAME_S => format!("a slot {wait_s:.4} s later"),
        _ => "a slot at once".to_string(),
    };
    format!("{inputs}, {slot}, and it runs {:.4} s", end_seconds - start_seconds)
}

/// Describes why it ends earlier or later than on its own server.
fn difference(other: &AlternativeRecord, here: &AlternativeRecord) -> String {
    let parts = |at: &AlternativeRecord| {
        [at.inputs_seconds, at.start_seconds - at.inputs_seconds, at.end_seconds - at.start_seconds]
    };
    let (there, here_parts) = (parts(other), parts(here));
    let by = |part: usize| there[part] - here_parts[part];
    let ends = other.end_seconds - here.end_seconds;
    if other.deciding_part == "behind" {
        let own = match ends {
            same if same.abs() <= SAME_S => "ends at the same time".to_string(),
            later if later > 0.0 => format!("ends {later:.4} s later"),
            sooner => format!("ends {:.4} s sooner", sooner.abs()),
        };
        let makespan = if other.makespan_seconds > here.makespan_seconds { "later" } else { "sooner" };
        return format!("{own}, but later tasks end {makespan}");
    }
    if ends.abs() <= SAME_S {
        return "ends at the same time".into();
    }
    let (part, words) = match other.deciding_part {
        "inputs" => (0, ["inputs arrive", "later", "earlier"]),
        "slots" => (1, ["waits for a slot", "longer", "less"]),
        _ => (2, ["runs", "longer", "less"]),
    };
    let [what, more, less] = words;
    format!("{what} {:.4} s {}", by(part).abs(), if by(part) >= 0.0 { more } else { less })
}

/// Maximum number of servers listed in text; the record has all.
const ALTERNATIVES_SHOWN: usize = 30;
/// Times closer than this count as equal.
const SAME_S: f64 = 1e-9;
