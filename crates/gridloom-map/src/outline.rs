//! The graph of a group as a mapper sees it: tasks and data by dense indices, with work and sizes only.

use serde::{Deserialize, Serialize};

use gridloom_base::{Method, NodeId};
use gridloom_perf::Size;

/// A task as a mapper sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutlineTask {
    /// Index into [`Outline::functions`].
    pub function: u32,
    /// Work in floating-point operations, `None` if not stated.
    pub work_flops: Option<f64>,
    /// The only server that may run it, if it is bound.
    pub bound_to: Option<NodeId>,
    /// Data that it reads, as indices into [`Outline::data`], each once, ascending.
    pub inputs: Vec<u32>,
    /// Data that it makes, as indices into [`Outline::data`], ascending.
    pub outputs: Vec<u32>,
}

/// A datum as a mapper sees it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutlineDatum {
    pub size_bytes: u64,
    /// The task that makes it, or `None` if it exists before the group runs.
    pub producer: Option<u32>,
    /// Nodes that hold it before the group runs (empty if a task makes it).
    pub at: Vec<NodeId>,
    /// True if it must be sent to the client.
    pub wanted: bool,
    /// The name by which functions get and put it, if it is shared. It is no argument or result of theirs.
    #[serde(default)]
    pub name: Option<Box<str>>,
    /// Transfer method to the servers that read it, if it is shared.
    #[serde(default)]
    pub method: Method,
}

/// The graph as a mapper sees it: tasks in topological order, data and functions by index.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outline {
    /// Distinct functions called.
    pub functions: Vec<String>,
    /// The tasks, each after those it depends on.
    pub tasks: Vec<OutlineTask>,
    /// Data: the sources in order of identifier, then the results in order of task.
    pub data: Vec<OutlineDatum>,
}

impl Outline {
    /// Problem size of a task.
    pub fn size_of(&self, task: &OutlineTask) -> Size {
        let data = task.inputs.iter().chain(&task.outputs);
        let own = data.map(|datum| &self.data[*datum as usize]).filter(|datum| datum.name.is_none());
        let bytes = own.map(|datum| datum.size_bytes).fold(0, u64::saturating_add);
        Size::new(task.work_flops, bytes)
    }
}
