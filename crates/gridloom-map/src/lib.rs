//! Maps groups of tasks onto servers and links: heuristics, plans and bounds.
//!
//! ```text
//! Outline, GridView, client --Problem::new--> Problem --Heuristic--> Plan        (map_group does it all, by spec)
//!                                                 `--Schedule::place, finish--^
//! ```
//!
//! A heuristic decides only on which server each task runs, and in which order tasks are placed. The [`Schedule`] computes
//! times, transfers and residency of data. To add a heuristic, write a file with an `ENTRY` and add a line to [`HEURISTICS`]:
//! the contract tests, the parser of specs and the documentation then include it.
//!
//! Plans can also be imposed ([`ImposedPlan`]): saved and edited, or made by a user's heuristic. [`explain()`] shows the effect
//! of running a task on another server.
//!
//! Improvers (`local`, `anneal`) are heuristics that start from the plan of another, named in their spec.
//!
//! **Invariants:** mapping is a pure function: the same outline, grid and spec give the same plan, bit for bit, unless it is
//! stopped ([`Stop`]). Ties go to the first server by name and to the task that is first in [`order`], or is called first.

#![forbid(unsafe_code)]

mod anneal;
mod auto;
mod batch;
mod bounds;
mod branch;
pub mod contention;
mod cpop;
mod error;
mod exact;
mod explain;
mod greedy;
mod heft;
mod imposed;
mod improve;
mod local;
mod lookahead;
mod max_min;
mod mct;
mod mean;
mod min_min;
mod order;
mod outline;
pub mod pairs;
mod peft;
pub mod plan;
mod polish;
mod problem;
mod random;
mod round_robin;
mod schedule;
mod slots;
mod spec;
mod stop;
mod sufferage;
mod validate;

/// Items that only the tests of this crate use.
#[doc(hidden)]
pub mod parts {
    pub use crate::bounds::{critical_path as path_bound, work as work_bound};
    pub use crate::branch::Search;
    pub use crate::contention::concurrent_tasks::ConcurrentTasks;
    pub use crate::exact::Exact;
    pub use crate::improve::plan_of;
    pub use crate::order::{Followers, breadth_first, by_rank};
    pub use crate::slots::Slots;
}

pub use bounds::lower_bound;
pub use error::MapError;
pub use explain::{
    Alternative, CriticalPathStep, DecidingFactor, Explanation, Outcome, StepKind, critical_path, explain,
};
pub use imposed::{DEFAULT_FALLBACK, GIVEN, ImposedPlan, ImposedTask, MapperInput, MappingMethod};
pub use outline::{Outline, OutlineDatum, OutlineTask};
pub use plan::{Assignment, Plan, Transfer, UnmeasuredEstimate};
pub use problem::{Datum, Problem, Server};
pub use schedule::{Placed, Schedule};
pub use spec::{Parameter, Spec, Values};
pub use stop::Stop;

use gridloom_base::NodeId;
use gridloom_perf::GridView;

/// A mapping algorithm.
pub trait Heuristic {
    /// Maps the whole group.
    ///
    /// # Errors
    /// [`MapError::TooManyNodes`] from a search with a budget; [`MapError::Stopped`] if it is stopped before it has a plan.
    fn map(&self, problem: &Problem) -> Result<Plan, MapError>;

    /// True if its plans account for copies that share links and NICs.
    fn knows_contention(&self) -> bool {
        false
    }
}

/// A function can be a heuristic: `|problem: &Problem| { …; Ok(schedule.finish()) }`.
impl<F: Fn(&Problem) -> Result<Plan, MapError>> Heuristic for F {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        self(problem)
    }
}

/// A line in the table of heuristics.
#[derive(Debug)]
pub struct HeuristicEntry {
    /// The name used in specs.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Publication.
    pub source: &'static str,
    pub parameters: &'static [Parameter],
    /// Builds the heuristic from the values of its parameters.
    pub make: fn(&Values) -> Result<Box<dyn Heuristic>, MapError>,
}

/// All heuristics, the best first.
pub const HEURISTICS: &[HeuristicEntry] = &[
    auto::ENTRY,
    heft::ENTRY,
    cpop::ENTRY,
    peft::ENTRY,
    lookahead::ENTRY,
    min_min::ENTRY,
    max_min::ENTRY,
    sufferage::ENTRY,
    local::ENTRY,
    anneal::ENTRY,
    greedy::ENTRY,
    mct::ENTRY,
    round_robin::ENTRY,
    random::ENTRY,
    branch::ENTRY,
    branch::EXHAUSTIVE,
];

/// Aliases that specs may use: the alias, and the name in the table.
pub const ALIASES: &[(&str, &str)] = &[("greedy_map", "greedy")];

/// Maps a group by the heuristic that `spec` names, on the grid as `client` sees it.
///
/// # Errors
/// [`MapError`] if the spec is invalid, or the group cannot be mapped on the grid.
///
/// # Examples
/// ```
/// use gridloom_base::NodeId;
/// use gridloom_map::{MapError, Outline, map_group};
/// use gridloom_perf::GridView;
///
/// let nothing = map_group("heft", &Outline::default(), &GridView::default(), NodeId(1));
/// assert_eq!(nothing, Err(MapError::EmptyGrid));
/// let unknown = map_group("best", &Outline::default(), &GridView::default(), NodeId(1)).unwrap_err();
/// assert!(unknown.to_string().starts_with("unknown heuristic 'best'; known: auto, heft, cpop"));
/// ```
pub fn map_group(spec: &str, outline: &Outline, grid: &GridView, client: NodeId) -> Result<Plan, MapError> {
    // A wrong name is an error on any grid.
    let spec = Spec::parse(spec)?;
    spec.heuristic()?;
    map_problem(&spec, &Problem::new(outline, grid, client)?)
}

/// Maps by the heuristic that `spec` names.
fn map_problem(spec: &Spec, problem: &Problem) -> Result<Plan, MapError> {
    let plan = spec.heuristic()?.map(problem)?;
    Ok(Plan { heuristic: spec.to_string(), ..plan })
}
