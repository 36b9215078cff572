//! Saved plans: JSON with one task or transfer per line, so that a plan can be edited by hand and compared line by line.
//!
//! From an edited plan only the tasks' `server` and `order` are read; `docs/plans.md` describes the format. A
//! fingerprint, `tasks_hash`, detects edits: times and transfers are then predicted again, and also if
//! the file has no makespan.

use std::path::Path;
use std::sync::Arc;

use gridloom_base::Fnv;
use gridloom_base::json::{self, JsonError};
use gridloom_map::{ImposedPlan, MapperInput};
use serde::{Deserialize, Serialize};

use super::record::{Basis, PlanRecord, TaskRecord, TransferRecord};
use crate::{Error, read_text};

/// The format, at the beginning of the file. The number changes when a reader of the present format would misread the file.
const FORMAT: &str = "gridloom plan 1";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Checked before parsing.
    #[serde(rename = "format")]
    _format: String,
    heuristic: String,
    /// Null if it is not known.
    makespan_seconds: Option<f64>,
    lower_bound_seconds: f64,
    map_seconds: f64,
    #[serde(default)]
    not_measured: Vec<String>,
    client_bytes: u64,
    server_bytes: u64,
    #[serde(default)]
    client_memory_bytes: Option<u64>,
    hash: String,
    tasks_hash: String,
    tasks: Vec<FileTask>,
    transfers: Vec<FileTransfer>,
    #[serde(default)]
    problem: Option<FileProblem>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTask {
    number: usize,
    name: String,
    function: String,
    server: String,
    /// Any number from 0: tasks request their servers in this order.
    order: serde_json::Number,
    start_seconds: f64,
    end_seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTransfer {
    datum: String,
    from: String,
    to: String,
    size_bytes: u64,
    start_seconds: f64,
    end_seconds: f64,
}

#[derive(Serialize, Deserialize)]
struct FileProblem {
    tasks: Vec<u64>,
    data: Vec<u64>,
    mapper_input: MapperInput,
}

#[derive(Serialize)]
struct ProblemToSave<'a> {
    tasks: &'a [u64],
    data: &'a [u64],
    mapper_input: &'a MapperInput,
}

impl PlanRecord {
    /// Writes the plan to a file, which can be edited.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        std::fs::write(path, self.to_json()).map_err(|error| Error::Input(format!("{}: {error}", path.display())))
    }

    /// Reads a saved plan.
    ///
    /// # Errors
    /// If the file cannot be read or is not a plan (with file, line and column), or if it was edited into a plan that
    /// cannot be run.
    pub fn load(path: impl AsRef<Path>) -> Result<PlanRecord, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = read_text(path)?;
        PlanRecord::parse(&name, &text)
    }

    /// Returns the plan in the saved format.
    pub fn to_json(&self) -> String {
        let mut ranks = vec![0; self.tasks.len()];
        self.order().iter().enumerate().for_each(|(rank, task)| ranks[*task as usize] = rank);
        let tasks = self.tasks.iter().zip(&ranks).enumerate().map(|(number, (task, rank))| {
            let TaskRecord { task: name, function, server, start_seconds, end_seconds, .. } = task.clone();
            let order = (*rank).into();
            json(&FileTask { number, name, function, server, order, start_seconds, end_seconds })
        });
        let lines = |lines: Vec<String>| match lines.is_empty() {
            true => "[]".to_string(),
            false => format!("[\n{}\n]", lines.join(",\n")),
        };
        let mut fields = vec![
            ("format", json(FORMAT)),
            ("heuristic", json(&self.heuristic)),
            ("makespan_seconds", json(&self.makespan_seconds)),
            ("lower_bound_seconds", json(&self.lower_bound_seconds)),
            ("map_seconds", json(&self.map_seconds)),
            ("not_measured", json(&self.not_measured)),
            ("client_bytes", json(&self.client_bytes)),
            ("server_bytes", json(&self.server_bytes)),
            ("client_memory_bytes", json(&self.client_memory_bytes)),
            ("hash", json(&self.hash)),
            ("tasks_hash", json(&tasks_hash(&self.tasks, &self.order()))),
            ("tasks", lines(tasks.collect())),
            ("transfers", lines(self.transfers.iter().map(json).collect())),
        ];
        if let Some(Basis { mapper_input, tasks, data }) = self.basis.as_deref() {
            fields.push(("problem", json(&ProblemToSave { tasks, data, mapper_input })));
        }
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }

    /// Parses a plan; `name` is the file's name, for errors.
    ///
    /// # Errors
    /// As [`PlanRecord::load`].
    pub fn parse(name: &str, text: &str) -> Result<PlanRecord, Error> {
        if let Some(given) = other_kind(text) {
            return Err(Error::Input(format!(
                "{name}: {given}; expected '{FORMAT}', the format of saved plans of groups"
            )));
        }
        let file: File = json::read(text).map_err(|JsonError { line, column, why }| {
            Error::Input(format!("{name}:{line}:{column}: not a plan: {why}"))
        })?;
        file.record().map_err(|error| Error::Input(format!("{name}: {error}")))
    }
}

impl FileTask {
    /// Checks the order. Times are checked together with all others.
    fn check_order(&self) -> Result<(), Error> {
        match self.order.as_f64().filter(|order| *order < 0.0) {
            Some(order) => Err(Error::Input(format!("'order' of task {} is {order}; expected 0 or more", self.number))),
            None => Ok(()),
        }
    }
}

impl File {
    /// Converts the file, whose format was checked before.
    fn record(mut self) -> Result<PlanRecord, Error> {
        self.check_times()?;
        self.tasks.sort_by_key(|task| task.number);
        if let Some((expected, task)) = self.tasks.iter().enumerate().find(|(at, task)| *at != task.number) {
            let why = if task.number < expected { "there twice" } else { "missing" };
            let number = task.number.min(expected);
            return Err(Error::Input(format!(
                "task {number} is {why}; tasks are numbered from 0 in order of their calls"
            )));
        }
        self.tasks.iter().try_for_each(FileTask::check_order)?;
        let mut order: Vec<u32> = (0..self.tasks.len() as u32).collect();
        let rank = |task: &u32| self.tasks[*task as usize].order.as_f64().unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| rank(a).total_cmp(&rank(b)).then(a.cmp(b)));
        let task = |task: FileTask| TaskRecord {
            task: task.name,
            function: task.function,
            server: task.server,
            start_seconds: task.start_seconds,
            end_seconds: task.end_seconds,
            error: None,
        };
        let transfer = |FileTransfer { datum, from, to, size_bytes, start_seconds, end_seconds }| TransferRecord {
            datum,
            from,
            to,
            size_bytes,
            start_seconds,
            end_seconds,
        };
        let basis = |FileProblem { tasks, data, mapper_input }| {
            Arc::new(Basis { mapper_input: Arc::new(mapper_input), tasks, data })
        };
        let record = PlanRecord {
            heuristic: self.heuristic,
            makespan_seconds: self.makespan_seconds.unwrap_or(f64::NAN),
            lower_bound_seconds: self.lower_bound_seconds,
            map_seconds: self.map_seconds,
            not_measured: self.not_measured,
            client_bytes: self.client_bytes,
            server_bytes: self.server_bytes,
            client_memory_bytes: self.client_memory_bytes,
            tasks: self.tasks.into_iter().map(task).collect(),
            transfers: self.transfers.into_iter().map(transfer).collect(),
            hash: self.hash,
            basis: self.problem.map(basis),
        };
        let is_edited = tasks_hash(&record.tasks, &order) != self.tasks_hash || order != record.order();
        let is_complete = record.has_times() || record.basis.is_none();
        if !is_edited && is_complete {
            return Ok(record);
        }
        let given = record.imposed();
        record.predicted(&ImposedPlan { order, plain: given.plain && !is_edited, ..given })
    }

    /// Checks that nothing precedes the plan's start or has a negative duration.
    fn check_times(&self) -> Result<(), Error> {
        let own = [
            ("makespan_seconds", self.makespan_seconds.unwrap_or_default()),
            ("lower_bound_seconds", self.lower_bound_seconds),
            ("map_seconds", self.map_seconds),
        ];
        let own = own.into_iter().map(|(what, seconds)| (String::new(), what, seconds));
        let of_one = |whose: String, start_s: f64, end_s: f64| {
            [(whose.clone(), "start_seconds", start_s), (whose, "end_seconds", end_s)]
        };
        let tasks = self
            .tasks
            .iter()
            .flat_map(|task| of_one(format!("task {}: ", task.number), task.start_seconds, task.end_seconds));
        let transfers = self.transfers.iter().enumerate().flat_map(|(number, transfer)| {
            of_one(format!("transfer {number}: "), transfer.start_seconds, transfer.end_seconds)
        });
        match own.chain(tasks).chain(transfers).find(|(_, _, seconds)| *seconds < 0.0) {
            Some((whose, what, seconds)) => {
                Err(Error::Input(format!("{whose}'{what}' is {seconds:?}; it must be 0 or above")))
            }
            None => Ok(()),
        }
    }
}

/// Describes a file that is not a saved plan of this version, if its kind can be recognized.
fn other_kind(text: &str) -> Option<String> {
    if let Some(format) = json::string_at(text, "format") {
        return (format != FORMAT).then(|| format!("its format is '{format}'"));
    }
    let names = json::names(text)?;
    let has = |name: &str| names.contains(name);
    Some(match () {
        () if has("assignment") => "it is a plan of a recorded workflow, for 'gridloom map --plan'".into(),
        () if has("tasks") && has("files") => "it is a recorded workflow, for 'gridloom map --workflow'".into(),
        () if has("format") => return None,
        () => "it has no 'format'".into(),
    })
}

/// Fingerprint of the editable parts.
fn tasks_hash(tasks: &[TaskRecord], order: &[u32]) -> String {
    let mut hash = Fnv::default();
    for task in tasks {
        hash.text(&task.function);
        hash.text(&task.server);
    }
    order.iter().for_each(|task| hash.number(u64::from(*task)));
    format!("{:016x}", hash.0)
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("names and numbers")
}
