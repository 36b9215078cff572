//! Groups of calls: tasks and the data that tie them.
//!
//! Two forms. A [`Group`] is what a client recorded and servers execute: full task descriptions under their
//! identifiers. An [`Outline`] is what a mapper sees: the same graph by dense indices, with work and sizes only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::{DatumId, GroupId, Meta, NodeId, ObjectId, TaskId};

/// An argument of a task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Argument {
    /// A scalar or short string, by value.
    Inline {
        /// Its description.
        meta: Meta,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A datum that the client has put or another task makes.
    Datum(DatumId),
}

/// A result that a task makes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Its name.
    pub datum: DatumId,
    /// Its description, known from the signature and the arguments before the task runs. A text or bytes result has
    /// size 0 here: its true size is known when it is made.
    pub meta: Meta,
}

/// One call, ready to be executed by a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// `module/function`.
    pub function: String,
    /// Hash of the signature that the client checked the arguments against.
    pub signature_hash: u64,
    /// Values of all `IN` and `INOUT` parameters, hidden ones included, in declaration order.
    pub args: Vec<Argument>,
    /// Results for all `OUT` and `INOUT` parameters, in declaration order.
    pub outputs: Vec<Output>,
    /// Work in floating-point operations, from the complexity expression; `None` if the signature states none.
    pub work_flops: Option<f64>,
    /// The server that has to run it, if one has to; if that is lost it fails.
    pub only: Option<NodeId>,
    /// The object whose method it calls; `None` if it calls a function.
    pub object: Option<ObjectId>,
}

/// The function of a task that only takes what it reads to its server, where the copies stay as long as they do not stand
/// in the way. No function has such a name.
pub const COPY: &str = "take a copy";
/// The same; the copies stay until their owner releases them.
pub const KEEP: &str = "keep a copy";

impl Task {
    /// Whether it calls no function, but takes data to its server.
    pub fn is_placement(&self) -> bool {
        self.function == COPY || self.function == KEEP
    }

    /// The data that it reads, in argument order, repeated if read twice.
    pub fn inputs(&self) -> impl Iterator<Item = DatumId> + '_ {
        self.args.iter().filter_map(|arg| match arg {
            Argument::Datum(datum) => Some(*datum),
            Argument::Inline { .. } => None,
        })
    }
}

/// A datum that exists before the group runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Its description.
    pub meta: Meta,
    /// Nodes that hold it.
    pub at: Vec<NodeId>,
}

/// Calls that are mapped together, in the order in which they were made: a task comes after those it depends on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub id: GroupId,
    /// The calls.
    pub tasks: Vec<Task>,
    /// Data that the tasks read and no task of the group makes.
    pub sources: BTreeMap<DatumId, Source>,
    /// Results that the program asked to have at the client, or that nothing reads and so presumably wants.
    pub wanted: Vec<DatumId>,
}

/// A task as a mapper sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutlineTask {
    /// Index into [`Outline::functions`].
    pub function: u32,
    /// Work in floating-point operations, `None` if not stated.
    pub work_flops: Option<f64>,
    /// The server that has to run it, if one has to.
    pub only: Option<NodeId>,
    /// Data read, indices into [`Outline::data`], each once, ascending.
    pub inputs: Vec<u32>,
    /// Data made, indices into [`Outline::data`], ascending.
    pub outputs: Vec<u32>,
}

/// A datum as a mapper sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutlineDatum {
    /// Its size.
    pub size_bytes: u64,
    /// The task that makes it, or `None` if it exists before.
    pub producer: Option<u32>,
    /// Nodes that hold it before the group runs (empty if a task makes it).
    pub at: Vec<NodeId>,
    /// Whether it has to come to the client.
    pub wanted: bool,
}

/// The graph as a mapper sees it: tasks in topological order, data and functions by index.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outline {
    /// Distinct functions called.
    pub functions: Vec<String>,
    /// Tasks; each comes after those it depends on.
    pub tasks: Vec<OutlineTask>,
    /// Data: the sources in order of identifier, then the results in order of task.
    pub data: Vec<OutlineDatum>,
}

/// An outline with the identifiers behind its indices.
#[derive(Clone, Debug)]
pub struct Outlined {
    /// The outline.
    pub outline: Outline,
    /// Identifier of each datum index.
    pub data: Vec<DatumId>,
}

impl Group {
    /// The group as a mapper sees it. Task indices are those of [`Group::tasks`].
    ///
    /// # Panics
    /// If a task reads a datum that neither is a source nor is made by an earlier task: the recorder rules it out.
    pub fn outline(&self) -> Outlined {
        let mut function_index = BTreeMap::new();
        let mut functions = Vec::new();
        let mut index = BTreeMap::new();
        let mut ids = Vec::new();
        let mut data = Vec::new();
        for (id, source) in &self.sources {
            index.insert(*id, ids.len() as u32);
            ids.push(*id);
            let size_bytes = source.meta.size_bytes();
            data.push(OutlineDatum { size_bytes, producer: None, at: source.at.clone(), wanted: false });
        }
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (number, task) in self.tasks.iter().enumerate() {
            let function = *function_index.entry(task.function.as_str()).or_insert_with(|| {
                functions.push(task.function.clone());
                functions.len() as u32 - 1
            });
            let mut inputs: Vec<u32> = task
                .inputs()
                .map(|datum| *index.get(&datum).expect("a task reads only sources and results of earlier tasks"))
                .collect();
            inputs.sort_unstable();
            inputs.dedup();
            let mut outputs = Vec::with_capacity(task.outputs.len());
            for output in &task.outputs {
                let at = ids.len() as u32;
                index.insert(output.datum, at);
                ids.push(output.datum);
                outputs.push(at);
                data.push(OutlineDatum {
                    size_bytes: output.meta.size_bytes(),
                    producer: Some(number as u32),
                    at: Vec::new(),
                    wanted: false,
                });
            }
            tasks.push(OutlineTask { function, work_flops: task.work_flops, only: task.only, inputs, outputs });
        }
        for wanted in &self.wanted {
            if let Some(at) = index.get(wanted) {
                data[*at as usize].wanted = true;
            }
        }
        Outlined { outline: Outline { functions, tasks, data }, data: ids }
    }
}
