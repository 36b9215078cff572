//! Recorded workflows on given servers, read from files. These are the test cases for comparing mappers.
//!
//! ```text
//! workflow.json ──Workflow::parse──┐
//!                                  ├── outline(model), grid(model) ──▶ Outline, GridView ──▶ Problem, as of any group
//! servers.json ────Servers::parse──┘
//!
//! Case ──map(spec)──▶ RecordedPlan ──evaluate──▶ Evaluated (also plan.json ──RecordedPlan::parse──▶)
//! ```
//!
//! - [`Model::M0`]: a datum for each pair of tasks that share files; inputs without a maker are everywhere, and results stay.
//!   Each transfer has the full bandwidth; pairs without a link of their own go through the client, at the sum of both
//!   times.
//! - [`Model::M1`]: in addition, a datum at the client for the outside inputs of each task, and one for the task's results that
//!   nobody reads, which is sent to the client. Transfers are as in `M0`.
//! - [`Model::M2`]: a datum for each file, which stays wherever it was copied. Transfers share links and NICs, with rates
//!   that are max-min fair; pairs without a link of their own go through the client, which then holds the file.

#![forbid(unsafe_code)]

mod evaluate;
mod plain;
mod plan;
mod servers;
mod workflow;

pub use evaluate::{EvaluateError, Evaluated};
pub use plan::{PlanText, RecordedPlan};
pub use servers::Servers;
pub use workflow::{CaseError, File, Workflow, WorkflowTask};

use std::collections::BTreeMap;
use std::str::FromStr;

use gridloom_base::{Method, NodeId};
use gridloom_map::{Outline, OutlineDatum, OutlineTask};
use gridloom_perf::{Curve, FunctionModel, GridView, LinkEstimate, Point, ServerView};

/// The client's identifier in outlines and grids of recorded workflows; servers have the numbers from [`FIRST_SERVER`].
pub const CLIENT: NodeId = NodeId(1);
/// The identifier of server 0.
pub const FIRST_SERVER: u64 = 2;
/// The function that every task calls. Its work is in seconds on a server of speed 1, or in [`STEPS`] per second.
const FUNCTION: &str = "recorded/task";
/// Units of work per second, if programs take time to start: models count no work below 1.
const STEPS: f64 = 1e9;
/// Bandwidth of a client's link that the file does not state because nothing crosses it.
const DEFAULT_BANDWIDTH: f64 = 1e12;

/// The model of transfers; see the module's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// No contention, inputs in place.
    M0,
    /// No contention, inputs and results at the client.
    M1,
    /// Contention and residency.
    M2,
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        match text {
            "m0" => Ok(Model::M0),
            "m1" => Ok(Model::M1),
            "m2" => Ok(Model::M2),
            _ => Err(format!("'{text}' is not a model; known: m0, m1, m2")),
        }
    }
}

/// A workflow on servers, with one of the models.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    pub workflow: &'a Workflow,
    pub servers: &'a Servers,
    pub model: Model,
}

impl Case<'_> {
    /// The group. Task `i` of the outline is task `i` of the workflow; datum `f` is file `f` with [`Model::M2`].
    pub fn outline(&self) -> Outline {
        match self.model {
            Model::M0 | Model::M1 => self.outline_of_pairs(),
            Model::M2 => self.outline_of_files(),
        }
    }

    /// Units of work per second on a server of speed 1.
    fn steps(&self) -> f64 {
        let servers = 0..self.servers.len();
        if servers.into_iter().any(|server| self.servers.start_s(server) > 0.0) { STEPS } else { 1.0 }
    }

    /// The time of a task on that server as a function of its work: a straight line whose offset is the start of its program.
    fn task_model(&self, server: usize) -> FunctionModel {
        let steps = self.steps();
        if steps == 1.0 {
            return FunctionModel::default();
        }
        let most_s = self.workflow.tasks.iter().map(|task| task.work_s).fold(1.0, f64::max);
        let seconds = |work_s: f64| self.servers.task_s(server, work_s);
        let point = |size: f64, seconds: f64| Point { size, seconds, spread_s: 0.0, calls: 1 };
        let by_work =
            Curve::new(vec![point(1.0, seconds(1.0 / steps)), point(2.0 * most_s * steps, seconds(2.0 * most_s))]);
        FunctionModel { by_work, ..FunctionModel::default() }
    }

    pub fn grid(&self) -> GridView {
        let servers = self.servers;
        let count = servers.len();
        let view = |server: usize| ServerView {
            node: NodeId(FIRST_SERVER + server as u64),
            // Padded, so that names sort by number even with ten or more servers.
            name: format!("{server:06}"),
            address: String::new(),
            slots: 1,
            stateless: false,
            memory_bytes: u64::MAX,
            speed_flops: Some(servers.speed(server) * self.steps()),
            pace: 1.0,
            functions: BTreeMap::from([(FUNCTION.to_owned(), self.task_model(server))]),
            busy_s: vec![0.0],
            release: String::new(),
            protocol: 0,
        };
        let link = |bandwidth: f64| LinkEstimate { latency_s: 0.0, bandwidth };
        let between = |from: usize, to: usize| match (self.model, servers.direct(from, to)) {
            (_, Some(bandwidth)) => Some(link(bandwidth)),
            (Model::M2, None) => None,
            (Model::M0 | Model::M1, None) => Some(link(servers.relayed(from, to))),
        };
        let client = |server: usize| match self.model {
            Model::M0 => link(DEFAULT_BANDWIDTH),
            Model::M1 | Model::M2 => link(servers.client(server)),
        };
        GridView {
            servers: (0..count).map(view).collect(),
            client_links: (0..count).map(client).collect(),
            links: (0..count).map(|from| (0..count).map(|to| between(from, to)).collect()).collect(),
            bottlenecks: Vec::new(),
        }
    }

    /// Returns a lower bound on the makespan by this model: the larger of the critical path on the fastest server and
    /// the total work over the sum of speeds. Except for [`Model::M0`], outside inputs and results count in the
    /// critical path, over the client's best link.
    pub fn lower_bound_s(&self) -> f64 {
        let (workflow, servers) = (self.workflow, self.servers);
        let shortest_s = |work_s: f64| {
            let on = (0..servers.len()).map(|server| servers.task_s(server, work_s));
            on.fold(f64::INFINITY, f64::min)
        };
        // The work that corresponds to the start of a program: the minimum over all servers.
        let start_work_s = (0..servers.len()).map(|server| servers.start_s(server) * servers.speed(server));
        let start_work_s = start_work_s.fold(f64::INFINITY, f64::min);
        let best_link = (0..servers.len()).map(|server| servers.client(server)).fold(0.0, f64::max);
        let per_byte = if self.model == Model::M0 { 0.0 } else { 1.0 / best_link };
        let mut end_s = vec![0.0f64; workflow.tasks.len()];
        let (mut bound_s, mut work_s) = (0.0f64, 0.0);
        for (number, task) in workflow.tasks.iter().enumerate() {
            let makers = task.inputs.iter().filter_map(|file| workflow.files[*file as usize].producer);
            let ready_s = makers.map(|maker| end_s[maker as usize]).fold(0.0, f64::max);
            let ready_s = ready_s.max(workflow.outside_bytes(number) as f64 * per_byte);
            end_s[number] = ready_s + shortest_s(task.work_s);
            bound_s = bound_s.max(end_s[number] + workflow.unread_bytes(number) as f64 * per_byte);
            work_s += start_work_s + task.work_s;
        }
        bound_s.max(work_s / servers.speeds().iter().sum::<f64>())
    }

    /// Builds a datum for each pair of a maker and a reader, and with [`Model::M1`] those of the client.
    fn outline_of_pairs(&self) -> Outline {
        let workflow = self.workflow;
        let mut data: Vec<OutlineDatum> = Vec::new();
        let mut tasks: Vec<OutlineTask> = workflow.tasks.iter().map(|task| outline_task(task, self.steps())).collect();
        for (number, task) in workflow.tasks.iter().enumerate() {
            let mut from: BTreeMap<u32, u64> = BTreeMap::new();
            for file in &task.inputs {
                let File { size_bytes, producer, .. } = workflow.files[*file as usize];
                if let Some(producer) = producer {
                    *from.entry(producer).or_default() += size_bytes;
                }
            }
            for (producer, size_bytes) in from {
                let datum = data.len() as u32;
                data.push(OutlineDatum {
                    size_bytes,
                    producer: Some(producer),
                    at: Vec::new(),
                    wanted: false,
                    name: None,
                    method: Method::Auto,
                });
                tasks[producer as usize].outputs.push(datum);
                tasks[number].inputs.push(datum);
            }
            let (outside, unread) = (workflow.outside_bytes(number), workflow.unread_bytes(number));
            if self.model == Model::M1 && outside > 0 {
                tasks[number].inputs.push(data.len() as u32);
                data.push(OutlineDatum {
                    size_bytes: outside,
                    producer: None,
                    at: vec![CLIENT],
                    wanted: false,
                    name: None,
                    method: Method::Auto,
                });
            }
            if self.model == Model::M1 && unread > 0 {
                tasks[number].outputs.push(data.len() as u32);
                let producer = Some(number as u32);
                data.push(OutlineDatum {
                    size_bytes: unread,
                    producer,
                    at: Vec::new(),
                    wanted: true,
                    name: None,
                    method: Method::Auto,
                });
            }
        }
        Outline { functions: vec![FUNCTION.to_owned()], tasks, data }
    }

    fn outline_of_files(&self) -> Outline {
        let workflow = self.workflow;
        let datum = |file: &File| OutlineDatum {
            size_bytes: file.size_bytes,
            producer: file.producer,
            at: if file.producer.is_none() { vec![CLIENT] } else { Vec::new() },
            wanted: file.producer.is_some() && file.readers.is_empty(),
            name: None,
            method: Method::Auto,
        };
        let task = |task: &WorkflowTask| OutlineTask {
            inputs: task.inputs.clone(),
            outputs: task.outputs.clone(),
            ..outline_task(task, self.steps())
        };
        Outline {
            functions: vec![FUNCTION.to_owned()],
            tasks: workflow.tasks.iter().map(task).collect(),
            data: workflow.files.iter().map(datum).collect(),
        }
    }
}

fn outline_task(task: &WorkflowTask, steps: f64) -> OutlineTask {
    OutlineTask {
        function: 0,
        work_flops: Some(task.work_s * steps),
        bound_to: None,
        inputs: Vec::new(),
        outputs: Vec::new(),
    }
}
