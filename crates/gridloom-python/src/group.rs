//! Groups and reports.

use std::sync::{Arc, OnceLock};

use gridloom::{Arg, Grid, Group, GroupProgress, Handle, Loop, Report, timeline_html};
use gridloom_base::{Meta, Priority};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::Target;
use crate::errors::OrRaise;
use crate::function::RawFunction;
use crate::handle::RawHandle;
use crate::plain::to_plain;
use crate::plan::{Raised, RawMapping, RawPlan, with_cause};
use crate::session::{Session, Slot};
use crate::snapshots::Snapshots;
use crate::wait::{detached, interruptible};

/// Calls that are mapped together.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawGroup {
    session: Arc<Session>,
    group: Slot<Group>,
    grid: Slot<Grid>,
    snapshots: Arc<Snapshots>,
    raised: Raised,
    is_described: bool,
    /// True if recording a call may run a custom heuristic.
    may_map: bool,
    /// The loop whose body it is.
    rounds: Option<Slot<Rounds>>,
    /// The priority of its calls, except those of functions that have one.
    priority: OnceLock<Priority>,
}

impl RawGroup {
    pub(crate) fn new(
        session: &Arc<Session>,
        grid: Grid,
        group: Group,
        raised: Raised,
        is_described: bool,
        may_map: bool,
    ) -> RawGroup {
        let (group, grid, snapshots) = (session.slot(group), session.slot(grid), Arc::default());
        let (session, rounds, priority) = (session.clone(), None, OnceLock::new());
        RawGroup { session, group, grid, snapshots, raised, is_described, may_map, rounds, priority }
    }

    /// Forgets copies made for the part recorded so far: the program may change its arrays now. A declared group is a
    /// single part: its arrays are distinguished by their copies.
    fn forget_snapshots(&self) {
        if self.is_described {
            return;
        }
        self.snapshots.forget();
    }
}

#[pymethods]
impl RawGroup {
    fn record(
        &self,
        py: Python<'_>,
        function: &Bound<'_, RawFunction>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<RawHandle>> {
        let (group, grid) = (self.group.live(py)?, self.grid.live(py)?);
        let (_, function) = function.get().function.live(py)?;
        let function = match self.priority.get() {
            Some(priority) if function.priority().is_none() => function.with_priority(*priority),
            _ => function,
        };
        let target = Target {
            grid: &grid,
            signature: function.signature(),
            describes_only: self.session.describes_only,
            snapshots: Some(&self.snapshots),
        };
        let (args, named) = target.arguments(args, Some(kwargs))?;
        // A remote number that determines an extent has to be fetched first.
        let is_number = |arg: &Arg| matches!(arg, Arg::Handle(handle) if matches!(handle.meta(), Meta::Scalar { .. }));
        let may_wait = self.may_map || args.iter().chain(named.iter().map(|(_, arg)| arg)).any(is_number);
        let handles = match may_wait {
            true => interruptible(py, move || group.call_named(&function, args, &named))?,
            false => detached(py, move || group.call_named(&function, args, &named)),
        };
        let raw = |handle: Handle| {
            let snapshots = if self.is_described { Arc::default() } else { self.snapshots.clone() };
            RawHandle::new(&self.session, handle, self.raised.clone(), snapshots)
        };
        let handles = with_cause(py, handles.or_raise(py), &self.raised)?;
        Ok(handles.into_iter().map(raw).collect())
    }

    /// Sets the priority of its calls, once.
    fn set_priority(&self, priority: i32) {
        let _ = self.priority.set(Priority(priority));
    }

    fn recorded(&self, py: Python<'_>) -> PyResult<usize> {
        self.group.with(py, Group::recorded)
    }

    fn launch(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.group.live(py)?;
        let launched = interruptible(py, move || group.launch());
        self.forget_snapshots();
        let launched = launched?;
        with_cause(py, launched.or_raise(py), &self.raised)
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.group.live(py)?;
        let finished = interruptible(py, move || group.finish());
        // Bodies of a loop share their snapshots until they are launched.
        let held = self.rounds.as_ref().map_or(Ok(0), |rounds| rounds.with(py, |rounds| rounds.rounds().held()))?;
        if held == 0 {
            self.snapshots.forget();
        }
        with_cause(py, finished?.or_raise(py), &self.raised)
    }

    fn described_plan(&self, py: Python<'_>) -> PyResult<Option<RawPlan>> {
        let group = self.group.live(py)?;
        Ok(detached(py, move || group.declared_plan()).map(RawPlan))
    }

    /// Differences from the declared graph: as records, and as text.
    fn differences<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
        let group = self.group.live(py)?;
        let differences = detached(py, move || group.differences());
        Ok((to_plain(py, &differences)?, differences.iter().map(ToString::to_string).collect()))
    }

    fn discard(&self, py: Python<'_>, why: Option<String>) -> PyResult<()> {
        let group = self.group.live(py)?;
        detached(py, move || why.map_or_else(|| group.discard(), |why| group.discard_because(&why)));
        self.forget_snapshots();
        Ok(())
    }

    /// Numbers of calls that were launched, have ended, and have failed; and whether all are over.
    fn progress(&self, py: Python<'_>) -> PyResult<(usize, usize, usize, bool)> {
        let group = self.group.live(py)?;
        let GroupProgress { calls, ended, failed, is_over } = detached(py, move || group.progress());
        Ok((calls, ended, failed, is_over))
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.launch(py)?;
        let group = self.group.live(py)?;
        interruptible(py, move || group.wait())?.or_raise(py)
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.group.live(py)?;
        detached(py, move || group.cancel());
        Ok(())
    }

    fn report(&self, py: Python<'_>) -> PyResult<RawReport> {
        self.launch(py)?;
        let group = self.group.live(py)?;
        let report = interruptible(py, move || group.report())?.or_raise(py)?;
        Ok(RawReport { report })
    }

    fn plan(&self, py: Python<'_>, heuristic: RawMapping<'_>) -> PyResult<RawPlan> {
        let group = self.group.live(py)?;
        let (mapping, raised) = heuristic.mapping(py)?;
        let plan = interruptible(py, move || group.plan(mapping))?;
        with_cause(py, plan.or_raise(py), &raised).map(RawPlan)
    }
}

/// A loop with groups as its bodies, which are delayed and mapped together.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawLoop {
    session: Arc<Session>,
    rounds: Slot<Rounds>,
    grid: Slot<Grid>,
    snapshots: Arc<Snapshots>,
    raised: Raised,
    is_own: bool,
}

/// Dropping it launches the delayed bodies, which may run Python code in another thread.
pub(crate) struct Rounds(Option<Loop>);

impl Rounds {
    fn rounds(&self) -> &Loop {
        self.0.as_ref().expect("taken when it is dropped")
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        let rounds = self.0.take();
        Python::try_attach(|py| py.detach(move || drop(rounds)));
    }
}

impl RawLoop {
    pub(crate) fn new(session: Arc<Session>, grid: Grid, rounds: Loop, raised: Raised, is_own: bool) -> RawLoop {
        let (rounds, grid) = (session.slot(Rounds(Some(rounds))), session.slot(grid));
        RawLoop { session, rounds, grid, snapshots: Arc::default(), raised, is_own }
    }
}

#[pymethods]
impl RawLoop {
    fn group(&self, py: Python<'_>) -> PyResult<RawGroup> {
        let group = self.rounds.with(py, |rounds| rounds.rounds().group())?;
        Ok(RawGroup {
            group: self.session.slot(group),
            grid: self.session.slot(self.grid.live(py)?),
            session: self.session.clone(),
            snapshots: self.snapshots.clone(),
            raised: self.raised.clone(),
            is_described: false,
            may_map: self.is_own,
            rounds: Some(self.rounds.clone()),
            priority: OnceLock::new(),
        })
    }
}

/// The report on a group's execution.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawReport {
    report: Report,
}

#[pymethods]
impl RawReport {
    fn __str__(&self) -> String {
        self.report.to_string()
    }

    fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_plain(py, &self.report)
    }

    fn plans(&self) -> Vec<RawPlan> {
        self.report.plans.iter().cloned().map(RawPlan).collect()
    }

    fn timeline(&self, title: &str) -> String {
        timeline_html(title, &self.report)
    }
}
