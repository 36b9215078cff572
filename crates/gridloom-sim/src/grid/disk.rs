//! Disks: the file accesses of tasks on their host.
//!
//! A host has one disk, and its tasks share the disk's rate evenly. The engine treats the disk as another processor
//! whose operations are bytes. All file accesses of a task happen at once, before it computes. Its files are
//!
//! - the parameters that are files (`filename`): a server writes the received ones, and reads those that its function
//!   has written. A worker of Python functions keeps the files that programs read until its next call, and does not
//!   write the same datum again;
//! - the arrays of the functions that read and write files of a server ([`FILES_MODULE`]).

use std::collections::{BTreeMap, VecDeque};

use gridloom_base::{DatumId, NodeId};
use gridloom_core::graph::{Argument, Task};
use gridloom_idl::{BaseType, Body, Definition, FILES_MODULE, Mode, Param};

use crate::store::Store;

/// The arguments and results of a function that are stored in files, by position.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Positions among all `IN` and `INOUT` parameters.
    pub args: Vec<usize>,
    /// Positions among all `OUT`, `INOUT` and `VAROUT` parameters.
    pub outputs: Vec<usize>,
    /// True if the function runs a command-line program in a Python worker. The worker then keeps the arguments until
    /// its next call.
    pub runs_program: bool,
}

impl Files {
    /// Returns the file parameters of a function.
    pub fn of(definition: &Definition) -> Files {
        let signature = &definition.signature;
        let is_of_files = signature.name.split_once('/').is_some_and(|(module, _)| module == FILES_MODULE);
        let is_file =
            |param: &Param| matches!(param.base, BaseType::File | BaseType::Stream) || is_of_files && param.is_array;
        let places = |modes: &[Mode]| {
            let params = signature.params.iter().filter(|param| modes.contains(&param.mode)).enumerate();
            params.filter(|(_, param)| is_file(param)).map(|(place, _)| place).collect()
        };
        Files {
            args: places(&[Mode::In, Mode::InOut]),
            outputs: places(&[Mode::Out, Mode::InOut, Mode::VarOut]),
            runs_program: matches!(definition.body, Body::Python { .. }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.args.is_empty() && self.outputs.is_empty()
    }

    /// Returns the bytes that a task writes and reads in files: its arguments except for data in `there`, and its
    /// results at their predicted size.
    fn bytes(&self, task: &Task, store: &Store, there: &[DatumId]) -> u64 {
        let argument = |argument: &Argument| match argument {
            Argument::Inline { meta, .. } => meta.size_bytes(),
            Argument::Datum(datum) if there.contains(datum) => 0,
            Argument::Datum(datum) => store.value(*datum).map_or(0, |value| value.meta.size_bytes()),
        };
        let args = self.args.iter().filter_map(|place| task.args.get(*place)).map(argument);
        let outputs = self.outputs.iter().filter_map(|place| task.outputs.get(*place));
        args.chain(outputs.map(|output| output.meta.size_bytes())).sum()
    }

    fn data(&self, task: &Task) -> Vec<DatumId> {
        let args = self.args.iter().filter_map(|place| task.args.get(*place));
        let datum = |argument: &Argument| match argument {
            Argument::Datum(datum) => Some(*datum),
            Argument::Inline { .. } => None,
        };
        args.filter_map(datum).collect()
    }
}

/// The files that workers keep. For each server: the data of its last calls, for as many calls as it has slots. The
/// model does not track which worker ran which call.
#[derive(Default)]
pub(crate) struct KeptFiles(BTreeMap<NodeId, VecDeque<Vec<DatumId>>>);

impl KeptFiles {
    /// Records that a task begins. Returns the bytes that it writes and reads.
    pub(crate) fn begin(&mut self, server: NodeId, slots: u32, files: &Files, task: &Task, store: &Store) -> u64 {
        if !files.runs_program {
            return files.bytes(task, store, &[]);
        }
        let calls = self.0.entry(server).or_default();
        let there: Vec<DatumId> = calls.iter().flatten().copied().collect();
        calls.push_back(files.data(task));
        if calls.len() > slots as usize {
            calls.pop_front();
        }
        files.bytes(task, store, &there)
    }

    /// Removes a server that has ended, with its workers.
    pub(crate) fn forget(&mut self, server: NodeId) {
        self.0.remove(&server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Files {
        Files::of(&gridloom_idl::parse(text, "f.idl").unwrap()[0])
    }

    #[test]
    fn files_are_those_that_the_description_says() {
        let of = |args: &[usize], outputs: &[usize]| Files {
            args: args.to_vec(),
            outputs: outputs.to_vec(),
            runs_program: false,
        };
        let text = "Module m; Define f(IN int n, IN filename a, INOUT filename b, OUT double x[n], OUT filename c) \
                    Calls \"C\" f(n, a, b, x, c);";
        assert_eq!(files(text), of(&[1, 2], &[0, 2]));
        assert_eq!(files("Module m; Define f(IN int n, IN double x[n]) Calls \"C\" f(n, x);"), Files::default());
        let text =
            "Module files; Define r(IN string p, IN long n, OUT char c[n], OUT int *e) Calls \"C\" r(p, n, c, e);";
        assert_eq!(files(text), of(&[], &[0]));
    }
}
