//! Groups of calls: tasks and the data that connect them.
//!
//! A [`Group`] is recorded by a client and executed by servers. It has full task descriptions under their identifiers.
//! A mapper sees the group's [`Outline`].

mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use gridloom_base::{DatumId, GroupId, Meta, Method, NamedDatum, NodeId, ObjectId, TaskId};
use gridloom_idl::{MethodName, UseKind, UsedName};
use gridloom_map::{Outline, OutlineDatum, OutlineTask};
use gridloom_perf::Size;

pub use options::{CallOptions, Failures, Retry};

/// An argument of a task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Argument {
    /// A scalar or short string, by value.
    Inline { meta: Meta, bytes: Vec<u8> },
    /// A datum that the client has put or that another task produces.
    Datum(DatumId),
}

/// A result that a task produces.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Output {
    pub datum: DatumId,
    /// Its description, known from the signature and the arguments before the task runs. A text or bytes result has
    /// size 0 here; its true size is known when it is produced.
    pub meta: Meta,
}

/// The action of a task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TaskKind {
    /// Calls a function.
    Call {
        /// `module/function`.
        function: String,
        /// Hash of the signature that the client checked the arguments against.
        signature_hash: u64,
    },
    /// Copies its inputs to its server and runs no function.
    Replicate(CopyLifetime),
    /// Copies its one input to its server, where the copy becomes this shared datum.
    Publish(Box<NamedDatum>),
    /// Produces its one output from the bytes of its one input, starting at `from_byte`. No byte is copied.
    View { from_byte: u64 },
    /// Calls a method of an object.
    Method {
        /// `module/class.method`.
        method: MethodName,
        object: ObjectId,
        /// Hash of the signature that the client checked the arguments against.
        signature_hash: u64,
    },
}

/// How long the copies of a [`TaskKind::Replicate`] are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CopyLifetime {
    /// They are kept as long as the server has room for them.
    Cached,
    /// They are kept until their owner releases them.
    Kept,
}

impl TaskKind {
    pub fn call(function: impl Into<String>, signature_hash: u64) -> TaskKind {
        TaskKind::Call { function: function.into(), signature_hash }
    }

    /// Creates a call of a method.
    ///
    /// # Panics
    /// If the name is that of a function.
    pub fn method(name: &str, object: ObjectId, signature_hash: u64) -> TaskKind {
        let method = MethodName::parse(name).expect("the caller names a method");
        TaskKind::Method { method, object, signature_hash }
    }
}

/// A part of a group, or a plain call, ready to be executed by a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    pub kind: TaskKind,
    /// Values of all `IN` and `INOUT` parameters, including hidden ones, in declaration order.
    pub args: Vec<Argument>,
    /// Results for all `OUT` and `INOUT` parameters, in declaration order.
    pub outputs: Vec<Output>,
    /// Work in floating-point operations, from the complexity expression. `None` if the signature has none.
    pub work_flops: Option<f64>,
    pub options: CallOptions,
}

impl Task {
    /// Returns the name of its function or method, or, for a replication, a name for errors and traces.
    pub fn name(&self) -> &str {
        match &self.kind {
            TaskKind::Call { function, .. } => function,
            TaskKind::Method { method, .. } => method.as_str(),
            TaskKind::Replicate(CopyLifetime::Cached) => "take a copy",
            TaskKind::Replicate(CopyLifetime::Kept) => "keep a copy",
            TaskKind::Publish(_) => "keep a shared copy",
            TaskKind::View { .. } => "take a part",
        }
    }

    /// Returns the function's name for the error about its lost server; empty for a task that only copies data.
    pub fn function_lost_with_server(&self) -> String {
        if self.is_replicate() { String::new() } else { self.name().to_string() }
    }

    /// Returns its display name: its label if it has one, else its name.
    pub fn label(&self) -> &str {
        self.options.label.as_deref().unwrap_or_else(|| self.name())
    }

    /// Returns the client of the program to which the task belongs: the client that made the outermost call if the task is
    /// nested, and its own client otherwise.
    pub fn program(&self) -> NodeId {
        self.options.program.unwrap_or(self.id.client)
    }

    /// Returns the call that counts as the maker of the data that its function puts: itself, or the first call if this
    /// one is a retry by its program.
    pub fn put_origin(&self) -> TaskId {
        TaskId { serial: self.options.retry_of.map_or(self.id.serial, NonZeroU64::get), ..self.id }
    }

    /// True if its function runs a function that the program sends along, or any program as a gang, which also waits
    /// for other servers. Models of its own function cannot predict its time then.
    pub fn is_unpredictable(&self) -> bool {
        self.options.label.is_some() || self.options.gang > 0
    }

    /// True if it runs no function, but copies data to its server or takes a part of a datum there.
    pub fn is_replicate(&self) -> bool {
        matches!(self.kind, TaskKind::Replicate(_) | TaskKind::Publish(_) | TaskKind::View { .. })
    }

    /// Returns the method that it calls and the object.
    pub fn method(&self) -> Option<(&MethodName, ObjectId)> {
        match &self.kind {
            TaskKind::Method { method, object, .. } => Some((method, *object)),
            TaskKind::Call { .. } | TaskKind::Replicate(_) | TaskKind::Publish(_) | TaskKind::View { .. } => None,
        }
    }

    /// Returns the object on which it calls a method.
    pub fn object(&self) -> Option<ObjectId> {
        self.method().map(|(_, object)| object)
    }

    /// True if the caller bound it to one server. Methods always run where their object is, so the caller's choice
    /// does not count.
    pub fn is_bound(&self) -> bool {
        self.options.bound_to.is_some() && self.object().is_none()
    }

    /// Returns the data that it reads in argument order, repeated if read twice.
    pub fn inputs(&self) -> impl Iterator<Item = DatumId> + '_ {
        self.args.iter().filter_map(|arg| match arg {
            Argument::Datum(datum) => Some(*datum),
            Argument::Inline { .. } => None,
        })
    }

    /// Returns its size. `bytes_of` returns the size of a datum that it reads.
    pub fn size(&self, bytes_of: impl Fn(DatumId) -> u64) -> Size {
        let read: BTreeSet<DatumId> = self.inputs().collect();
        let made = self.outputs.iter().map(|output| output.meta.size_bytes());
        Size::new(self.work_flops, read.into_iter().map(bytes_of).chain(made).fold(0, u64::saturating_add))
    }
}

/// A datum that exists before the group runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Source {
    pub meta: Meta,
    /// Nodes that have it.
    pub at: Vec<NodeId>,
}

/// Calls that are mapped together, in the order in which they were made: each task is after those it depends on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Group {
    pub id: GroupId,
    pub tasks: Vec<Task>,
    /// Data that the tasks read and that no task of the group produces.
    pub sources: BTreeMap<DatumId, Source>,
    /// Results to be sent to the client: those that the program requested, and those that no task reads, which it
    /// presumably wants.
    pub wanted: Vec<DatumId>,
}

/// An outline with the identifiers of its indices.
#[derive(Clone, Debug)]
pub struct Outlined {
    pub outline: Outline,
    /// Identifier of each datum index. Shared data that functions get and put by name have placeholder identifiers
    /// that no datum has.
    pub data: Vec<DatumId>,
}

impl Outlined {
    /// Returns the names of shared data that functions get and put, by datum index.
    pub fn names(&self) -> BTreeMap<u32, String> {
        let named = (0..).zip(&self.outline.data).filter_map(|(index, datum)| Some((index, datum.name.as_deref()?)));
        named.map(|(index, name)| (index, name.to_string())).collect()
    }
}

/// Returns the outline's entry for a shared datum.
fn outlined_share(used: &UsedName, producer: Option<u32>) -> OutlineDatum {
    let name = Some(used.name.as_str().into());
    OutlineDatum {
        size_bytes: used.size_bytes,
        producer,
        at: Vec::new(),
        wanted: false,
        name,
        method: used.retention.method,
    }
}

/// Returns a placeholder identifier for a shared datum, whose real identifier only the catalog knows.
fn placeholder_id(index: u32) -> DatumId {
    DatumId { client: NodeId::CATALOG, serial: u64::MAX - u64::from(index) }
}

impl Group {
    /// Returns the shared data that tasks get and that no earlier task puts.
    fn external_names(&self) -> Vec<&UsedName> {
        let mut put = BTreeSet::new();
        let mut got = Vec::new();
        for task in &self.tasks {
            got.extend(task.options.uses_matching(UseKind::gets).filter(|used| !put.contains(used.name.as_str())));
            put.extend(task.options.uses_matching(UseKind::puts).map(|used| used.name.as_str()));
        }
        got
    }

    /// Returns the group as a mapper sees it. Task indices are those of [`Group::tasks`].
    ///
    /// # Panics
    /// If a task reads a datum that is neither a source nor produced by an earlier task. The recorder rules this out.
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
            let (at, method) = (source.at.clone(), Method::Auto);
            data.push(OutlineDatum { size_bytes, producer: None, at, wanted: false, name: None, method });
        }
        let mut named: BTreeMap<&str, u32> = BTreeMap::new();
        for used in self.external_names() {
            named.entry(&used.name).or_insert_with(|| {
                let at = ids.len() as u32;
                ids.push(placeholder_id(at));
                data.push(outlined_share(used, None));
                at
            });
        }
        let mut tasks = Vec::with_capacity(self.tasks.len());
        for (number, task) in self.tasks.iter().enumerate() {
            let function = *function_index.entry(task.name()).or_insert_with(|| {
                functions.push(task.name().to_string());
                functions.len() as u32 - 1
            });
            let mut inputs: Vec<u32> = task
                .inputs()
                .map(|datum| *index.get(&datum).expect("a task reads only sources and results of earlier tasks"))
                .collect();
            inputs.extend(task.options.uses_matching(UseKind::gets).map(|used| named[used.name.as_str()]));
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
                    name: None,
                    method: Method::Auto,
                });
            }
            for used in task.options.uses_matching(UseKind::puts) {
                let at = ids.len() as u32;
                named.insert(&used.name, at);
                ids.push(placeholder_id(at));
                outputs.push(at);
                data.push(outlined_share(used, Some(number as u32)));
            }
            tasks.push(OutlineTask {
                function,
                work_flops: task.work_flops,
                bound_to: task.options.bound_to,
                inputs,
                outputs,
            });
        }
        for wanted in &self.wanted {
            if let Some(at) = index.get(wanted) {
                data[*at as usize].wanted = true;
            }
        }
        Outlined { outline: Outline { functions, tasks, data }, data: ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(serial: u64, uses: &[(UseKind, &str)]) -> Task {
        let used = |(does, name): &(UseKind, &str)| UsedName {
            kind: *does,
            name: (*name).into(),
            size_bytes: 100 + serial,
            retention: Default::default(),
        };
        Task {
            id: TaskId { client: NodeId(9), serial },
            kind: TaskKind::call("m/f", 0),
            args: Vec::new(),
            outputs: Vec::new(),
            work_flops: None,
            options: CallOptions { uses: uses.iter().map(used).collect(), ..CallOptions::default() },
        }
    }

    #[test]
    fn a_mapper_sees_the_shared_data_that_tasks_get_and_put() {
        let (get, put, replace) = (UseKind::Get, UseKind::Put, UseKind::Replace);
        let tasks = vec![
            task(1, &[(get, "mesh"), (put, "x")]),
            task(2, &[(get, "x"), (get, "mesh"), (replace, "x")]),
            task(3, &[(get, "x"), (get, "later")]),
            task(4, &[(put, "later"), (get, "x")]),
        ];
        let id = GroupId { client: NodeId(9), serial: 1 };
        let Outlined { outline, data } = Group { id, tasks, sources: BTreeMap::new(), wanted: Vec::new() }.outline();
        let names: Vec<&str> = outline.data.iter().map(|datum| datum.name.as_deref().unwrap()).collect();
        // A name that is read before it is put was put outside the group.
        assert_eq!(names, ["mesh", "later", "x", "x", "later"]);
        let producers: Vec<Option<u32>> = outline.data.iter().map(|datum| datum.producer).collect();
        assert_eq!(producers, [None, None, Some(0), Some(1), Some(3)]);
        let inputs: Vec<&[u32]> = outline.tasks.iter().map(|task| task.inputs.as_slice()).collect();
        assert_eq!(inputs, [&[0][..], &[0, 2], &[1, 3], &[3]]);
        let outputs: Vec<&[u32]> = outline.tasks.iter().map(|task| task.outputs.as_slice()).collect();
        assert_eq!(outputs, [&[2][..], &[3], &[], &[4]]);
        assert_eq!((outline.data[0].size_bytes, outline.data[3].size_bytes), (101, 102));
        assert_eq!(data.iter().collect::<BTreeSet<_>>().len(), 5);
        assert_eq!(outline.size_of(&outline.tasks[1]), Size::new(None, 0), "they are no arguments");
    }
}
