//! Grids, functions and calls under way.
//!
//! **Invariant.** What Python holds of a session lies in slots that [`RawGrid::close`] empties, so that the session
//! ends then, whatever functions and handles are still around.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use gridloom::{Arg, Error, Follow, Function, Grid, LocalConfig, Pending, Regroup, SimulateConfig, Value, Watch};
use gridloom_core::base::Meta;
use gridloom_core::base::Order;
use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calibrate::{RawCalibration, calibrate};
use crate::convert::{Target, empty, to_python};
use crate::errors::{OrRaise, error, exception};
use crate::graph::RawGraph;
use crate::group::{RawGroup, RawHandle, RawLoop};
use crate::memory::element_of;
use crate::plan::{RawMapping, RawPlan, with_cause};
use crate::wait::{detached, forget_helpers, interruptible};

/// For so long a caller looks for its result without sleeping: about the length of a quick call.
const SPIN: Duration = Duration::from_micros(100);
/// After that it sleeps a fraction of what it waited already, up to this.
const NAP_MAX: Duration = Duration::from_millis(1);
/// How long Ctrl-C may take to be noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Something of a session that [`RawGrid::close`] takes away.
///
/// It works only in the process that made it: a forked child is told so before it takes a lock that nobody may be there
/// to open.
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>, u32);

/// Counts the forks that led to this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in a child after a fork.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    forget_helpers();
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Slot<T> {
        Slot(self.0.clone(), self.1)
    }
}

trait Clear: Send + Sync {
    fn clear(&self);
}

impl<T: Send> Clear for Mutex<Option<T>> {
    fn clear(&self) {
        let held = lock(self).take();
        drop(held);
    }
}

impl<T: Send + 'static> Slot<T> {
    pub(crate) fn with<R>(&self, py: Python<'_>, use_it: impl FnOnce(&T) -> R) -> PyResult<R> {
        if self.1 != FORKS.load(Ordering::Relaxed) {
            return Err(error(
                py,
                "UsageError",
                "the grid belongs to the process that forked this one; open another here",
            ));
        }
        lock(&self.0).as_ref().map(use_it).ok_or_else(|| closed(py))
    }
}

impl<T: Clone + Send + 'static> Slot<T> {
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<T> {
        self.with(py, T::clone)
    }
}

fn closed(py: Python<'_>) -> PyErr {
    error(py, "UsageError", "the grid is closed; open another with gridloom.local, connect or simulate")
}

/// A session and what Python holds of it.
pub(crate) struct Session {
    slots: Mutex<Slots>,
    /// Bytes of arguments do not matter.
    pub(crate) describes_only: bool,
    pub(crate) is_simulated: bool,
}

#[derive(Default)]
struct Slots {
    all: Vec<Weak<dyn Clear>>,
    /// Dead ones are swept out at this length.
    sweep_at: usize,
}

impl Session {
    pub(crate) fn slot<T: Send + 'static>(&self, held: T) -> Slot<T> {
        let slot = Arc::new(Mutex::new(Some(held)));
        let weak: Weak<dyn Clear> = Arc::<Mutex<Option<T>>>::downgrade(&slot);
        let mut slots = lock(&self.slots);
        if slots.all.len() >= slots.sweep_at {
            slots.all.retain(|slot| slot.strong_count() > 0);
            slots.sweep_at = 2 * slots.all.len() + 64;
        }
        slots.all.push(weak);
        Slot(slot, FORKS.load(Ordering::Relaxed))
    }
}

/// A client's session with a grid.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawGrid {
    session: Arc<Session>,
    grid: Slot<Grid>,
}

impl RawGrid {
    fn new(grid: Grid, executes: bool) -> RawGrid {
        let is_simulated = grid.is_simulated();
        let describes_only = is_simulated && !executes;
        let session = Arc::new(Session { slots: Mutex::default(), describes_only, is_simulated });
        let grid = session.slot(grid);
        RawGrid { session, grid }
    }
}

#[pyfunction]
#[pyo3(signature = (address, executes))]
pub(crate) fn connect(py: Python<'_>, address: String, executes: bool) -> PyResult<RawGrid> {
    let grid = interruptible(py, move || Grid::connect(&address))?.or_raise(py)?;
    Ok(RawGrid::new(grid, executes))
}

#[pyfunction]
#[pyo3(signature = (servers, executes))]
pub(crate) fn connect_servers(py: Python<'_>, servers: Vec<String>, executes: bool) -> PyResult<RawGrid> {
    let grid = interruptible(py, move || Grid::connect_servers(&servers))?.or_raise(py)?;
    Ok(RawGrid::new(grid, executes))
}

#[pyfunction]
#[pyo3(signature = (*, servers, slots, plain, functions, libraries, memory_bytes, shared_memory, blas, python, program,
                    environment, executes))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
pub(crate) fn local(
    py: Python<'_>,
    servers: usize,
    slots: u32,
    plain: usize,
    functions: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    memory_bytes: Option<u64>,
    shared_memory: bool,
    blas: Option<PathBuf>,
    python: Option<PathBuf>,
    program: Option<PathBuf>,
    environment: Vec<(String, String)>,
    executes: bool,
) -> PyResult<RawGrid> {
    let config = LocalConfig {
        servers,
        slots,
        plain,
        functions,
        libraries,
        memory_bytes,
        shared_memory,
        blas,
        python,
        program,
        environment,
    };
    let grid = interruptible(py, move || Grid::local(config))?.or_raise(py)?;
    Ok(RawGrid::new(grid, executes))
}

#[pyfunction]
#[pyo3(signature = (*, platform, deployment, functions, libraries, execute, seed, network, blas, python, program))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
pub(crate) fn simulate(
    py: Python<'_>,
    platform: PathBuf,
    deployment: Option<PathBuf>,
    functions: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    execute: bool,
    seed: u64,
    network: Option<String>,
    blas: Option<PathBuf>,
    python: Option<PathBuf>,
    program: Option<PathBuf>,
) -> PyResult<RawGrid> {
    let config = SimulateConfig {
        platform,
        deployment,
        faults: None,
        functions,
        libraries,
        execute,
        seed,
        network,
        blas,
        python,
        program,
        ..SimulateConfig::default()
    };
    let grid = interruptible(py, move || Grid::simulate(config))?.or_raise(py)?;
    Ok(RawGrid::new(grid, execute))
}

#[pymethods]
impl RawGrid {
    fn function(&self, py: Python<'_>, name: &str) -> PyResult<RawFunction> {
        let grid = self.grid.live(py)?;
        let (found_in, name) = (grid.clone(), name.to_string());
        let function = detached(py, move || found_in.function(&name)).or_raise(py)?;
        Ok(RawFunction { session: self.session.clone(), function: self.session.slot((grid, function)) })
    }

    /// Names with signatures, in order of name.
    fn functions(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let grid = self.grid.live(py)?;
        let signatures = detached(py, move || grid.functions());
        Ok(signatures.iter().map(|signature| (signature.name.clone(), signature.to_string())).collect())
    }

    fn servers(&self, py: Python<'_>) -> PyResult<String> {
        let grid = self.grid.live(py)?;
        let view = detached(py, move || grid.servers());
        Ok(serde_json::to_string(&view.servers).expect("names and numbers"))
    }

    fn group(&self, py: Python<'_>, heuristic: RawMapping<'_>) -> PyResult<RawGroup> {
        let mapping = heuristic.mapping(py)?;
        Ok(RawGroup::new(self.session.clone(), self.grid.live(py)?, mapping))
    }

    fn follow(
        &self,
        py: Python<'_>,
        heuristic: RawMapping<'_>,
        graph: &Bound<'_, RawGraph>,
        strict: bool,
        inputs: Vec<(String, Bound<'_, RawHandle>)>,
    ) -> PyResult<RawGroup> {
        let (mapping, raised) = heuristic.mapping(py)?;
        let grid = self.grid.live(py)?;
        let inputs = inputs.into_iter().map(|(name, handle)| Ok((name, handle.get().live(py)?)));
        let is_own = mapping.is_own();
        let follow = Follow { is_strict: strict, inputs: inputs.collect::<PyResult<_>>()?, ..Follow::default() };
        let (on, graph) = (grid.clone(), graph.get().graph());
        let group = interruptible(py, move || on.follow(&graph, mapping, follow))?;
        let group = with_cause(py, group.or_raise(py), &raised)?;
        Ok(RawGroup::followed(self.session.clone(), grid, group, raised, is_own))
    }

    /// So many bodies together, or as many as turn out well.
    fn regrouped(&self, py: Python<'_>, heuristic: RawMapping<'_>, bodies: Option<usize>) -> PyResult<RawLoop> {
        let (mapping, raised) = heuristic.mapping(py)?;
        let (grid, is_own) = (self.grid.live(py)?, mapping.is_own());
        let rounds = grid.regrouped(mapping, bodies.map_or(Regroup::Auto, Regroup::Fixed)).or_raise(py)?;
        Ok(RawLoop::new(self.session.clone(), grid, rounds, raised, is_own))
    }

    fn plan_of(&self, py: Python<'_>, graph: &Bound<'_, RawGraph>, heuristic: RawMapping<'_>) -> PyResult<RawPlan> {
        let (mapping, raised) = heuristic.mapping(py)?;
        let (grid, graph) = (self.grid.live(py)?, graph.get().graph());
        let plan = interruptible(py, move || grid.plan_of(&graph, mapping))?;
        with_cause(py, plan.or_raise(py), &raised).map(RawPlan)
    }

    /// What was measured, as JSON.
    fn calibrate(&self, py: Python<'_>, function: &str, asked: RawCalibration<'_>) -> PyResult<String> {
        calibrate(py, self.grid.live(py)?, function, asked, self.session.describes_only)
    }

    fn traffic(&self, py: Python<'_>) -> PyResult<String> {
        let grid = self.grid.live(py)?;
        Ok(serde_json::to_string(&detached(py, move || grid.traffic())).expect("names and numbers"))
    }

    fn now(&self, py: Python<'_>) -> PyResult<f64> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.now()))
    }

    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let grid = self.grid.live(py)?;
        interruptible(py, move || grid.advance(seconds))
    }

    #[getter]
    fn simulated(&self) -> bool {
        self.session.is_simulated
    }

    fn simulation(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let grid = self.grid.live(py)?;
        let report = detached(py, move || grid.simulation());
        Ok(report.map(|report| serde_json::to_string(&report).expect("names and numbers")))
    }

    fn server_processes(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.server_processes()))
    }

    /// Errors in groups that nobody read, as text.
    fn take_unread(&self, py: Python<'_>, all: bool) -> PyResult<Option<String>> {
        let grid = self.grid.live(py)?;
        let unread = detached(py, move || grid.take_unread(all));
        Ok((unread.count > 0).then(|| unread.to_string()))
    }

    /// Of a session without an agent: given servers that cannot be used, and why.
    fn unreachable(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.unreachable()))
    }

    fn take_log(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.take_log()))
    }

    fn empty<'py>(
        &self,
        py: Python<'py>,
        shape: Vec<u64>,
        dtype: &Bound<'py, PyArrayDescr>,
        order: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let grid = self.grid.live(py)?;
        let Some((dtype, byte_order)) = element_of(dtype) else {
            return Err(error(py, "ArgumentError", &format!("empty: arrays hold numbers, got dtype {dtype}")));
        };
        let order = if order == "F" { Order::F } else { Order::C };
        let meta = Meta::Array { dtype, byte_order, order, shape };
        let Some(size_bytes) = meta.checked_size_bytes() else {
            return Err(error(py, "ArgumentError", &format!("empty: {meta} is past 2^64 bytes")));
        };
        let segment = detached(py, move || grid.allocate(size_bytes)).or_raise(py)?;
        empty(py, segment.freeze(), meta)
    }

    /// Ends the session. What is held of it no longer works.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let slots = std::mem::take(&mut lock(&self.session.slots).all);
            // The grid itself is the first slot, and the last one to go.
            slots.iter().rev().filter_map(Weak::upgrade).for_each(|slot| slot.clear());
        });
    }
}

/// A function of the grid.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawFunction {
    pub(crate) session: Arc<Session>,
    pub(crate) function: Slot<(Grid, Function)>,
}

#[pymethods]
impl RawFunction {
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        self.function.with(py, |(_, function)| function.name().to_string())
    }

    #[getter]
    fn signature(&self, py: Python<'_>) -> PyResult<String> {
        self.function.with(py, |(_, function)| function.signature().to_string())
    }

    #[getter]
    fn about(&self, py: Python<'_>) -> PyResult<String> {
        self.function.with(py, |(_, function)| function.signature().about.clone())
    }

    /// The same on that server and no other.
    fn on(&self, py: Python<'_>, server: &str) -> PyResult<RawFunction> {
        let (grid, function) = self.function.live(py)?;
        let server = server.to_string();
        let function = detached(py, move || function.on(&server)).or_raise(py)?;
        Ok(RawFunction { session: self.session.clone(), function: self.session.slot((grid, function)) })
    }

    /// Names of the parameters that it gives.
    fn results(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.function.with(py, |(_, function)| {
            let results = function.signature().params.iter().filter(|param| param.is_output());
            results.map(|param| param.name.clone()).collect()
        })
    }

    /// Whether it has an input of that name.
    fn takes(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.function.with(py, |(_, function)| {
            function.signature().params.iter().any(|param| param.name == name && param.is_input() && !param.hidden)
        })
    }

    fn submit(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        timeout_seconds: Option<f64>,
    ) -> PyResult<RawPending> {
        let limit = limit_of(py, timeout_seconds)?;
        let (grid, function) = self.function.live(py)?;
        let describes_only = self.session.describes_only;
        let target = Target { grid: &grid, signature: function.signature(), describes_only, snapshots: None };
        let (args, named) = target.arguments(args, Some(kwargs))?;
        let has_handle = args.iter().chain(named.iter().map(|(_, arg)| arg)).any(|arg| matches!(arg, Arg::Handle(_)));
        // A handle is fetched first, which may take its time.
        let pending = match has_handle {
            true => interruptible(py, move || function.submit(&args, &named, limit))?,
            false => detached(py, move || function.submit(&args, &named, limit)),
        };
        let pending = pending.or_raise(py)?;
        let slot = self.session.slot(pending).0;
        let (looked, watched, cancelled, taken) = (slot.clone(), slot.clone(), slot.clone(), slot);
        Ok(RawPending {
            is_simulated: self.session.is_simulated,
            is_done: Box::new(move || lock(&looked).as_ref().map(|pending| pending.is_done())),
            cancel: Box::new(move || lock(&cancelled).as_ref().map(|pending| pending.cancel())),
            watch: Box::new(move || lock(&watched).as_ref().map(Pending::watch)),
            take: Box::new(move || lock(&taken).take()),
        })
    }
}

type Ask<T> = Box<dyn Fn() -> Option<T> + Send + Sync>;

/// A call under way: what can be asked of it, `None` once it was waited for or the session is closed.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawPending {
    is_simulated: bool,
    is_done: Ask<bool>,
    cancel: Ask<()>,
    watch: Ask<Watch>,
    take: Ask<Pending>,
}

#[pymethods]
impl RawPending {
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| (self.is_done)()).ok_or_else(|| closed(py))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| (self.cancel)()).ok_or_else(|| closed(py))
    }

    /// Waits for the results; gives them once.
    fn result<'py>(&self, py: Python<'py>, timeout_seconds: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let begin = Instant::now();
        let limit = limit_of(py, timeout_seconds)?;
        if self.is_simulated {
            // Virtual time stands still while nobody waits. The call is left where it is until it has ended, so that
            // after an interrupt it can be waited for again.
            let watch = (self.watch)().ok_or_else(|| closed(py))?;
            let wait = move || limit.map_or_else(|| watch.wait(), |limit| watch.wait_within(limit));
            interruptible(py, wait)?.or_raise(py)?;
        } else {
            let deadline = limit.and_then(|limit| begin.checked_add(limit));
            let next = || deadline.map_or(Instant::now() + PATIENCE, |at| at.min(Instant::now() + PATIENCE));
            while !py.detach(|| self.look(begin, next())).ok_or_else(|| closed(py))? {
                py.check_signals()?;
                if let (Some(deadline), Some(limit)) = (deadline, limit)
                    && Instant::now() >= deadline
                {
                    return Err(exception(py, &Error::TimedOut { limit_seconds: limit.as_secs_f64() }));
                }
            }
        }
        let pending = (self.take)().ok_or_else(|| closed(py))?;
        let outcome = detached(py, move || pending.wait());
        results(py, outcome)
    }
}

impl RawPending {
    /// Looks until `deadline` whether the call has ended; `None` if the session has.
    fn look(&self, begin: Instant, deadline: Instant) -> Option<bool> {
        loop {
            if (self.is_done)()? {
                return Some(true);
            }
            let now = Instant::now();
            if now > deadline {
                return Some(false);
            }
            match now - begin {
                waited if waited < SPIN => thread::yield_now(),
                waited => thread::sleep((waited / 16).min(NAP_MAX)),
            }
        }
    }
}

/// A time limit in seconds, if there is one: none at all, or infinity, is no limit.
pub(crate) fn limit_of(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(error(py, "UsageError", &format!("a timeout of {seconds} s is none; give seconds from 0 up")));
    }
    // What no clock can tell apart from for ever is that.
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

fn results<'py>(py: Python<'py>, outcome: Result<Vec<Value>, Error>) -> PyResult<Bound<'py, PyAny>> {
    let mut values = Vec::new();
    for value in outcome.or_raise(py)? {
        values.push(to_python(py, &value, false)?);
    }
    match values.len() {
        0 => Ok(py.None().into_bound(py)),
        1 => Ok(values.remove(0)),
        _ => Ok(PyTuple::new(py, values)?.into_any()),
    }
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
