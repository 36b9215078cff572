//! Imposed plans: a saved plan that the user edited, or one that a user's heuristic returned.
//!
//! Only servers and the order are given. The [`Schedule`] computes times and sources of transfers, by the models in force when
//! the plan is used. Servers are identified by name, since identifiers differ from session to session. Functions are recorded
//! too, so that a plan of another group is noticed.
//!
//! **Invariants:** none: it is untrusted input, and [`ImposedPlan::plan`] checks all of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::auto::{plan_of, timed};
use super::contention::PlanTimes;
use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::stop::Stop;
use super::{Spec, map_problem};
use crate::outline::Outline;
use gridloom_base::NodeId;
use gridloom_base::near::near_names;
use gridloom_perf::GridView;

/// The method by which a group is mapped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MappingMethod {
    /// The heuristic of this spec maps it.
    Heuristic(String),
    /// This plan is used.
    Imposed(Box<ImposedPlan>),
}

/// Which server runs each task, and in which order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ImposedPlan {
    /// Name of the user's heuristic that made it; empty for a plan that the user gave.
    pub heuristic: String,
    /// True if all data go through the client for every call, as in plain GridRPC.
    pub plain: bool,
    /// Spec of the heuristic that maps the tasks that have to be mapped again when a server is lost.
    pub fallback: String,
    pub servers: Vec<String>,
    pub functions: Vec<String>,
    pub tasks: Vec<ImposedTask>,
    /// Indices of all tasks, in the order in which they are placed on their servers.
    pub order: Vec<u32>,
}

/// A task of an imposed plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImposedTask {
    /// Index into [`ImposedPlan::functions`].
    pub function: u32,
    /// Index into [`ImposedPlan::servers`].
    pub server: u32,
}

/// A mapper's input: enough to map the same group again, elsewhere and later.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MapperInput {
    pub client: NodeId,
    pub outline: Outline,
    pub grid: GridView,
}

impl MappingMethod {
    /// Returns the mapping method for the first time and leaves the one for mapping again. An imposed plan fits only the original
    /// group, so its heuristic maps the tasks that have to be mapped again.
    pub fn take(&mut self) -> MappingMethod {
        let again = self.spec().to_owned();
        std::mem::replace(self, MappingMethod::Heuristic(again))
    }

    /// Returns the spec of the heuristic that maps, or, for an imposed plan, that maps again after a loss.
    pub fn spec(&self) -> &str {
        match self {
            MappingMethod::Heuristic(spec) => spec,
            MappingMethod::Imposed(given) => &given.fallback,
        }
    }

    /// Maps a group, as an agent does, until it is stopped. The plan's times account for copies that share links and NICs, and for
    /// tasks that run side by side, also if the heuristic ignores this.
    ///
    /// # Errors
    /// Those of [`map_group`](crate::map_group), and [`MapError::Unfit`] if an imposed plan does not fit.
    pub fn map(&self, outline: &Outline, grid: &GridView, client: NodeId, stop: Stop) -> Result<Plan, MapError> {
        let problem = Problem::new(outline, grid, client)?.with_stop(stop);
        match self {
            MappingMethod::Heuristic(spec) => {
                map_problem(&Spec::parse(spec)?, &problem).map(|plan| timed(&problem, plan))
            }
            MappingMethod::Imposed(given) => given.plan(&problem),
        }
    }
}

impl From<&str> for MappingMethod {
    fn from(spec: &str) -> MappingMethod {
        MappingMethod::Heuristic(spec.to_owned())
    }
}

impl From<String> for MappingMethod {
    fn from(spec: String) -> MappingMethod {
        MappingMethod::Heuristic(spec)
    }
}

impl fmt::Display for MappingMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MappingMethod::Heuristic(spec) => f.write_str(spec),
            MappingMethod::Imposed(given) => f.write_str(given.name()),
        }
    }
}

impl ImposedPlan {
    /// Returns the name of the plan's maker, as [`Plan::heuristic`] has it.
    pub fn name(&self) -> &str {
        if self.heuristic.is_empty() { GIVEN } else { &self.heuristic }
    }

    /// Converts a plan to servers and order, to be used on the same group later.
    ///
    /// # Panics
    /// If the plan is not one of that problem.
    pub fn of_plan(plan: &Plan, problem: &Problem) -> ImposedPlan {
        let place = |node| problem.place(node).expect("a plan names servers of its problem");
        let places: Vec<usize> = plan.tasks.iter().map(|task| place(task.server)).collect();
        let plain = plan.heuristic.split('[').next() == Some("mct");
        ImposedPlan { order: plan.order(), plain, ..ImposedPlan::of_places(&places, problem) }
    }

    /// Assigns each task to the server at that place, in call order.
    ///
    /// # Panics
    /// If there are more places than tasks, or a place is not a server.
    pub fn of_places(places: &[usize], problem: &Problem) -> ImposedPlan {
        let functions: Vec<String> =
            (0..problem.function_count()).map(|f| problem.function_name(f).to_owned()).collect();
        let task = |(task, place): (usize, &usize)| ImposedTask {
            function: problem.call(task).0 as u32,
            server: u32::try_from(*place).expect("servers are counted in 32 bits"),
        };
        ImposedPlan {
            heuristic: String::new(),
            plain: false,
            fallback: DEFAULT_FALLBACK.into(),
            servers: problem.servers().iter().map(|server| server.name.clone()).collect(),
            functions,
            tasks: places.iter().enumerate().map(task).collect(),
            order: (0..places.len() as u32).collect(),
        }
    }

    /// Builds the plan on a problem, with times and transfers by its models. Copies share links, except in plain calls.
    ///
    /// # Errors
    /// [`MapError::Unfit`] with the first task or server that does not fit; those of a bad spec.
    pub fn plan(&self, problem: &Problem) -> Result<Plan, MapError> {
        // The spec is used only after a failure, so it is checked here: a mistake in it is reported at once.
        Spec::parse(&self.fallback)?.heuristic()?;
        let places = self.places(problem)?;
        let times = if self.plain { None } else { PlanTimes::new(problem) };
        let plan = match times {
            Some(mut times) => {
                let servers: Vec<u32> = places.iter().map(|place| *place as u32).collect();
                let (choice, outcome) = times.run(&self.order, &servers);
                plan_of(problem, &choice, outcome)
            }
            None => {
                let mut schedule = self.schedule(problem);
                for task in &self.order {
                    schedule.place(*task as usize, places[*task as usize]);
                }
                schedule.finish()
            }
        };
        let plan = Plan { heuristic: self.name().to_owned(), ..plan };
        plan.validate(problem).map_err(|why| self.unfit(why))?;
        Ok(plan)
    }

    /// Returns the place of each task's server.
    ///
    /// # Errors
    /// [`MapError::Unfit`] with the first task or server that does not fit.
    pub fn places(&self, problem: &Problem) -> Result<Vec<usize>, MapError> {
        self.check(problem).map_err(|why| self.unfit(why))
    }

    /// Returns an empty schedule, of plain GridRPC if the plan is.
    pub(super) fn schedule<'p>(&self, problem: &'p Problem) -> Schedule<'p> {
        if self.plain { Schedule::plain(problem) } else { Schedule::new(problem) }
    }

    fn unfit(&self, why: String) -> MapError {
        let subject = match self.heuristic.as_str() {
            "" => "the given plan".to_owned(),
            name => format!("heuristic '{name}' returned an invalid plan"),
        };
        MapError::Unfit { subject, why }
    }

    /// Checks the plan and returns the place of each task.
    fn check(&self, problem: &Problem) -> Result<Vec<usize>, String> {
        let names = |list: &[String], index: u32| list.get(index as usize).cloned().ok_or("it is malformed");
        let known: BTreeMap<&str, usize> =
            problem.servers().iter().enumerate().map(|(place, server)| (server.name.as_str(), place)).collect();
        let (given, called) = (self.tasks.len(), problem.task_count());
        let mut places = Vec::with_capacity(given);
        for (number, task) in self.tasks.iter().enumerate().take(called) {
            let function = names(&self.functions, task.function)?;
            if function != problem.function(number) {
                let called = problem.function(number);
                return Err(format!("task {number} calls '{function}' there and '{called}' in the group"));
            }
            let name = names(&self.servers, task.server)?;
            let Some(place) = known.get(name.as_str()).copied() else {
                return Err(unknown_server(number, &name, problem));
            };
            if problem.seconds(number, place).is_none() {
                return Err(problem.cannot_run(number, place));
            }
            places.push(place);
        }
        if given != called {
            let number = given.min(called);
            let first = match self.tasks.get(number) {
                Some(task) => {
                    format!("task {number} ('{}') is not in the group", names(&self.functions, task.function)?)
                }
                None => format!("task {number} ('{}') is not in the plan", problem.function(number)),
            };
            return Err(format!("it has {given} tasks and the group {called}: {first}"));
        }
        self.check_order(problem)?;
        Ok(places)
    }

    /// Checks that the order has each task once, after those it depends on.
    fn check_order(&self, problem: &Problem) -> Result<(), String> {
        let mut done = vec![false; self.tasks.len()];
        for number in &self.order {
            let task = *number as usize;
            match done.get(task) {
                None => return Err(format!("its order has task {task}, and there is none")),
                Some(true) => return Err(format!("its order has task {task} twice")),
                Some(false) => {}
            }
            let producers = problem.inputs(task).iter().filter_map(|input| problem.data()[*input as usize].producer);
            if let Some(producer) = producers.into_iter().find(|producer| !done[*producer as usize]) {
                return Err(format!(
                    "its order has task {task} ('{}') before task {producer} ('{}'), whose result it reads",
                    problem.function(task),
                    problem.function(producer as usize)
                ));
            }
            done[task] = true;
        }
        match done.iter().position(|done| !done) {
            Some(task) => Err(format!("its order lacks task {task}")),
            None => Ok(()),
        }
    }
}

fn unknown_server(task: usize, name: &str, problem: &Problem) -> String {
    let known = || problem.servers().iter().map(|server| server.name.as_str());
    let mut near = near_names(name, known());
    if near.is_empty() {
        near = known().take(SERVERS_LISTED_MAX).map(str::to_owned).collect();
        let more = problem.servers().len() - near.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return format!(
            "task {task} is on server '{name}', and there is none of that name; there are {}{more}",
            near.join(", ")
        );
    }
    format!("task {task} is on server '{name}', and there is none of that name; did you mean {}?", near.join(" or "))
}

impl MapperInput {
    /// Keeps the parts of the grid that matter to the group: drops functions that it does not call, and addresses.
    pub fn new(client: NodeId, outline: Outline, mut grid: GridView) -> MapperInput {
        for server in &mut grid.servers {
            server.functions.retain(|name, _| outline.functions.contains(name));
            server.address.clear();
        }
        MapperInput { client, outline, grid }
    }

    /// Builds the input of a heuristic.
    ///
    /// # Errors
    /// If it is inconsistent, which is possible if it was read from a file.
    pub fn problem(&self) -> Result<Problem, MapError> {
        Problem::new(&self.outline, &self.grid, self.client)
    }
}

/// [`Plan::heuristic`] of a plan that the user gave.
pub const GIVEN: &str = "given";
/// Default heuristic for mapping tasks again after an imposed plan.
pub const DEFAULT_FALLBACK: &str = "heft";
/// Maximum number of server names listed in an error.
const SERVERS_LISTED_MAX: usize = 8;
