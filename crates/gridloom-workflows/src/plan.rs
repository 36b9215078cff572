//! Plans of recorded workflows in their file format: by names of tasks and files, and by numbers of servers.
//!
//! ```text
//! {"assignment": {task: server}, "start_seconds": {task: seconds}, "sources": {file: {server: source}}, "plain": false}
//! ```
//!
//! A source is a server or -1, the client. The default is the server that makes the file, or the client. `sources` has a
//! meaning with [`Model::M2`](crate::Model) only. `plain` marks a plan of plain GridRPC, in which servers keep nothing: the
//! client sends each input for each task, and receives each output.
//!
//! **Invariants** of a [`RecordedPlan`]: every task has an existing server, and a start that is finite and not negative;
//! sources are existing places.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use gridloom_base::json;
use gridloom_map::contention::{Choice, Outcome};
use gridloom_map::{Plan, Problem};

use crate::servers::Servers;
use crate::workflow::{CaseError, Workflow};

/// A plan of a workflow on servers.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedPlan {
    /// Server of each task.
    pub servers: Vec<u32>,
    /// Start of each task, seconds. With contention, only their order counts.
    pub start_s: Vec<f64>,
    /// The place to copy a file from, by file and destination; the index of the client is the number of servers.
    pub sources: BTreeMap<(u32, u32), u32>,
    /// True if servers keep nothing.
    pub is_stateless: bool,
}

#[derive(Deserialize)]
struct Text {
    assignment: BTreeMap<String, i64>,
    start_seconds: BTreeMap<String, f64>,
    #[serde(default)]
    sources: BTreeMap<String, BTreeMap<String, i64>>,
    #[serde(default)]
    plain: bool,
}

/// A plan in its file format.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlanText<'w> {
    /// Server by task.
    pub assignment: BTreeMap<&'w str, u32>,
    /// Start by task.
    pub start_seconds: BTreeMap<&'w str, f64>,
    /// Source by file and destination.
    pub sources: BTreeMap<&'w str, BTreeMap<String, i64>>,
}

/// Description of the expected top level of a file, for errors.
const EXPECTED_FORMAT: &str = "a plan of a workflow, as 'gridloom map --json' prints it: {\"assignment\": {TASK: SERVER}, \
                     \"start_seconds\": {TASK: SECONDS}}";

/// Describes a file that is not such a plan, if its kind can be recognized.
fn kind(text: &str) -> String {
    match json::string_at(text, "format") {
        Some(format) => format!("its format is '{format}', "),
        None if json::has_name(text, "tasks") && json::has_name(text, "files") => "it is a workflow, ".into(),
        None => String::new(),
    }
}

/// Number of the client in files.
const CLIENT_NUMBER: i64 = -1;

impl RecordedPlan {
    /// Reads a plan and ignores other fields of the file.
    ///
    /// # Errors
    /// The reason, with the `name` of the file and, if it is not JSON, line and column.
    pub fn parse(text: &str, name: &str, workflow: &Workflow, servers: &Servers) -> Result<RecordedPlan, CaseError> {
        let wrong = |why: String| CaseError { file: name.to_owned(), why };
        let given = kind(text);
        let text: Text =
            json::read(text).map_err(|error| wrong(format!("{error}; {given}expected {EXPECTED_FORMAT}")))?;
        let last = servers.len() - 1;
        let server = |number: i64| {
            let known = u32::try_from(number).ok().filter(|number| *number as usize <= last);
            known.ok_or_else(|| wrong(format!("there is no server {number}: they have the numbers from 0 to {last}")))
        };
        let place = |number: i64| if number == CLIENT_NUMBER { Ok(servers.len() as u32) } else { server(number) };
        let known: BTreeMap<&str, usize> = ids(workflow).collect();
        for (what, id) in (text.assignment.keys().map(|id| ("assignment", id)))
            .chain(text.start_seconds.keys().map(|id| ("start_seconds", id)))
        {
            if !known.contains_key(id.as_str()) {
                return Err(wrong(format!("'{what}' has task '{id}', which is not in the workflow")));
            }
        }
        let (mut chosen, mut start_s) = (Vec::new(), Vec::new());
        for task in &workflow.tasks {
            let missing = |what: &str| wrong(format!("'{what}' lacks task '{}'", task.id));
            let number = text.assignment.get(&task.id).ok_or_else(|| missing("assignment"))?;
            chosen.push(server(*number).map_err(|error| wrong(format!("task '{}': {}", task.id, error.why)))?);
            let start = *text.start_seconds.get(&task.id).ok_or_else(|| missing("start_seconds"))?;
            if !(start.is_finite() && start >= 0.0) {
                return Err(wrong(format!("task '{}' starts at {start} s; it must be 0 or above", task.id)));
            }
            start_s.push(start);
        }
        let files: BTreeMap<&str, usize> = names(workflow).collect();
        let mut sources = BTreeMap::new();
        for (file, by_server) in &text.sources {
            let in_file = |why: String| wrong(format!("'sources' of file '{file}': {why}"));
            let Some(datum) = files.get(file.as_str()) else {
                return Err(in_file("the workflow has no such file".into()));
            };
            for (to, from) in by_server {
                let number = to.parse().map_err(|_| in_file(format!("'{to}' is not the number of a server")))?;
                let (to, from) = (place(number), place(*from));
                let (to, from) = (to.map_err(|error| in_file(error.why))?, from.map_err(|error| in_file(error.why))?);
                sources.insert((*datum as u32, to), from);
            }
        }
        Ok(RecordedPlan { servers: chosen, start_s, sources, is_stateless: text.plain })
    }

    /// Converts a mapper's plan. With `with_sources`, the sources of copies to servers are those of its transfers.
    pub fn of(plan: &Plan, problem: &Problem, with_sources: bool) -> RecordedPlan {
        let place = |node| problem.place(node).expect("a plan names places of its problem") as u32;
        let moved = plan.transfers.iter().filter(|_| with_sources);
        RecordedPlan {
            servers: plan.tasks.iter().map(|task| place(task.server)).collect(),
            start_s: plan.tasks.iter().map(|task| task.start_s).collect(),
            sources: moved
                .map(|moved| ((moved.datum, place(moved.to)), place(moved.from)))
                .filter(|((_, to), _)| *to as usize != problem.client())
                .collect(),
            is_stateless: false,
        }
    }

    /// Converts the plan to its file format.
    pub fn text<'w>(&self, workflow: &'w Workflow, servers: &Servers) -> PlanText<'w> {
        let number = |place: u32| if place as usize == servers.len() { CLIENT_NUMBER } else { i64::from(place) };
        let mut sources: BTreeMap<&str, BTreeMap<String, i64>> = BTreeMap::new();
        for ((file, to), from) in &self.sources {
            let name = workflow.files[*file as usize].name.as_str();
            sources.entry(name).or_default().insert(number(*to).to_string(), number(*from));
        }
        PlanText {
            assignment: ids(workflow).map(|(id, task)| (id, self.servers[task])).collect(),
            start_seconds: ids(workflow).map(|(id, task)| (id, self.start_s[task])).collect(),
            sources,
        }
    }

    /// Returns the tasks by start, with ties by position in the file.
    pub fn order(&self, workflow: &Workflow) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.servers.len() as u32).collect();
        let place = |task: u32| workflow.tasks[task as usize].place;
        let start_s = |task: u32| self.start_s[task as usize];
        order.sort_by(|a, b| start_s(*a).total_cmp(&start_s(*b)).then(place(*a).cmp(&place(*b))));
        order
    }

    /// Converts the plan to the judge's input.
    pub(super) fn choice(&self, workflow: &Workflow) -> Choice {
        Choice { servers: self.servers.clone(), order: self.order(workflow), sources: self.sources.clone() }
    }

    /// Returns the plan with the times and copies of its outcome. Evaluating it again gives the same outcome.
    pub(super) fn with_outcome(mut self, outcome: &Outcome, workflow: &Workflow, client: u32) -> RecordedPlan {
        let order = self.order(workflow);
        self.start_s.clone_from(&outcome.start_s);
        self.separate_starts(&order, workflow);
        if !self.is_stateless {
            let usual = |file: u32| match workflow.files[file as usize].producer {
                Some(task) => self.servers[task as usize],
                None => client,
            };
            // Sources of copies to the client are stated only if they were stated before.
            let is_stated = |file: u32| self.sources.contains_key(&(file, client));
            let made = outcome.copies.iter();
            let made =
                made.filter(|copy| copy.to != client || (is_stated(copy.datum) && copy.from != usual(copy.datum)));
            self.sources = made.map(|copy| ((copy.datum, copy.to), copy.from)).collect();
        }
        self
    }

    /// Separates tasks of a server that start at the same time because some take no time. If ties would not give their
    /// order, their starts are moved apart by the smallest representable step.
    pub(super) fn separate_starts(&mut self, order: &[u32], workflow: &Workflow) {
        let mut before: BTreeMap<u32, u32> = BTreeMap::new();
        for task in order {
            if let Some(other) = before.insert(self.servers[*task as usize], *task) {
                let (other_s, place) = (self.start_s[other as usize], workflow.tasks[other as usize].place);
                let start_s = &mut self.start_s[*task as usize];
                if *start_s < other_s || (*start_s == other_s && workflow.tasks[*task as usize].place < place) {
                    *start_s = other_s.next_up();
                }
            }
        }
    }
}

fn ids(workflow: &Workflow) -> impl Iterator<Item = (&str, usize)> {
    workflow.tasks.iter().enumerate().map(|(number, task)| (task.id.as_str(), number))
}

fn names(workflow: &Workflow) -> impl Iterator<Item = (&str, usize)> {
    workflow.files.iter().enumerate().map(|(number, file)| (file.name.as_str(), number))
}
