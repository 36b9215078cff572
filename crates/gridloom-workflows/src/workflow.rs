//! A recorded workflow: tasks with their work and files.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use gridloom_base::json;

/// Why a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{file}: {why}")]
pub struct CaseError {
    pub file: String,
    pub why: String,
}

/// A workflow. Tasks come after the makers of the files that they read; independent tasks are in the order of the file.
#[derive(Clone, Debug)]
pub struct Workflow {
    pub tasks: Vec<WorkflowTask>,
    /// The files, in order of their names.
    pub files: Vec<File>,
}

#[derive(Clone, Debug)]
pub struct WorkflowTask {
    /// Identifier used in plans.
    pub id: String,
    /// Additional name for readers; empty if the file has none.
    pub name: String,
    /// Its position in the file: the first wins ties.
    pub place: usize,
    /// Run time on a server of speed 1, seconds.
    pub work_s: f64,
    /// Files that it reads, each once.
    pub inputs: Vec<u32>,
    /// Files that it makes.
    pub outputs: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub size_bytes: u64,
    /// The task that makes it; `None` if the client has it.
    pub producer: Option<u32>,
    /// The tasks that read it, ascending.
    pub readers: Vec<u32>,
}

#[derive(Deserialize)]
struct Text {
    tasks: Vec<JsonTask>,
    files: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct JsonTask {
    id: String,
    #[serde(default)]
    name: String,
    work_seconds: f64,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

/// Description of the expected top level of a file, for errors.
const EXPECTED_FORMAT: &str =
    "a workflow: {\"tasks\": [{\"id\", \"work_seconds\", \"inputs\", \"outputs\"}], \"files\": {NAME: BYTES}}";
/// Largest size that is exact as a float.
const BYTES_MAX: f64 = 9_007_199_254_740_992.0;

impl Workflow {
    /// Reads `{"tasks": [{"id", "work_seconds", "inputs": [file], "outputs": [file]}], "files": {file: bytes}}`. Tasks may have a
    /// "name", too. Other fields are ignored.
    ///
    /// # Errors
    /// The reason, with the `name` of the file and, if it is not JSON, line and column.
    pub fn parse(text: &str, name: &str) -> Result<Workflow, CaseError> {
        let wrong = |why: String| CaseError { file: name.to_owned(), why };
        let text: Text = json::read(text).map_err(|error| wrong(format!("{error}; expected {EXPECTED_FORMAT}")))?;
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut files: Vec<File> = Vec::with_capacity(text.files.len());
        for (file, size) in &text.files {
            if !(size.is_finite() && (0.0..=BYTES_MAX).contains(size)) {
                return Err(wrong(format!("file '{file}' has {size} bytes; it must be from 0 to {BYTES_MAX}")));
            }
            if size.fract() != 0.0 {
                return Err(wrong(format!(
                    "file '{file}' has {size} bytes; it must be a whole number, such as {}",
                    size.ceil()
                )));
            }
            numbers.insert(file, files.len() as u32);
            let size_bytes = *size as u64;
            files.push(File { name: file.clone(), size_bytes, producer: None, readers: Vec::new() });
        }
        let mut ids: BTreeMap<&str, usize> = BTreeMap::new();
        let mut tasks: Vec<WorkflowTask> = Vec::with_capacity(text.tasks.len());
        for (place, task) in text.tasks.iter().enumerate() {
            if ids.insert(&task.id, place).is_some() {
                return Err(wrong(format!("two tasks have the name '{}'", task.id)));
            }
            if !(task.work_seconds.is_finite() && task.work_seconds >= 0.0) {
                let work = task.work_seconds;
                return Err(wrong(format!("task '{}' has work_seconds {work}; it must be 0 or above", task.id)));
            }
            let known = |file: &String| {
                let number = numbers.get(file.as_str()).copied();
                number.ok_or_else(|| wrong(format!("task '{}' names file '{file}', which is not in 'files'", task.id)))
            };
            let mut inputs: Vec<u32> = task.inputs.iter().map(known).collect::<Result<_, _>>()?;
            inputs.sort_unstable();
            inputs.dedup();
            let outputs: Vec<u32> = task.outputs.iter().map(known).collect::<Result<_, _>>()?;
            for output in &outputs {
                let file = &mut files[*output as usize];
                if file.producer == Some(place as u32) {
                    return Err(wrong(format!(
                        "task '{}' has the output '{}' twice; list it once",
                        task.id, file.name
                    )));
                }
                if let Some(other) = file.producer.replace(place as u32) {
                    let other = &text.tasks[other as usize].id;
                    return Err(wrong(format!("file '{}' is made twice, by '{other}' and '{}'", file.name, task.id)));
                }
            }
            let (id, name) = (task.id.clone(), task.name.clone());
            tasks.push(WorkflowTask { id, name, place, work_s: task.work_seconds, inputs, outputs });
        }
        let mut workflow = Workflow { tasks, files };
        workflow
            .sort()
            .map_err(|task| wrong(format!("the tasks depend on one another in a cycle, which includes '{task}'")))?;
        for number in 0..workflow.tasks.len() {
            for file in &workflow.tasks[number].inputs {
                workflow.files[*file as usize].readers.push(number as u32);
            }
        }
        Ok(workflow)
    }

    /// Bytes of a task's inputs that no task makes.
    pub fn outside_bytes(&self, task: usize) -> u64 {
        let files = self.tasks[task].inputs.iter().map(|file| &self.files[*file as usize]);
        files.filter(|file| file.producer.is_none()).map(|file| file.size_bytes).sum()
    }

    /// Bytes of a task's outputs that no task reads.
    pub fn unread_bytes(&self, task: usize) -> u64 {
        let files = self.tasks[task].outputs.iter().map(|file| &self.files[*file as usize]);
        files.filter(|file| file.readers.is_empty()).map(|file| file.size_bytes).sum()
    }

    /// Sorts tasks after those they depend on, keeping the order of the file otherwise. Fails with a task of a cycle.
    fn sort(&mut self) -> Result<(), String> {
        let count = self.tasks.len();
        let mut waits_for = vec![0usize; count];
        let mut followers: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (place, task) in self.tasks.iter().enumerate() {
            for producer in task.inputs.iter().filter_map(|file| self.files[*file as usize].producer) {
                waits_for[place] += 1;
                followers[producer as usize].push(place);
            }
        }
        let mut ready: std::collections::BTreeSet<usize> = (0..count).filter(|place| waits_for[*place] == 0).collect();
        let mut order = Vec::with_capacity(count);
        while let Some(place) = ready.pop_first() {
            order.push(place);
            for follower in &followers[place] {
                waits_for[*follower] -= 1;
                if waits_for[*follower] == 0 {
                    ready.insert(*follower);
                }
            }
        }
        if order.len() < count {
            let stuck = (0..count).find(|place| waits_for[*place] > 0).expect("some wait");
            return Err(self.tasks[stuck].id.clone());
        }
        let mut number_of = vec![0u32; count];
        for (number, place) in order.iter().enumerate() {
            number_of[*place] = number as u32;
        }
        for file in &mut self.files {
            file.producer = file.producer.map(|place| number_of[place as usize]);
        }
        self.tasks.sort_by_key(|task| number_of[task.place]);
        Ok(())
    }
}
