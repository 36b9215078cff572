//! How a group is mapped: by a named heuristic, with a given plan, or by a custom heuristic of the program. A custom
//! heuristic runs here, with a time limit, on a marked thread, so that the session refuses to wait inside it.

use std::cell::RefCell;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gridloom_base::TaskError;
use gridloom_core::graph;
use gridloom_map::{DEFAULT_FALLBACK, Heuristic, ImposedPlan, MapError, MappingMethod, Plan, Problem};

use super::planning::plan;
use crate::Error;
use crate::plan::PlanRecord;
use crate::session::Session;

/// Default time limit of a custom heuristic: long for a mapper, but short for a program that would wait for nothing.
pub const MAP_TIMEOUT: Duration = Duration::from_secs(30);

/// How to map a group; the argument of [`Grid::group`](crate::Grid::group).
#[derive(Clone)]
pub struct Mapping(Method);

#[derive(Clone)]
enum Method {
    Named(MappingMethod),
    Own { name: String, heuristic: Arc<dyn Heuristic + Send + Sync>, limit: Option<Duration> },
}

impl Mapping {
    /// Uses a custom heuristic: a closure from the [`Problem`] to a plan, or a type that
    /// implements [`Heuristic`]. It runs in the client, when the group is launched, for at most [`MAP_TIMEOUT`]
    /// ([`Mapping::map_timeout`] sets another limit); other threads can launch groups meanwhile. It cannot launch groups of the
    /// session for which it maps. Its plan is checked: one that cannot be run is an error with `name`, and no other heuristic is
    /// tried. If a server is lost, the remaining calls are mapped by `heft`.
    ///
    /// ```
    /// use gridloom::Mapping;
    /// use gridloom::map::{Problem, Schedule};
    ///
    /// // Each task runs where it is fastest, wherever its data are.
    /// let fastest = Mapping::custom("fastest", |problem: &Problem| {
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
    pub fn custom(name: &str, heuristic: impl Heuristic + Send + Sync + 'static) -> Mapping {
        Mapping(Method::Own { name: name.to_string(), heuristic: Arc::new(heuristic), limit: Some(MAP_TIMEOUT) })
    }

    /// Sets another limit of real time for a custom heuristic, also in simulation. With `None` there is no limit,
    /// and it runs on the thread that launches the group. After the limit the group is not mapped; the heuristic
    /// continues on a thread of its own, which cannot be stopped, and its result is ignored. Other mappings are not
    /// affected.
    pub fn map_timeout(mut self, timeout: Option<Duration>) -> Mapping {
        if let Method::Own { limit, .. } = &mut self.0 {
            *limit = timeout;
        }
        self
    }

    /// True if it is a custom heuristic.
    pub fn is_own(&self) -> bool {
        matches!(self.0, Method::Own { .. })
    }

    /// Like [`Mapping::to_send`], but with a heuristic instead of a plan: for a call that a plan does not contain, and for
    /// the remaining calls of a group.
    pub(crate) fn remap_by(&self, session: &Session, group: &graph::Group) -> Result<MappingMethod, Error> {
        match &self.0 {
            Method::Named(_) => Ok(self.remap_heuristic()),
            Method::Own { .. } => self.to_send(session, group),
        }
    }

    /// True if it is a plan, which belongs to a single group.
    pub(crate) fn is_plan(&self) -> bool {
        matches!(self.0, Method::Named(MappingMethod::Imposed(_)))
    }

    /// Returns the heuristic for calls that are mapped again.
    pub(crate) fn remap_heuristic(&self) -> MappingMethod {
        match &self.0 {
            Method::Named(by) => by.spec().into(),
            Method::Own { .. } => DEFAULT_FALLBACK.into(),
        }
    }

    /// Returns the mapping to send to the agent. A custom heuristic runs here, on the agent's view of the grid.
    pub(crate) fn to_send(&self, session: &Session, group: &graph::Group) -> Result<MappingMethod, Error> {
        let (name, heuristic, limit) = match &self.0 {
            Method::Named(by) => return Ok(by.clone()),
            Method::Own { name, heuristic, limit } => (name, heuristic, *limit),
        };
        let not_mapped = |why: String| Error::from(TaskError::NotMapped { why });
        // Only the agent's view is needed; the fastest heuristic returns it.
        let seen = plan(session, group.clone(), MappingMethod::from("round-robin"))?;
        let basis = seen.basis.ok_or_else(|| not_mapped("the agent did not send its view of the grid".into()))?;
        let problem = Arc::new(basis.mapper_input.problem().map_err(|why| not_mapped(why.to_string()))?);
        let returned = |why| not_mapped(format!("heuristic '{name}' returned an invalid plan: {why}"));
        let found = run(session, heuristic, &problem, limit)?.map_err(|why| match why {
            MapError::Unfit { why, .. } => returned(why),
            why => not_mapped(format!("heuristic '{name}': {why}")),
        })?;
        found.validate(&problem).map_err(returned)?;
        let given = ImposedPlan { heuristic: name.clone(), ..ImposedPlan::of_plan(&found, &problem) };
        Ok(MappingMethod::Imposed(Box::new(given)))
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Method::Named(by) => by.fmt(f),
            Method::Own { name, .. } => f.write_str(name),
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
        Mapping(Method::Named(spec.into()))
    }
}

impl From<&String> for Mapping {
    fn from(spec: &String) -> Mapping {
        spec.as_str().into()
    }
}

impl From<String> for Mapping {
    fn from(spec: String) -> Mapping {
        Mapping(Method::Named(spec.into()))
    }
}

impl From<&PlanRecord> for Mapping {
    fn from(plan: &PlanRecord) -> Mapping {
        Mapping(Method::Named(MappingMethod::Imposed(Box::new(plan.imposed()))))
    }
}

impl From<PlanRecord> for Mapping {
    fn from(plan: PlanRecord) -> Mapping {
        Mapping::from(&plan)
    }
}

/// Sessions for which code on a thread maps groups. A heuristic that continues on another thread passes this on, so
/// that the session can refuse operations that would wait for the heuristic itself.
#[derive(Clone, Debug, Default)]
pub struct MappingScope(Vec<u64>);

thread_local! {
    static INSIDE: RefCell<MappingScope> = const { RefCell::new(MappingScope(Vec::new())) };
}

impl MappingScope {
    /// Returns the value of this thread.
    pub fn current() -> MappingScope {
        INSIDE.with_borrow(MappingScope::clone)
    }

    /// Sets the value of this thread, and returns the previous one.
    pub fn enter(self) -> MappingScope {
        INSIDE.replace(self)
    }

    pub(crate) fn has(&self, session: &Session) -> bool {
        self.0.contains(&session.number())
    }

    fn with(mut self, session: &Session) -> MappingScope {
        self.0.push(session.number());
        self
    }
}

/// Returns the error for a heuristic that exceeds its time limit.
pub fn timed_out(limit: Duration) -> MapError {
    let seconds = limit.as_secs_f64();
    MapError::Failed {
        why: format!("it returned no plan within {seconds} s; make it faster, or allow more time with map_timeout"),
    }
}

/// Runs a custom heuristic. Without a limit it runs on this thread, otherwise on a thread of its own. That thread
/// continues after the limit, since a thread cannot be stopped from outside, and its result is ignored.
fn run(
    session: &Session,
    heuristic: &Arc<dyn Heuristic + Send + Sync>,
    problem: &Arc<Problem>,
    limit: Option<Duration>,
) -> Result<Result<Plan, MapError>, Error> {
    let inside = MappingScope::current();
    if inside.has(session) {
        let why = "inside a heuristic, its own session cannot map with another custom heuristic; name a built-in one";
        return Err(Error::Usage(why.into()));
    }
    let inside = inside.with(session);
    let Some(limit) = limit else {
        let _before = ScopeGuard(inside.enter());
        return Ok(heuristic.map(problem));
    };
    let (send, receive) = channel();
    let (heuristic, problem) = (heuristic.clone(), problem.clone());
    let body = move || {
        inside.enter();
        // The receiver may be gone.
        let _ = send.send(heuristic.map(&problem));
    };
    let thread = thread::Builder::new()
        .name("gridloom-heuristic".into())
        .spawn(body)
        .map_err(|why| Error::from(TaskError::NotMapped { why: format!("no thread for the heuristic: {why}") }))?;
    match receive.recv_timeout(limit) {
        Ok(outcome) => {
            // The thread ends immediately. A panic in what it drops was reported there.
            let _ = thread.join();
            Ok(outcome)
        }
        Err(RecvTimeoutError::Timeout) => Ok(Err(timed_out(limit))),
        Err(RecvTimeoutError::Disconnected) => {
            resume_unwind(thread.join().expect_err("a heuristic that gives nothing has panicked"))
        }
    }
}

/// Restores the previous value when dropped.
struct ScopeGuard(MappingScope);

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).enter();
    }
}
