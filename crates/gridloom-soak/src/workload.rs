//! The work of programs: random groups of tasks, plain calls, time limits and cancellations, with the expected values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_base::{
    DatumId, Dtype, GroupId, Meta, NodeId, ObjectId, Priority, RaisedCause, SplitMix64, TaskError, TaskId,
};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Retry, Source, Task, TaskKind};

use super::shared_functions;
use gridloom_sim::Bodies;

/// The functions: with one result, and with two.
pub(crate) const IDL: &str = "Module t;
Define mix(IN int n, IN double x[n], IN double y[n], OUT double z[n]) CalcOrder 1e8 Calls \"C\" mix(n, x, y, z);
Define both(IN int n, IN double x[n], IN double y[n], OUT double z[n], OUT double w[n]) CalcOrder 1e8
Calls \"C\" both(n, x, y, z, w);
DefClass tally {
    DefMethod _initialize() Calls \"C\" begin();
    DefMethod mix(IN int n, IN double x[n], IN double y[n], OUT double z[n]) CalcOrder 1e8 Calls \"C\" mix(n, x, y, z);
    DefMethod _finalize() Calls \"C\" end();
}";

/// Hashes of the signatures, in the order of their names.
pub(crate) type Hashes = [u64; 5];
const NAMES: [&str; 5] = ["t/mix", "t/both", "t/tally._initialize", "t/tally.mix", "t/tally._finalize"];
/// The function with one result.
pub(crate) const MIX_NAME: &str = NAMES[MIX];
/// The function whose first array and first result are files.
pub(crate) const WITH_FILES: &str = NAMES[BOTH];
/// Positions in these arrays.
const MIX: usize = 0;
const BOTH: usize = 1;
const BEGIN: usize = 2;
const METHOD: usize = 3;
const END: usize = 4;

/// Computes the result of the functions. It is exact, so that results can be distinguished. The second result of
/// `both` is computed with exchanged arguments.
fn mix(x: f64, y: f64, salt: f64) -> f64 {
    (3.0 * x + 5.0 * y + salt) % 1_000_003.0
}

/// One in this many tasks fails in its first runs. It may be retried up to `RETRIES` times.
const ONE_FAILS_OF: u64 = 7;
const RETRIES: u32 = 2;

/// Returns the number of runs of a task that fail before one succeeds. Methods do not fail, because they run once.
pub(crate) fn failing_runs(task: &Task) -> u32 {
    match task.id.serial % ONE_FAILS_OF == 3 && task.object().is_none() && !task.is_replicate() {
        true => 1 + (task.id.serial / ONE_FAILS_OF % u64::from(RETRIES)) as u32,
        false => 0,
    }
}

/// The bodies of the functions.
#[derive(Default)]
pub(crate) struct Mix {
    failed: BTreeMap<TaskId, u32>,
}

impl Bodies for Mix {
    fn run(&mut self, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
        if task.outputs.is_empty() {
            return Ok(Vec::new());
        }
        let failing = failing_runs(task);
        if failing > 0 {
            let failed = self.failed.entry(task.id).or_default();
            *failed += 1;
            if *failed <= failing {
                return Err(TaskError::Raised {
                    function: task.name().to_string(),
                    server: String::new(),
                    kind: "NotYet".into(),
                    message: format!("run {failed}"),
                    traceback: String::new(),
                    cause: RaisedCause::Function,
                });
            }
        }
        let (x, y, salt) = (first(&inputs[1].1), first(&inputs[2].1), task.id.serial as f64);
        let values = [mix(x, y, salt), mix(y, x, salt)];
        let results = task.outputs.iter().zip(values);
        Ok(results.map(|(output, value)| (output.meta.clone(), array(value, &output.meta))).collect())
    }

    fn uses_simulated_sharing(&self) -> bool {
        true
    }

    fn value_to_put(&self, call: TaskId, meta: &Meta) -> Option<Arc<[u8]>> {
        Some(array(shared_functions::value_of(call), meta).into())
    }
}

/// Returns an array filled with a value.
pub(crate) fn array(value: f64, meta: &Meta) -> Vec<u8> {
    (0..meta.size_bytes() / 8).flat_map(|_| value.to_ne_bytes()).collect()
}

/// Returns the value of such an array.
pub(crate) fn first(bytes: &[u8]) -> f64 {
    f64::from_ne_bytes(bytes[..8].try_into().expect("no array of the workload is empty"))
}

/// A datum with its expected value.
type ExpectedDatum = (DatumId, f64);

#[derive(Clone, Debug)]
pub(crate) struct PlainCall {
    pub(crate) task: Task,
    pub(crate) sources: Vec<ExpectedDatum>,
    pub(crate) results: Vec<ExpectedDatum>,
    pub(crate) limit_ns: Option<u64>,
}

/// A group, its source data, and its expected results.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) group: Group,
    /// Data that the program puts into its store for the group.
    pub(crate) sources: Vec<ExpectedDatum>,
    /// All results of the group.
    pub(crate) results: Vec<ExpectedDatum>,
    /// The results that no task of the group reads. The program keeps them.
    pub(crate) wanted: BTreeMap<DatumId, f64>,
}

/// Draws one client's work.
#[derive(Clone, Debug)]
pub(crate) struct WorkGenerator {
    pub(crate) random: SplitMix64,
    pub(crate) client: NodeId,
    /// Number of elements of every array.
    pub(crate) elements: u64,
    pub(crate) hashes: Hashes,
    pub(crate) next_group: u64,
    pub(crate) next_call: u64,
}

/// Number ranges of the data and tasks, chosen so that no two groups or calls share any.
const GROUP_STRIDE: u64 = 1_000;
const CALLS_FROM: u64 = 1_000_000;
const CALL_STRIDE: u64 = 10;
const METHODS_MAX: u64 = 12;

impl WorkGenerator {
    pub(crate) fn meta(&self) -> Meta {
        Meta::array(Dtype::Float64, &[self.elements])
    }

    fn datum(&self, serial: u64) -> DatumId {
        DatumId { client: self.client, serial }
    }

    /// Creates a task with these arguments; its results are `result` and possibly the datum after it.
    fn task(&mut self, serial: u64, args: [ExpectedDatum; 2], result: u64) -> (Task, Vec<ExpectedDatum>) {
        let [(x, x_value), (y, y_value)] = args;
        let salt = serial as f64;
        let mut results = vec![(self.datum(result), mix(x_value, y_value, salt))];
        let is_both = self.random.below(4) == 0;
        if is_both {
            results.push((self.datum(result + 1), mix(y_value, x_value, salt)));
        }
        let n = (self.elements as i32).to_ne_bytes().to_vec();
        let task = Task {
            id: TaskId { client: self.client, serial },
            kind: TaskKind::call(
                NAMES[if is_both { BOTH } else { MIX }],
                self.hashes[if is_both { BOTH } else { MIX }],
            ),
            args: vec![
                Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: n },
                Argument::Datum(x),
                Argument::Datum(y),
            ],
            outputs: results.iter().map(|(datum, _)| Output { datum: *datum, meta: self.meta() }).collect(),
            work_flops: Some(1e6 + self.random.below(200) as f64 * 1e6),
            options: CallOptions::default(),
        };
        let retry = Retry { times: RETRIES, crashes: true, raised: None };
        let terms = CallOptions {
            retry: (failing_runs(&task) > 0).then(|| Arc::new(retry)),
            priority: Priority((task.id.serial % 3) as i32 - 1),
            ..CallOptions::default()
        };
        let task = Task { options: terms, ..task };
        (task, results)
    }

    /// Draws a random group, which may read data that the program has already.
    pub(crate) fn group(&mut self, has: &[ExpectedDatum]) -> Work {
        let base = GROUP_STRIDE * self.next_group;
        self.next_group += 1;
        let sources: Vec<ExpectedDatum> =
            (1..=1 + self.random.below(4)).map(|serial| (self.datum(base + serial), serial as f64)).collect();
        let mut known: Vec<ExpectedDatum> = sources.iter().chain(has).copied().collect();
        let (mut tasks, mut made) = (Vec::new(), Vec::new());
        for number in 0..2 + self.random.below(30) {
            let mut pick = || known[self.random.below(known.len() as u64) as usize];
            let args = [pick(), pick()];
            let (task, results) = self.task(base + number, args, base + 100 + 2 * number);
            known.extend(&results);
            made.extend(results);
            tasks.push(task);
        }
        let read: BTreeSet<DatumId> = tasks.iter().flat_map(Task::inputs).collect();
        let wanted: BTreeMap<DatumId, f64> = made.iter().copied().filter(|(datum, _)| !read.contains(datum)).collect();
        let own = |datum: DatumId| (datum, Source { meta: self.meta(), at: vec![self.client] });
        let others = has.iter().filter(|(datum, _)| read.contains(datum));
        let earlier = others.map(|(datum, _)| (*datum, Source { meta: self.meta(), at: Vec::new() }));
        let group = Group {
            id: GroupId { client: self.client, serial: self.next_group },
            tasks,
            sources: sources.iter().map(|(datum, _)| own(*datum)).chain(earlier).collect(),
            wanted: wanted.keys().copied().collect(),
        };
        Work { group, sources, results: made, wanted }
    }

    /// Draws a plain call: the task, its arguments, its results and its limit.
    pub(crate) fn call(&mut self) -> PlainCall {
        let number = self.next_call;
        self.next_call += 1;
        let base = CALLS_FROM + CALL_STRIDE * number;
        let sources = [(self.datum(base), number as f64), (self.datum(base + 1), 7.0 * number as f64)];
        let (task, results) = self.task(base, sources, base + 2);
        let limit_ns = (self.random.below(6) == 0).then(|| self.random.below(3_000_000_000));
        PlainCall { task, sources: sources.to_vec(), results, limit_ns }
    }

    /// Returns a call that creates an object.
    pub(crate) fn object(&mut self) -> PlainCall {
        let object = ObjectId { client: self.client, serial: CALLS_FROM + CALL_STRIDE * self.next_call };
        self.lifecycle_call(BEGIN, object, None)
    }

    /// Returns calls of an object's methods, and finally the one that ends the object.
    pub(crate) fn methods(&mut self, object: ObjectId, server: NodeId) -> Vec<PlainCall> {
        let mut calls = Vec::new();
        for _ in 0..self.random.below(METHODS_MAX) {
            let call = self.call();
            let one = call.results[0];
            let task = Task {
                kind: TaskKind::method(NAMES[METHOD], object, self.hashes[METHOD]),
                outputs: call.task.outputs[..1].to_vec(),
                options: CallOptions { bound_to: Some(server), is_once: true, ..CallOptions::default() },
                ..call.task
            };
            calls.push(PlainCall { task, results: vec![one], ..call });
        }
        calls.push(self.lifecycle_call(END, object, Some(server)));
        calls
    }

    /// Returns the call that creates or ends an object.
    fn lifecycle_call(&mut self, what: usize, object: ObjectId, only: Option<NodeId>) -> PlainCall {
        let serial = CALLS_FROM + CALL_STRIDE * self.next_call;
        self.next_call += 1;
        let task = Task {
            id: TaskId { client: self.client, serial },
            kind: TaskKind::method(NAMES[what], object, self.hashes[what]),
            args: Vec::new(),
            outputs: Vec::new(),
            work_flops: Some(1e6),
            options: CallOptions { bound_to: only, is_once: true, ..CallOptions::default() },
        };
        PlainCall { task, sources: Vec::new(), results: Vec::new(), limit_ns: None }
    }
}
