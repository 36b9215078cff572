//! Disks: what tasks write to the files of their host, and read from them.
//!
//! A host has one disk, whose rate its tasks share evenly; to the engine it is one more processor, whose operations are bytes.
//! A task has its files written and read in one go, before it computes. Its files are
//!
//! - the parameters that are files (`filename`): a server writes what is sent, and reads what its function has written;
//! - the arrays of the functions that read and write files of a server ([`FILES_MODULE`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_core::base::NodeId;
use gridloom_core::flow::{ActionId, Execution, HostIndex};
use gridloom_core::graph::{Argument, Task};
use gridloom_core::idl::{BaseType, FILES_MODULE, Mode, Param, Signature};
use gridloom_core::platform::HostId;

use crate::simulation::{Purpose, Simulation};

/// Rate of a disk that nobody has described, bytes per second.
pub(crate) const RATE_DEFAULT: f64 = 1e9;

/// Which arguments and results of a function lie in files, by their places.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Among all `IN` and `INOUT` parameters.
    pub args: Vec<usize>,
    /// Among all `OUT`, `INOUT` and `VAROUT` parameters.
    pub outputs: Vec<usize>,
}

impl Files {
    /// Those of a function.
    pub fn of(signature: &Signature) -> Files {
        let is_of_files = signature.name.split_once('/').is_some_and(|(module, _)| module == FILES_MODULE);
        let is_file = |param: &Param| param.base == BaseType::File || is_of_files && param.is_array;
        let places = |modes: &[Mode]| {
            let params = signature.params.iter().filter(|param| modes.contains(&param.mode)).enumerate();
            params.filter(|(_, param)| is_file(param)).map(|(place, _)| place).collect()
        };
        Files { args: places(&[Mode::In, Mode::InOut]), outputs: places(&[Mode::Out, Mode::InOut, Mode::VarOut]) }
    }

    fn is_empty(&self) -> bool {
        self.args.is_empty() && self.outputs.is_empty()
    }
}

/// Functions with files, by name.
pub(crate) type FunctionsWithFiles = BTreeMap<String, Files>;

impl Simulation {
    /// From now on, tasks of that function have these files, whatever its description says.
    pub fn set_files(&mut self, function: &str, files: Files) {
        if files.is_empty() {
            self.files.remove(function);
        } else {
            self.files.insert(function.to_string(), files);
        }
    }

    /// From now on a host's disk reads and writes at that factor of its described rate: 0.1 for a tenth.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow_disk(&mut self, host: HostId, factor: f64) {
        assert!(factor > 0.0 && factor.is_finite(), "a disk's rate is scaled by a positive number, not {factor}");
        self.trace.scale_disk(self.now, host.0, factor);
        self.synchronise();
        let disk = self.disk(host);
        self.engine.set_speed_scale(disk, factor);
    }

    /// The engine's processor that stands for the disk of a host: disks follow all hosts.
    fn disk(&self, host: HostId) -> HostIndex {
        HostIndex(self.platform.hosts().len() as u32 + host.0)
    }

    /// Begins to write and read a task's files; `None` if it has none.
    pub(crate) fn begin_files(&mut self, node: NodeId, task: &Arc<Task>) -> Option<ActionId> {
        let size_bytes = self.bytes_in_files(node, task);
        if size_bytes == 0 {
            return None;
        }
        let disk = self.disk(self.node(node).host);
        let action = self.engine.start_execution(&Execution::new(disk, size_bytes as f64));
        self.purposes.insert(action, Purpose::Files { node, task: task.clone() });
        Some(action)
    }

    /// What a task has in files: its arguments, and its results as large as is foreseen.
    fn bytes_in_files(&self, node: NodeId, task: &Task) -> u64 {
        let Some(files) = self.files.get(&task.function) else { return 0 };
        let store = &self.node(node).store;
        let argument = |argument: &Argument| match argument {
            Argument::Inline { meta, .. } => meta.size_bytes(),
            Argument::Datum(datum) => store.value(*datum).map_or(0, |value| value.meta.size_bytes()),
        };
        let args = files.args.iter().filter_map(|place| task.args.get(*place)).map(argument);
        let outputs = files.outputs.iter().filter_map(|place| task.outputs.get(*place));
        args.chain(outputs.map(|output| output.meta.size_bytes())).sum()
    }

    /// A task's files are written and read: it computes.
    pub(crate) fn on_files_done(&mut self, node: NodeId, task: Arc<Task>) {
        let id = task.id;
        let action = self.begin_execution(node, task);
        let running = self.node_mut(node).tasks.get_mut(&id).expect("a task with files was started");
        running.action = action;
    }
}

#[cfg(test)]
mod tests {
    use gridloom_core::idl;

    use super::*;

    fn files(text: &str) -> Files {
        Files::of(&idl::parse(text, "f.idl").unwrap()[0].signature)
    }

    #[test]
    fn files_are_those_that_the_description_says() {
        let of = |args: &[usize], outputs: &[usize]| Files { args: args.to_vec(), outputs: outputs.to_vec() };
        let text = "Module m; Define f(IN int n, IN filename a, INOUT filename b, OUT double x[n], OUT filename c) \
                    Calls \"C\" f(n, a, b, x, c);";
        assert_eq!(files(text), of(&[1, 2], &[0, 2]));
        assert_eq!(files("Module m; Define f(IN int n, IN double x[n]) Calls \"C\" f(n, x);"), Files::default());
        let text =
            "Module files; Define r(IN string p, IN long n, OUT char c[n], OUT int *e) Calls \"C\" r(p, n, c, e);";
        assert_eq!(files(text), of(&[], &[0]));
    }
}
