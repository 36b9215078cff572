//! How a group is mapped: by a named heuristic, as a plan says, or by a heuristic of the program's own. That runs here, within
//! a budget of time, and marked, so that the session refuses to wait inside it.

use std::cell::RefCell;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gridloom_base::TaskError;
use gridloom_core::graph;
use gridloom_map::{AGAIN, Heuristic, ImposedPlan, MapBy, MapError, Plan, Problem};

use crate::{Error, Grid, PlanRecord};

/// How long a heuristic of the program's own may take, if it is not told: long for a mapper, short for a program that waits in vain.
pub const MAP_TIMEOUT: Duration = Duration::from_secs(30);

/// By what a group is mapped; what [`Grid::group`] takes.
#[derive(Clone)]
pub struct Mapping(How);

#[derive(Clone)]
enum How {
    Named(MapBy),
    Own { name: String, heuristic: Arc<dyn Heuristic + Send + Sync>, limit: Option<Duration> },
}

impl Mapping {
    /// A heuristic of your own: a closure from the [`Problem`](gridloom_map::Problem) to a plan, or a type that
    /// implements [`Heuristic`]. It runs in the client, when the group is launched, for at most [`MAP_TIMEOUT`]
    /// ([`Mapping::map_timeout`] sets another limit); other threads launch groups meanwhile. It cannot launch groups of the
    /// session that it maps for. Its plan is checked: one that cannot be run is an error with `name`, and nothing else is
    /// tried then. What is left when a server is lost is mapped by `heft`.
    ///
    /// ```
    /// use gridloom::Mapping;
    /// use gridloom::map::{Problem, Schedule};
    ///
    /// // Each task where it runs fastest, wherever its data are.
    /// let fastest = Mapping::own("fastest", |problem: &Problem| {
    ///     let mut schedule = Schedule::new(problem);
    ///     for task in 0..problem.task_count() {
    ///         let seconds = |server: &usize| problem.seconds(task, *server).unwrap_or(f64::INFINITY);
    ///         let servers = 0..problem.servers().len();
    ///         let best = servers.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    ///         schedule.place(task, best.expect("a grid has servers"));
    ///     }
    ///     Ok(schedule.finish())
    /// });
    /// assert_eq!(fastest.to_string(), "fastest");
    /// ```
    pub fn own(name: &str, heuristic: impl Heuristic + Send + Sync + 'static) -> Mapping {
        Mapping(How::Own { name: name.to_string(), heuristic: Arc::new(heuristic), limit: Some(MAP_TIMEOUT) })
    }

    /// The same, with another limit of real time for a heuristic of the program's own, in simulation, too; `None` for none,
    /// and then it runs on the thread that launches the group. When it is past, the group is not mapped; the heuristic goes
    /// on in vain on a thread of its own, which nobody can end. Other mappings are not concerned.
    pub fn map_timeout(mut self, timeout: Option<Duration>) -> Mapping {
        if let How::Own { limit, .. } = &mut self.0 {
            *limit = timeout;
        }
        self
    }

    /// Whether it is a heuristic of the program's own.
    pub fn is_own(&self) -> bool {
        matches!(self.0, How::Own { .. })
    }

    /// For a call that a plan was not made for, and for what is left of a group: as [`Mapping::by`], but by a heuristic instead of a plan.
    pub(crate) fn again_by(&self, grid: &Grid, group: &graph::Group) -> Result<MapBy, Error> {
        match &self.0 {
            How::Named(_) => Ok(self.again()),
            How::Own { .. } => self.by(grid, group),
        }
    }

    /// Whether it is a plan, which is of one group.
    pub(crate) fn is_plan(&self) -> bool {
        matches!(self.0, How::Named(MapBy::Imposed(_)))
    }

    /// For what has to be mapped again.
    pub(crate) fn again(&self) -> MapBy {
        match &self.0 {
            How::Named(by) => by.spec().into(),
            How::Own { .. } => AGAIN.into(),
        }
    }

    /// What the agent is told. A heuristic of the program's own runs here, on what the agent sees.
    pub(crate) fn by(&self, grid: &Grid, group: &graph::Group) -> Result<MapBy, Error> {
        let (name, heuristic, limit) = match &self.0 {
            How::Named(by) => return Ok(by.clone()),
            How::Own { name, heuristic, limit } => (name, heuristic, *limit),
        };
        let not_mapped = |why: String| Error::from(TaskError::NotMapped { why });
        // Asked for is what the agent sees; the quickest way to map comes with it.
        let seen = grid.plan(group.clone(), MapBy::from("round-robin"))?;
        let basis = seen.basis.ok_or_else(|| not_mapped("the agent did not say what it sees".into()))?;
        let problem = Arc::new(basis.seen.problem().map_err(|why| not_mapped(why.to_string()))?);
        let returned = |why| not_mapped(format!("heuristic '{name}' returned what cannot be run: {why}"));
        let plan = run(grid, heuristic, &problem, limit)?.map_err(|why| match why {
            MapError::Unfit { why, .. } => returned(why),
            why => not_mapped(format!("heuristic '{name}': {why}")),
        })?;
        plan.validate(&problem).map_err(returned)?;
        let given = ImposedPlan { heuristic: name.clone(), ..ImposedPlan::of_plan(&plan, &problem) };
        Ok(MapBy::Imposed(Box::new(given)))
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            How::Named(by) => by.fmt(f),
            How::Own { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({self})")
    }
}

impl From<&str> for Mapping {
    fn from(spec: &str) -> Mapping {
        Mapping(How::Named(spec.into()))
    }
}

impl From<&String> for Mapping {
    fn from(spec: &String) -> Mapping {
        spec.as_str().into()
    }
}

impl From<String> for Mapping {
    fn from(spec: String) -> Mapping {
        Mapping(How::Named(spec.into()))
    }
}

impl From<&PlanRecord> for Mapping {
    fn from(plan: &PlanRecord) -> Mapping {
        Mapping(How::Named(MapBy::Imposed(Box::new(plan.given()))))
    }
}

impl From<PlanRecord> for Mapping {
    fn from(plan: PlanRecord) -> Mapping {
        Mapping::from(&plan)
    }
}

/// Sessions that code on a thread maps groups for. A heuristic that goes on in another thread of its own takes this along, so
/// that the session can refuse what would wait for the heuristic itself.
#[derive(Clone, Debug, Default)]
pub struct Inside(Vec<u64>);

thread_local! {
    static INSIDE: RefCell<Inside> = const { RefCell::new(Inside(Vec::new())) };
}

impl Inside {
    /// That of this thread.
    pub fn current() -> Inside {
        INSIDE.with_borrow(Inside::clone)
    }

    /// Makes it that of this thread, and gives what was.
    pub fn enter(self) -> Inside {
        INSIDE.replace(self)
    }

    pub(crate) fn has(&self, grid: &Grid) -> bool {
        self.0.contains(&grid.number())
    }

    fn with(mut self, grid: &Grid) -> Inside {
        self.0.push(grid.number());
        self
    }
}

/// Why a heuristic is given up.
pub fn took_too_long(limit: Duration) -> MapError {
    let seconds = limit.as_secs_f64();
    MapError::Failed {
        why: format!("it gave no plan within {seconds} s; make it quicker, or give it longer with map_timeout"),
    }
}

/// What a heuristic of the program's own gives. Without a limit it runs on this thread, otherwise on one of its own, which goes on in vain when
/// the limit is past: no thread can be ended from outside.
fn run(
    grid: &Grid,
    heuristic: &Arc<dyn Heuristic + Send + Sync>,
    problem: &Arc<Problem>,
    limit: Option<Duration>,
) -> Result<Result<Plan, MapError>, Error> {
    let inside = Inside::current();
    if inside.has(grid) {
        let why =
            "a heuristic cannot have the session that it maps for map by a heuristic of the program's own; name one";
        return Err(Error::Usage(why.into()));
    }
    let inside = inside.with(grid);
    let Some(limit) = limit else {
        let _before = Restored(inside.enter());
        return Ok(heuristic.map(problem));
    };
    let (send, receive) = channel();
    let (heuristic, problem) = (heuristic.clone(), problem.clone());
    let body = move || {
        inside.enter();
        // Nobody may wait any more.
        let _ = send.send(heuristic.map(&problem));
    };
    let thread = thread::Builder::new()
        .name("gridloom-heuristic".into())
        .spawn(body)
        .map_err(|why| Error::from(TaskError::NotMapped { why: format!("no thread for the heuristic: {why}") }))?;
    match receive.recv_timeout(limit) {
        Ok(outcome) => {
            // It ends at once. A panic of what it drops was reported there.
            let _ = thread.join();
            Ok(outcome)
        }
        Err(RecvTimeoutError::Timeout) => Ok(Err(took_too_long(limit))),
        Err(RecvTimeoutError::Disconnected) => {
            resume_unwind(thread.join().expect_err("a heuristic that gives nothing has panicked"))
        }
    }
}

/// What was before, put back.
struct Restored(Inside);

impl Drop for Restored {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).enter();
    }
}
