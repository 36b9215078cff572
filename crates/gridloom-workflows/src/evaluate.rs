//! Maps recorded workflows and evaluates plans. New plans and plans read from files are evaluated alike, so a plan that is
//! printed and read again has the same makespan.

use std::collections::BTreeMap;

use thiserror::Error;

use gridloom_map::contention::{Choice, ChoiceError, ContentionEvaluator, CopyRecord, Outcome};
use gridloom_map::{MapError, Problem, Spec};

use crate::plan::RecordedPlan;
use crate::{CLIENT, Case, Model, plain};

/// Tolerance for comparing times of plans without contention, as a fraction of the makespan.
const TOLERANCE: f64 = 1e-9;

/// The evaluation of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluated {
    /// The plan. With contention, its starts are the actual starts of tasks, and its sources are those of all copies.
    pub plan: RecordedPlan,
    /// End of the last task or copy, seconds.
    pub makespan_s: f64,
    pub end_s: Vec<f64>,
    /// All copies in order of their starts, if contention is modelled. Data are files. Places are servers; the client
    /// has the number after theirs.
    pub copies: Vec<CopyRecord>,
}

/// Why a plan cannot be evaluated.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// A task starts before one of its inputs arrives.
    #[error("task '{task}' starts at {start_s} s, and '{input}' is there at {arrival_s} s")]
    TooEarly {
        task: String,
        start_s: f64,
        /// The task that makes the input, or the client.
        input: String,
        /// Arrival of the input.
        arrival_s: f64,
    },
    /// Two tasks run on one server at the same time.
    #[error("task '{task}' starts at {start_s} s on server {server}, where '{other}' ends at {end_s} s")]
    Overlap {
        task: String,
        start_s: f64,
        server: u32,
        /// The task that occupies the server.
        other: String,
        end_s: f64,
    },
    /// Copies or tasks wait for one another.
    #[error("{0}")]
    Deadlock(String),
    /// A plan of plain GridRPC was evaluated by a model without contention, which cannot represent its transfers.
    #[error("a plan of plain GridRPC, in which the client sends each input for each task, needs model m2")]
    PlainWithoutContention,
}

impl Case<'_> {
    /// Builds the mapping problem of the group on the grid.
    ///
    /// # Errors
    /// If times are beyond the mapper's limits.
    pub fn problem(&self) -> Result<Problem, MapError> {
        let problem = Problem::new(&self.outline(), &self.grid(), CLIENT)?.with_exact_figures();
        Ok(if self.model == Model::M2 { problem } else { problem.without_contention() })
    }

    /// Returns the plan of a heuristic. With [`Model::M2`], a heuristic that does not model contention ignores everything that the
    /// model adds: it maps as with [`Model::M0`]. `mct` is plain GridRPC with [`Model::M2`]; with the other models its servers and
    /// order are kept, and data are sent as in any plan.
    ///
    /// # Errors
    /// If the heuristic cannot be built, or fails.
    pub fn map(&self, spec: &Spec) -> Result<RecordedPlan, MapError> {
        if spec.entry().name == "mct" {
            return Ok(self.map_plain());
        }
        let heuristic = spec.heuristic()?;
        if self.model == Model::M2 && !heuristic.knows_contention() {
            return Case { model: Model::M0, ..self.clone() }.map(spec);
        }
        let problem = self.problem()?;
        let mapped = heuristic.map(&problem)?;
        let plan = RecordedPlan::of(&mapped, &problem, self.model == Model::M2);
        let mut order: Vec<u32> = (0..plan.servers.len() as u32).collect();
        let times = |task: u32| (mapped.tasks[task as usize].start_s, mapped.tasks[task as usize].end_s);
        order.sort_by(|a, b| {
            let ((a_start, a_end), (b_start, b_end)) = (times(*a), times(*b));
            a_start.total_cmp(&b_start).then(a_end.total_cmp(&b_end)).then(a.cmp(b))
        });
        Ok(self.timed(plan, &order))
    }

    /// Computes the times of a plan.
    ///
    /// # Errors
    /// If a task starts before its inputs arrive or while its server is busy (without contention), or waits forever (with
    /// contention).
    pub fn evaluate(&self, plan: RecordedPlan) -> Result<Evaluated, EvaluateError> {
        match self.model {
            Model::M0 | Model::M1 => self.check_times(plan),
            Model::M2 => self.evaluate_with_contention(plan),
        }
    }

    /// End of plain GridRPC without contention, seconds.
    pub fn plain_s(&self) -> f64 {
        plain::plan(self).1
    }

    fn map_plain(&self) -> RecordedPlan {
        let (plan, _) = plain::plan(self);
        if self.model == Model::M2 {
            return plan;
        }
        let order = plan.order(self.workflow);
        self.timed(RecordedPlan { is_stateless: false, ..plan }, &order)
    }

    /// Returns the plan with starts in that order. Without contention each task starts as early as it can; tasks that take no time
    /// also wait for their turn.
    fn timed(&self, mut plan: RecordedPlan, order: &[u32]) -> RecordedPlan {
        let mut free_s = vec![0.0f64; self.servers.len()];
        for task in order.iter().filter(|_| self.model != Model::M2) {
            let (task, server) = (*task as usize, plan.servers[*task as usize] as usize);
            let ready_s = self.arrivals(&plan, task).map(|(_, arrival_s)| arrival_s).fold(0.0, f64::max);
            plan.start_s[task] = ready_s.max(free_s[server]);
            free_s[server] = self.end_s(&plan, task);
        }
        plan.separate_starts(order, self.workflow);
        plan
    }

    fn end_s(&self, plan: &RecordedPlan, task: usize) -> f64 {
        plan.start_s[task] + self.servers.task_s(plan.servers[task] as usize, self.workflow.tasks[task].work_s)
    }

    /// Without contention: the makers of a task's inputs (`None` is the client), and the arrival of each input.
    fn arrivals<'a>(&'a self, plan: &'a RecordedPlan, task: usize) -> impl Iterator<Item = (Option<usize>, f64)> + 'a {
        let (workflow, servers) = (self.workflow, self.servers);
        let to = plan.servers[task] as usize;
        let mut bytes: BTreeMap<u32, f64> = BTreeMap::new();
        for file in &workflow.tasks[task].inputs {
            let file = &workflow.files[*file as usize];
            if let Some(maker) = file.producer {
                *bytes.entry(maker).or_default() += file.size_bytes as f64;
            }
        }
        let outside = workflow.outside_bytes(task) as f64;
        let outside_s = if self.model == Model::M0 { 0.0 } else { outside / servers.client(to) };
        let made = bytes.into_iter().map(move |(maker, bytes)| {
            let maker = maker as usize;
            let from = plan.servers[maker] as usize;
            let bandwidth = || servers.direct(from, to).unwrap_or_else(|| servers.relayed(from, to));
            let moved_s = if from == to { 0.0 } else { bytes / bandwidth() };
            (Some(maker), self.end_s(plan, maker) + moved_s)
        });
        made.chain([(None, outside_s)])
    }

    /// Without contention: the times that the plan states, if they are possible.
    fn check_times(&self, plan: RecordedPlan) -> Result<Evaluated, EvaluateError> {
        if plan.is_stateless {
            return Err(EvaluateError::PlainWithoutContention);
        }
        let (workflow, servers) = (self.workflow, self.servers);
        let end_s: Vec<f64> = (0..workflow.tasks.len()).map(|task| self.end_s(&plan, task)).collect();
        let home_s = |task: usize| match self.model {
            Model::M0 => 0.0,
            Model::M1 | Model::M2 => workflow.unread_bytes(task) as f64 / servers.client(plan.servers[task] as usize),
        };
        let makespan_s = (0..end_s.len()).map(|task| end_s[task] + home_s(task)).fold(0.0, f64::max);
        let tolerance_s = TOLERANCE * makespan_s;
        let id = |task: usize| workflow.tasks[task].id.clone();
        let mut last: Vec<Option<usize>> = vec![None; servers.len()];
        for task in plan.order(workflow) {
            let task = task as usize;
            let start_s = plan.start_s[task];
            if let Some((maker, arrival_s)) = self.arrivals(&plan, task).find(|(_, s)| *s > start_s + tolerance_s) {
                let input = maker.map_or("the client's data".into(), id);
                return Err(EvaluateError::TooEarly { task: id(task), start_s, input, arrival_s });
            }
            let server = plan.servers[task];
            if let Some(other) = last[server as usize].replace(task)
                && end_s[other] > start_s + tolerance_s
            {
                let (other, end_s) = (id(other), end_s[other]);
                return Err(EvaluateError::Overlap { task: id(task), start_s, server, other, end_s });
            }
        }
        Ok(Evaluated { plan, makespan_s, end_s, copies: Vec::new() })
    }

    fn evaluate_with_contention(&self, plan: RecordedPlan) -> Result<Evaluated, EvaluateError> {
        let problem = self.problem().map_err(|error| EvaluateError::Deadlock(error.to_string()))?;
        let choice = plan.choice(self.workflow);
        let mut judge = ContentionEvaluator::new(&problem);
        let run = if plan.is_stateless { judge.run_plain(&choice) } else { judge.run(&choice, f64::INFINITY) };
        let outcome: Result<Outcome, ChoiceError> = run.map(|outcome| outcome.expect("there is no limit").clone());
        let outcome = outcome.map_err(|error| {
            // With the default sources, only the order can be wrong.
            let usual = Choice { sources: BTreeMap::new(), ..choice.clone() };
            let is_order = plan.is_stateless || judge.run(&usual, f64::INFINITY).is_err();
            let before = self.read_before_made(&choice).filter(|_| is_order);
            before.map_or_else(|| self.deadlock_error(&error), EvaluateError::Deadlock)
        })?;
        let client = problem.client() as u32;
        let plan = plan.with_outcome(&outcome, self.workflow, client);
        let Outcome { makespan_s, end_s, mut copies, .. } = outcome;
        // The order of copies that end together is arbitrary.
        copies.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then((a.datum, a.to).cmp(&(b.datum, b.to))));
        Ok(Evaluated { plan, makespan_s, end_s, copies })
    }

    /// Describes a task that the order has before the maker of one of its inputs. A pair on the same server is preferred, since a
    /// pair on different servers may be harmless.
    fn read_before_made(&self, choice: &Choice) -> Option<String> {
        let mut rank = vec![0; choice.order.len()];
        choice.order.iter().enumerate().for_each(|(at, task)| rank[*task as usize] = at);
        let is_same = |a: usize, b: usize| choice.servers[a] == choice.servers[b];
        let pairs = choice.order.iter().flat_map(|task| {
            let files = self.workflow.tasks[*task as usize].inputs.iter();
            let makers = files.filter_map(|file| self.workflow.files[*file as usize].producer);
            makers.map(|maker| (*task as usize, maker as usize))
        });
        let wrong: Vec<(usize, usize)> = pairs.filter(|(reader, maker)| rank[*reader] < rank[*maker]).collect();
        let (reader, maker) = wrong.iter().find(|(reader, maker)| is_same(*reader, *maker)).or(wrong.first())?;
        let id = |task: usize| &self.workflow.tasks[task].id;
        Some(format!("task '{}' is before task '{}', whose result it reads", id(*reader), id(*maker)))
    }

    /// Converts the judge's error to one with the names of tasks and files.
    fn deadlock_error(&self, error: &ChoiceError) -> EvaluateError {
        EvaluateError::Deadlock(match error {
            ChoiceError::NeverArrives { datum, place } => {
                let file = &self.workflow.files[*datum as usize].name;
                let to =
                    if *place as usize == self.servers.len() { "the client".into() } else { format!("server {place}") };
                format!("file '{file}' never reaches {to}: its sources wait for one another, or none of them gets it")
            }
            ChoiceError::NeverRun { task } => {
                let id = &self.workflow.tasks[*task as usize].id;
                format!("task '{id}' is never run: the order has it before a task that it depends on")
            }
            ChoiceError::CannotRun { task, server } => {
                format!("task '{}' cannot run on server {server}", self.workflow.tasks[*task as usize].id)
            }
        })
    }
}
