//! Plans as the program sees them: with names, printed, drawn, explained, saved, edited and imposed on a group.
//!
//! | file | content |
//! |---|---|
//! | [`mod@file`] | the format of saved plans |
//! | [`record`] | a plan, its tasks and transfers |
//! | [`text`] | a plan as text |
//! | [`gantt`] | a plan as a drawing |
//! | [`explain`] | why a task is on its server |
//! | [`memory`] | the memory that the client needs |

mod explain;
mod file;
mod gantt;
mod lanes;
mod memory;
mod record;
mod text;

use gridloom_base::{Fnv, NodeId};
use gridloom_map::{DEFAULT_FALLBACK, GIVEN, ImposedPlan, ImposedTask, MapError, Plan, Problem, UnmeasuredEstimate};

use crate::Error;
pub use explain::{AlternativeRecord, Explained, StepRecord};
pub(crate) use gantt::{Gantt, colours};
pub use gantt::{check_svg_name, gantt_svg};
pub use memory::ClientMemory;
pub(crate) use record::{Basis, NotMeasured, bytes};
pub use record::{PlanRecord, TaskRecord, TransferRecord};

/// A plan with the names for its numbers.
pub(crate) struct NamedPlan<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) client: Option<NodeId>,
    pub(crate) name: &'a dyn Fn(NodeId) -> String,
    /// Name and function of a task.
    pub(crate) tasks: &'a dyn Fn(usize) -> (String, String),
    pub(crate) datum: &'a dyn Fn(usize) -> String,
    pub(crate) map_s: f64,
}

impl NamedPlan<'_> {
    pub(crate) fn record(&self) -> PlanRecord {
        let NamedPlan { plan, client, name, tasks, datum, map_s } = self;
        let is_client = |node: NodeId| Some(node) == *client;
        let moved = |over_client: bool| {
            let over = plan.transfers.iter().filter(|t| (is_client(t.from) || is_client(t.to)) == over_client);
            over.map(|t| t.size_bytes).sum()
        };
        let mut hash = Fnv::default();
        for (number, assignment) in plan.tasks.iter().enumerate() {
            hash.text(&tasks(number).1);
            hash.text(&name(assignment.server));
        }
        for transfer in &plan.transfers {
            hash.number(u64::from(transfer.datum));
            hash.text(&name(transfer.from));
            hash.text(&name(transfer.to));
        }
        let task = |(number, assignment): (usize, &gridloom_map::Assignment)| {
            let (task, function) = tasks(number);
            TaskRecord {
                task,
                function,
                server: name(assignment.server),
                start_seconds: assignment.start_s,
                end_seconds: assignment.end_s,
                error: None,
            }
        };
        let transfer = |transfer: &gridloom_map::Transfer| TransferRecord {
            datum: datum(transfer.datum as usize),
            from: name(transfer.from),
            to: name(transfer.to),
            size_bytes: transfer.size_bytes,
            start_seconds: transfer.start_s,
            end_seconds: transfer.end_s,
        };
        let guessed = |guess: &UnmeasuredEstimate| match guess {
            UnmeasuredEstimate::Link { from, to } => format!("link {} -> {}", name(*from), name(*to)),
            UnmeasuredEstimate::Function { function, server } => format!("{function} on {}", name(*server)),
        };
        PlanRecord {
            heuristic: plan.heuristic.clone(),
            makespan_seconds: plan.makespan_s,
            lower_bound_seconds: plan.lower_bound_s,
            map_seconds: *map_s,
            not_measured: plan.guesses.iter().map(guessed).collect(),
            client_bytes: moved(true),
            server_bytes: moved(false),
            client_memory_bytes: None,
            tasks: plan.tasks.iter().enumerate().map(task).collect(),
            transfers: plan.transfers.iter().map(transfer).collect(),
            hash: format!("{:016x}", hash.0),
            basis: None,
        }
    }
}

impl PlanRecord {
    /// Returns a copy of the plan with a task on another server. If the basis of the plan is known (it was made by
    /// [`Group::plan`](crate::Group::plan), or loaded), times and transfers are predicted again; if
    /// not, they are unknown ([`PlanRecord::has_times`]).
    ///
    /// # Errors
    /// If there is no such task or server, or the server cannot run the task.
    pub fn moved(&self, task: usize, server: &str) -> Result<PlanRecord, Error> {
        let mut plan = self.clone();
        let count = plan.tasks.len();
        let Some(moved) = plan.tasks.get_mut(task) else {
            return Err(Error::Input(format!(
                "the plan has no task {task}; it has {count}, and they are counted from 0"
            )));
        };
        moved.server = server.to_string();
        let given = ImposedPlan { order: self.order(), ..plan.imposed() };
        plan.predicted(&ImposedPlan { plain: false, ..given })
    }

    /// Returns its servers and order, for another group.
    pub(crate) fn imposed(&self) -> ImposedPlan {
        let mut servers: Vec<&str> = self.tasks.iter().map(|task| task.server.as_str()).collect();
        let mut functions: Vec<&str> = self.tasks.iter().map(|task| task.function.as_str()).collect();
        for names in [&mut servers, &mut functions] {
            names.sort_unstable();
            names.dedup();
        }
        let index = |names: &[&str], name: &str| names.binary_search(&name).expect("listed above") as u32;
        let task = |task: &TaskRecord| ImposedTask {
            function: index(&functions, &task.function),
            server: index(&servers, &task.server),
        };
        ImposedPlan {
            heuristic: String::new(),
            plain: self.heuristic.split('[').next() == Some("mct"),
            fallback: DEFAULT_FALLBACK.into(),
            tasks: self.tasks.iter().map(task).collect(),
            order: self.order(),
            servers: servers.into_iter().map(str::to_string).collect(),
            functions: functions.into_iter().map(str::to_string).collect(),
        }
    }

    /// Numbers of its tasks by start; tasks that start together are in order of their calls.
    pub(crate) fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.tasks.len() as u32).collect();
        let start_s = |task: &u32| self.tasks[*task as usize].start_seconds;
        order.sort_by(|a, b| start_s(a).total_cmp(&start_s(b)).then(a.cmp(b)));
        order
    }

    /// True if its times and transfers are known. They are unknown if it was changed without a known basis. Its
    /// makespan is NaN then, and starts only define the order of its tasks.
    pub fn has_times(&self) -> bool {
        !self.makespan_seconds.is_nan()
    }

    /// Applies servers and order, and predicts times and transfers if the basis is known.
    fn predicted(mut self, given: &ImposedPlan) -> Result<PlanRecord, Error> {
        let Some(basis) = self.basis.clone() else {
            for (rank, task) in given.order.iter().enumerate() {
                let task = &mut self.tasks[*task as usize];
                (task.start_seconds, task.end_seconds) = (rank as f64, rank as f64);
            }
            let (transfers, heuristic) = (Vec::new(), GIVEN.into());
            return Ok(PlanRecord {
                heuristic,
                makespan_seconds: f64::NAN,
                client_bytes: 0,
                server_bytes: 0,
                transfers,
                ..self
            });
        };
        let problem = self.problem(&basis)?;
        let plan = given.plan(&problem).map_err(unusable)?;
        let record = NamedPlan {
            plan: &plan,
            client: Some(basis.mapper_input.client),
            name: &|node| problem.place(node).map_or_else(|| node.to_string(), |place| problem.name(place).to_string()),
            tasks: &|task| (basis.tasks[task].to_string(), problem.function(task).to_string()),
            datum: &|datum| match &problem.data()[datum].name {
                Some(name) => name.to_string(),
                None => basis.data[datum].to_string(),
            },
            map_s: self.map_seconds,
        }
        .record();
        let PlanRecord { not_measured, client_memory_bytes, .. } = self;
        Ok(PlanRecord { basis: Some(basis), not_measured, client_memory_bytes, ..record })
    }

    /// The problem that the plan solves.
    fn problem(&self, basis: &Basis) -> Result<Problem, Error> {
        let problem = basis.mapper_input.problem().map_err(unusable)?;
        let (tasks, data) = (problem.task_count(), problem.data().len());
        if (basis.tasks.len(), basis.data.len(), self.tasks.len()) != (tasks, data, tasks) {
            return Err(Error::Input("the plan and the problem saved with it are not of the same group".into()));
        }
        Ok(problem)
    }
}

fn unusable(why: MapError) -> Error {
    Error::Input(why.to_string())
}
