//! Explains a plan: the end of each task on every other server, and the steps that determine the makespan.
//!
//! The question answered is "what if *only this task* ran elsewhere?". All other tasks stay on their servers, and all are
//! scheduled again in the order of the plan, by the same models; copies share NICs and links. It is not examined whether the
//! others could then be mapped better, too: a heuristic may have had a reason that only shows when several tasks move at once.
//!
//! Sources of copies are chosen here. If a heuristic chose others, or ignored contention, its plan's own times differ from those
//! that its servers and order give here. So the plan is imposed and scheduled again as well, and alternatives are compared with
//! that schedule.

use std::collections::BTreeMap;

use super::MapError;
use super::contention::PlanTimes;
use super::imposed::ImposedPlan;
use super::plan::{Plan, Transfer};
use super::problem::Problem;
use super::schedule::{Placed, Schedule};

/// The factor that decides when a task ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecidingFactor {
    /// The arrival of its inputs.
    Inputs,
    /// The time at which a slot is free.
    Slots,
    /// Its run time.
    Run,
    /// Its successors: with the task there, later tasks and transfers end at other times, and the makespan does not change in the
    /// same direction as the task's own end.
    Successors,
}

/// A task on one of the servers.
#[derive(Clone, PartialEq, Debug)]
pub struct Alternative {
    /// Place of the server.
    pub server: usize,
    /// The predicted run, or the reason why it cannot run there.
    pub outcome: Result<Outcome, String>,
}

/// The predicted run of a task on a server, with all others unchanged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Arrival of the last of its inputs, seconds.
    pub inputs_s: f64,
    /// The last input to arrive; `None` if the task has no inputs.
    pub last_input: Option<u32>,
    pub start_s: f64,
    pub end_s: f64,
    /// End of the whole plan.
    pub makespan_s: f64,
    /// The factor that differs most from the planned server; for the planned server itself, the factor that takes longest.
    pub decides: DecidingFactor,
}

/// Why a task is on its server.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    pub task: usize,
    /// Place of its server.
    pub server: usize,
    /// All servers: first the planned one, then the others by makespan, by the task's end there, and by name. Servers that cannot
    /// run it are last.
    pub alternatives: Vec<Alternative>,
}

/// A step of a critical path.
#[derive(Clone, PartialEq, Debug)]
pub struct CriticalPathStep {
    /// A task or a transfer.
    pub what: StepKind,
    pub start_s: f64,
    pub end_s: f64,
    /// True if it waited for the step before only because that step occupied its slot.
    pub waits_for_slot: bool,
}

/// The kind of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum StepKind {
    Task(u32),
    Transfer(Transfer),
}

/// Explains why a task of a plan is on its server.
///
/// # Errors
/// [`MapError::Unfit`] if the plan does not fit the problem, or there is no such task.
pub fn explain(given: &ImposedPlan, problem: &Problem, task: usize) -> Result<Explanation, MapError> {
    let places = given.places(problem)?;
    if task >= places.len() {
        let why = format!("there is no task {task}; it has {}, and they are counted from 0", places.len());
        return Err(MapError::Unfit { subject: "the plan".into(), why });
    }
    let mut trials = Trials::new(given, problem, &places, task);
    let here = trials.outcome(places[task]).expect("a checked plan can be run");
    let here = Outcome { decides: longest(&here), ..here };
    let mut others = Vec::new();
    for server in (0..problem.client()).filter(|server| *server != places[task]) {
        let there = match trials.outcome(server) {
            Some(there) => Ok(Outcome { decides: difference(&there, &here), ..there }),
            None => Err(problem.cannot_run(task, server)),
        };
        others.push(Alternative { server, outcome: there });
    }
    let key = |alternative: &Alternative| match &alternative.outcome {
        Ok(outcome) => (outcome.makespan_s, outcome.end_s),
        Err(_) => (f64::INFINITY, f64::INFINITY),
    };
    others.sort_by(|a, b| {
        key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)).then(a.server.cmp(&b.server))
    });
    others.insert(0, Alternative { server: places[task], outcome: Ok(here) });
    Ok(Explanation { task, server: places[task], alternatives: others })
}

/// Tries a task on one server after another.
struct Trials<'p> {
    problem: &'p Problem,
    task: usize,
    places: &'p [usize],
    order: &'p [u32],
    by: TrialModel<'p>,
}

/// The model used for a trial.
enum TrialModel<'p> {
    Judge(Box<PlanTimes<'p>>),
    /// Before the task itself, at that position of the order, all trials are alike.
    Schedule {
        before: Box<Schedule<'p>>,
        at: usize,
    },
}

impl<'p> Trials<'p> {
    fn new(given: &'p ImposedPlan, problem: &'p Problem, places: &'p [usize], task: usize) -> Trials<'p> {
        let order = &given.order;
        let times = if given.plain { None } else { PlanTimes::new(problem) };
        let by = times.map(|times| TrialModel::Judge(Box::new(times))).unwrap_or_else(|| {
            let mut before = Box::new(given.schedule(problem));
            let at = order.iter().position(|number| *number as usize == task).expect("a checked order has all tasks");
            order[..at].iter().for_each(|number| before.place(*number as usize, places[*number as usize]));
            TrialModel::Schedule { before, at }
        });
        Trials { problem, task, places, order, by }
    }

    /// Returns the run of the task on that server with the others unchanged; `None` if it cannot run there.
    fn outcome(&mut self, server: usize) -> Option<Outcome> {
        self.problem.seconds(self.task, server)?;
        Some(match &mut self.by {
            TrialModel::Judge(times) => {
                let mut servers: Vec<u32> = self.places.iter().map(|place| *place as u32).collect();
                servers[self.task] = server as u32;
                let (_, found) = times.run(self.order, &servers);
                let arrival_s = |input: u32| {
                    let copy = found.copies.iter().find(|copy| (copy.datum, copy.to) == (input, server as u32));
                    let made = self.problem.data()[input as usize]
                        .producer
                        .filter(|task| servers[*task as usize] == server as u32);
                    let made_s = made.map(|task| found.end_s[task as usize]);
                    made_s.or(copy.map(|copy| copy.end_s)).unwrap_or(0.0)
                };
                let last = last_of(self.problem.inputs(self.task).iter().map(|input| (arrival_s(*input), *input)));
                Outcome {
                    inputs_s: last.map_or(0.0, |(arrival_s, _)| arrival_s),
                    last_input: last.map(|(_, input)| input),
                    start_s: found.start_s[self.task],
                    end_s: found.end_s[self.task],
                    makespan_s: found.makespan_s,
                    decides: DecidingFactor::Run,
                }
            }
            TrialModel::Schedule { before, at } => scheduled(before, &self.order[*at..], self.places, server),
        })
    }
}

fn last_of(mut arrivals: impl Iterator<Item = (f64, u32)>) -> Option<(f64, u32)> {
    let first = arrivals.next()?;
    Some(arrivals.fold(first, |last, next| if next.0 > last.0 { next } else { last }))
}

/// Schedules the first task of `left` on that server and the others on theirs.
fn scheduled(before: &Schedule, left: &[u32], places: &[usize], server: usize) -> Outcome {
    let mut schedule = before.clone();
    let problem = schedule.problem();
    let task = left[0] as usize;
    let last = last_of(problem.inputs(task).iter().map(|input| (schedule.arrival_s(*input, server), *input)));
    schedule.place(task, server);
    left[1..].iter().for_each(|number| schedule.place(*number as usize, places[*number as usize]));
    let Placed { start_s, end_s, .. } = schedule.placed(task).expect("placed above");
    let (inputs_s, last_input) = (last.map_or(0.0, |(arrival_s, _)| arrival_s), last.map(|(_, input)| input));
    Outcome { inputs_s, last_input, start_s, end_s, makespan_s: schedule.outcome().0, decides: DecidingFactor::Run }
}

/// Seconds until its inputs are there, then until it has a slot, and then until it ends.
fn parts(outcome: &Outcome) -> [(f64, DecidingFactor); 3] {
    [
        (outcome.end_s - outcome.start_s, DecidingFactor::Run),
        (outcome.inputs_s, DecidingFactor::Inputs),
        (outcome.start_s - outcome.inputs_s, DecidingFactor::Slots),
    ]
}

fn longest(outcome: &Outcome) -> DecidingFactor {
    first_largest(parts(outcome))
}

/// Returns the factor that makes the task end later there than here, or earlier if it ends earlier. If that factor does not
/// explain the difference in makespan, returns [`DecidingFactor::Successors`].
fn difference(there: &Outcome, here: &Outcome) -> DecidingFactor {
    let tolerance_s = TOLERANCE * here.makespan_s;
    let (by_makespan_s, by_end_s) = (there.makespan_s - here.makespan_s, there.end_s - here.end_s);
    let is_other_way = by_end_s.abs() <= tolerance_s || (by_end_s > 0.0) != (by_makespan_s > 0.0);
    if by_makespan_s.abs() > tolerance_s && is_other_way {
        return DecidingFactor::Successors;
    }
    let sign = if there.end_s < here.end_s { -1.0 } else { 1.0 };
    let mut parts = parts(there);
    for ((part, _), (own, _)) in parts.iter_mut().zip(self::parts(here)) {
        *part = sign * (*part - own);
    }
    first_largest(parts)
}

fn first_largest(parts: [(f64, DecidingFactor); 3]) -> DecidingFactor {
    parts.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best }).expect("three parts").1
}

/// Returns the chain of tasks and transfers, each starting when the one before ends, that determines the plan's makespan.
///
/// # Errors
/// [`MapError::Unfit`] if the plan does not fit the problem.
pub fn critical_path(plan: &Plan, problem: &Problem) -> Result<Vec<CriticalPathStep>, MapError> {
    plan.validate(problem).map_err(|why| MapError::Unfit { subject: "the plan".into(), why })?;
    let ends = Ends::of(plan);
    let tasks = (0..plan.tasks.len()).map(|task| Event::Task(task as u32));
    let transfers = (0..plan.transfers.len()).map(Event::Transfer);
    let last =
        tasks.chain(transfers).reduce(|last, next| if ends.end_s(next) > ends.end_s(last) { next } else { last });
    let mut path = Vec::new();
    let mut next = last;
    // A task that takes no time would follow itself if only times were compared.
    while let Some(event) = next.filter(|_| path.len() < plan.tasks.len() + plan.transfers.len()) {
        let (before, waits_for_slot) = ends.before(event, problem);
        path.push(CriticalPathStep {
            what: ends.what(event),
            start_s: ends.start_s(event),
            end_s: ends.end_s(event),
            waits_for_slot,
        });
        next = before;
    }
    path.reverse();
    Ok(path)
}

#[derive(Clone, Copy, PartialEq)]
enum Event {
    Task(u32),
    Transfer(usize),
}

/// Index of the events that end when another event starts.
struct Ends<'p> {
    plan: &'p Plan,
    tolerance_s: f64,
    /// Ends of each server's tasks, ascending.
    tasks: BTreeMap<u64, Vec<(f64, u32)>>,
    /// Indices of transfers, by datum and receiver.
    transfers: BTreeMap<(u32, u64), Vec<usize>>,
}

impl<'p> Ends<'p> {
    fn of(plan: &'p Plan) -> Ends<'p> {
        let mut tasks: BTreeMap<u64, Vec<(f64, u32)>> = BTreeMap::new();
        for (number, task) in plan.tasks.iter().enumerate() {
            tasks.entry(task.server.0).or_default().push((task.end_s, number as u32));
        }
        tasks.values_mut().for_each(|ends| ends.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))));
        let mut transfers: BTreeMap<(u32, u64), Vec<usize>> = BTreeMap::new();
        for (number, transfer) in plan.transfers.iter().enumerate() {
            transfers.entry((transfer.datum, transfer.to.0)).or_default().push(number);
        }
        Ends { plan, tolerance_s: TOLERANCE * plan.makespan_s, tasks, transfers }
    }

    fn start_s(&self, event: Event) -> f64 {
        match event {
            Event::Task(task) => self.plan.tasks[task as usize].start_s,
            Event::Transfer(number) => self.plan.transfers[number].start_s,
        }
    }

    fn end_s(&self, event: Event) -> f64 {
        match event {
            Event::Task(task) => self.plan.tasks[task as usize].end_s,
            Event::Transfer(number) => self.plan.transfers[number].end_s,
        }
    }

    fn what(&self, event: Event) -> StepKind {
        match event {
            Event::Task(task) => StepKind::Task(task),
            Event::Transfer(number) => StepKind::Transfer(self.plan.transfers[number]),
        }
    }

    /// Returns the event that another had to wait for, and whether it waited only for its slot.
    fn before(&self, event: Event, problem: &Problem) -> (Option<Event>, bool) {
        let start_s = self.start_s(event);
        let just = |event: &Event| (self.end_s(*event) - start_s).abs() <= self.tolerance_s;
        let brings = |datum: u32, to: NodeKey| {
            let transfers =
                self.transfers.get(&(datum, to)).into_iter().flatten().map(|number| Event::Transfer(*number));
            let makes = problem.data()[datum as usize].producer.map(Event::Task);
            let here = |event: &Event| match event {
                Event::Task(task) => self.plan.tasks[*task as usize].server.0 == to,
                Event::Transfer(_) => true,
            };
            transfers.chain(makes).filter(here).find(|found| *found != event && just(found))
        };
        match event {
            Event::Transfer(number) => {
                let Transfer { datum, from, .. } = self.plan.transfers[number];
                // Or the sender forwards a datum that it was still receiving.
                let transfers = self.transfers.get(&(datum, from.0)).into_iter().flatten();
                let is_on = |found: &Event| self.start_s(*found) < start_s && self.end_s(*found) > start_s;
                let coming = transfers.map(|number| Event::Transfer(*number)).find(is_on);
                (brings(datum, from.0).or(coming), false)
            }
            Event::Task(task) => {
                let server = self.plan.tasks[task as usize].server.0;
                let input = problem.inputs(task as usize).iter().find_map(|input| brings(*input, server));
                if input.is_some() {
                    return (input, false);
                }
                let ends = &self.tasks[&server];
                let first = ends.partition_point(|(end_s, _)| *end_s < start_s - self.tolerance_s);
                let slot = ends[first..].iter().map(|(_, task)| Event::Task(*task)).take_while(just);
                // An event that started later cannot have occupied its slot.
                let slot = slot.filter(|found| *found != event).find(|found| self.start_s(*found) < start_s);
                (slot, slot.is_some())
            }
        }
    }
}

type NodeKey = u64;

/// An event waits for another that ends within this fraction of the makespan from its start.
const TOLERANCE: f64 = 1e-9;
