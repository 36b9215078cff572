//! Grids: sessions, as Python objects.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridloom::core::call::OutputItem;
use gridloom::core::node::message::{DayUsage, OTHER_USERS, ServerStatus, Stage, Usage};
use gridloom::{CallOutput, Error, GraphOptions, Grid, LocalConfig, Regroup, SimulateConfig};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{Meta, Order, Priority, TaskId};
use gridloom_idl::method::is_listed;
use numpy::PyArrayDescr;
use pyo3::prelude::*;

use crate::calibrate::{RawCalibration, calibrate};
use crate::errors::{OrRaise, error};
use crate::function::{RawFunction, RawObject};
use crate::graph::RawGraph;
use crate::group::{RawGroup, RawLoop};
use crate::handle::RawHandle;
use crate::memory::element_of;
use crate::plain::to_plain;
use crate::plan::{RawMapping, RawPlan, with_cause};
use crate::results::empty;
use crate::session::{Session, Slot, limit_of};
use crate::wait::{detached, interruptible};

/// Calls of a server that run, that wait for others or their program, that wait for a slot, and that wait for data;
/// and bytes in its store.
type Load = (u64, u64, u64, u64, u64);

/// A day, a user, calls with results, failed and cancelled ones, slot time in seconds, and bytes sent and received by servers.
type DayOfUser = (u32, String, u64, u64, u64, f64, u64, u64);
/// A user, a link, and bytes.
type OverLink = (String, String, u64);
/// Bytes by user.
type Bytes = BTreeMap<String, u64>;

/// A client's session with a grid.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawGrid {
    session: Arc<Session>,
    grid: Slot<Grid>,
    /// Summary of the servers that the session has started, and of the resources that they may use.
    started: Option<String>,
}

impl RawGrid {
    fn new(grid: Grid) -> RawGrid {
        let session = Arc::new(Session::new(!grid.has_content(), grid.is_simulated()));
        let grid = session.slot(grid);
        RawGrid { session, grid, started: None }
    }

    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<(Arc<Session>, Grid)> {
        Ok((self.session.clone(), self.grid.live(py)?))
    }
}

#[pyfunction]
#[pyo3(signature = (address, limit_seconds))]
pub(crate) fn connect(py: Python<'_>, address: String, limit_seconds: f64) -> PyResult<RawGrid> {
    let limit = limit_of(Some(limit_seconds)).unwrap_or(Duration::MAX);
    let grid = interruptible(py, move || Grid::connect_within(&address, limit))?.or_raise(py)?;
    Ok(RawGrid::new(grid))
}

#[pyfunction]
#[pyo3(signature = (servers, limit_seconds))]
pub(crate) fn connect_servers(py: Python<'_>, servers: Vec<String>, limit_seconds: f64) -> PyResult<RawGrid> {
    let limit = limit_of(Some(limit_seconds)).unwrap_or(Duration::MAX);
    let grid = interruptible(py, move || Grid::connect_servers_within(&servers, limit))?.or_raise(py)?;
    Ok(RawGrid::new(grid))
}

#[pyfunction]
#[pyo3(signature = (*, servers, sites, filters, slots, plain, functions, run_code, libraries, memory_bytes, worker_memory_bytes, shared_memory, blas,
                    python, python_options, program, environment, silent))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
pub(crate) fn local(
    py: Python<'_>,
    servers: usize,
    sites: usize,
    filters: Vec<String>,
    slots: u32,
    plain: usize,
    functions: Vec<PathBuf>,
    run_code: bool,
    libraries: Vec<PathBuf>,
    memory_bytes: Option<u64>,
    worker_memory_bytes: Option<u64>,
    shared_memory: bool,
    blas: Option<PathBuf>,
    python: Option<PathBuf>,
    python_options: Vec<String>,
    program: Option<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    silent: bool,
) -> PyResult<RawGrid> {
    let filters: Result<_, String> = filters.iter().map(|text| text.parse()).collect();
    let config = LocalConfig {
        servers,
        sites,
        filters: filters.map_err(Error::Usage).or_raise(py)?,
        slots,
        plain,
        functions,
        run_code,
        libraries,
        memory_bytes,
        worker_memory_bytes,
        shared_memory,
        blas,
        python,
        python_options,
        program,
        environment,
        silent,
    };
    let summary = config.summary();
    let grid = RawGrid::new(interruptible(py, move || Grid::local(config))?.or_raise(py)?);
    let started = (!grid.session.is_simulated).then_some(summary);
    Ok(RawGrid { started, ..grid })
}

#[pyfunction]
#[pyo3(signature = (*, platform, deployment, functions, libraries, execute, seed, network, blas, python, python_options,
                    program))]
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
    python_options: Vec<String>,
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
        python_options,
        program,
        ..SimulateConfig::default()
    };
    let grid = interruptible(py, move || Grid::simulate(config))?.or_raise(py)?;
    Ok(RawGrid::new(grid))
}

#[pymethods]
impl RawGrid {
    fn function(&self, py: Python<'_>, name: &str) -> PyResult<RawFunction> {
        let grid = self.grid.live(py)?;
        let (found_in, name) = (grid.clone(), name.to_string());
        let function = detached(py, move || found_in.function(&name)).or_raise(py)?;
        Ok(RawFunction::new(&self.session, grid, function))
    }

    /// Creates an object of the class, and waits until it exists.
    fn object(&self, py: Python<'_>, class: &str) -> PyResult<RawObject> {
        let grid = self.grid.live(py)?;
        let (made_in, class) = (grid.clone(), class.to_string());
        let object = interruptible(py, move || made_in.object(&class, None, None))?.or_raise(py)?;
        Ok(RawObject::new(&self.session, grid, object))
    }

    /// Names with signatures, ordered by name.
    fn functions(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let grid = self.grid.live(py)?;
        let signatures = detached(py, move || grid.functions());
        let listed = signatures.iter().filter(|signature| is_listed(&signature.name));
        Ok(listed.map(|signature| (signature.name.clone(), signature.to_string())).collect())
    }

    fn servers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let grid = self.grid.live(py)?;
        to_plain(py, &detached(py, move || grid.servers()).servers)
    }

    /// Waits until the servers' models are known here, but no longer than `timeout_seconds`.
    fn learn_models(&self, py: Python<'_>, timeout_seconds: f64) -> PyResult<()> {
        let limit = Duration::from_secs_f64(timeout_seconds);
        let grid = self.grid.live(py)?;
        interruptible(py, move || grid.wait_for_models(limit))?.or_raise(py)
    }

    /// The priority of its calls, if it is set.
    fn priority(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        Ok(self.grid.live(py)?.priority().map(|Priority(number)| number))
    }

    fn set_priority(&self, py: Python<'_>, priority: Option<i32>) -> PyResult<()> {
        self.grid.live(py)?.set_priority(priority.map(Priority));
        Ok(())
    }

    fn group(&self, py: Python<'_>, heuristic: RawMapping<'_>) -> PyResult<RawGroup> {
        let (mapping, raised) = heuristic.mapping(py)?;
        let grid = self.grid.live(py)?;
        let group = grid.group(mapping);
        Ok(RawGroup::new(&self.session, grid, group, raised, false, false))
    }

    fn group_of(
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
        let options =
            GraphOptions { is_strict: strict, inputs: inputs.collect::<PyResult<_>>()?, ..GraphOptions::default() };
        let (on, graph) = (grid.clone(), graph.get().graph());
        let group = interruptible(py, move || on.group_of(&graph, mapping, options))?;
        let group = with_cause(py, group.or_raise(py), &raised)?;
        Ok(RawGroup::new(&self.session, grid, group, raised, true, is_own))
    }

    /// Maps `bodies` bodies together, or a number that adapts itself if `None`.
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

    /// Returns the measurements.
    fn calibrate<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        asked: RawCalibration<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        calibrate(py, self.grid.live(py)?, function, asked, self.session.describes_only)
    }

    fn traffic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let grid = self.grid.live(py)?;
        to_plain(py, &detached(py, move || grid.traffic()))
    }

    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let grid = self.grid.live(py)?;
        to_plain(py, &interruptible(py, move || grid.links())?.or_raise(py)?)
    }

    /// The usage of users on these days since 1970-01-01, the bytes of shared data that each stores now, those that each has on disks, and
    /// those that each has received over links today.
    fn usage(
        &self,
        py: Python<'_>,
        first_day: u32,
        last_day: u32,
        user: Option<String>,
        timeout_seconds: f64,
    ) -> PyResult<(Vec<DayOfUser>, Bytes, Bytes, Vec<OverLink>)> {
        let grid = self.grid.live(py)?;
        let limit = Duration::from_secs_f64(timeout_seconds);
        let report = interruptible(py, move || grid.usage((first_day, last_day), user, limit))?.or_raise(py)?;
        let shown = |user: String| if user == OTHER_USERS { "(other users)".to_string() } else { user };
        let of_day = |DayUsage { day, user, usage }: DayUsage| {
            let Usage { succeeded, failed, cancelled, slot_ns, received_bytes, sent_bytes } = usage;
            (day, shown(user), succeeded, failed, cancelled, ns_to_seconds(slot_ns), sent_bytes, received_bytes)
        };
        let days = report.days.into_iter().map(of_day).collect();
        let by_name = |bytes: Vec<(String, u64)>| bytes.into_iter().map(|(user, bytes)| (shown(user), bytes)).collect();
        let links = report.links.into_iter().map(|one| (shown(one.user), one.link, one.bytes)).collect();
        Ok((days, by_name(report.stored_bytes), by_name(report.disk_bytes), links))
    }

    /// Large values in transfer: for each a number, whether it is sent, the bytes transferred so far, and its total size.
    fn moving(&self, py: Python<'_>) -> PyResult<Vec<(u64, bool, u64, u64)>> {
        let grid = self.grid.live(py)?;
        let moving = detached(py, move || grid.moving());
        Ok(moving.into_iter().map(|one| (one.number, one.is_sent, one.done_bytes, one.size_bytes)).collect())
    }

    /// Number of calls that have not ended.
    fn under_way(&self, py: Python<'_>) -> PyResult<usize> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.under_way()))
    }

    /// Load by server. Servers that do not answer in time are left out.
    fn loads(&self, py: Python<'_>, timeout_seconds: f64) -> PyResult<BTreeMap<String, Load>> {
        let limit = Duration::from_secs_f64(timeout_seconds);
        let grid = self.grid.live(py)?;
        let statuses = detached(py, move || grid.statuses(limit)).or_raise(py)?;
        let load = |status: ServerStatus| {
            let at = |stage| status.at(stage);
            (at(Stage::Running), at(Stage::Paused), at(Stage::Queued), at(Stage::Waiting), status.store_bytes)
        };
        Ok(statuses.into_iter().filter_map(|(server, status)| Some((server.name, load(status?)))).collect())
    }

    fn now(&self, py: Python<'_>) -> PyResult<f64> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.now()))
    }

    fn advance(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let grid = self.grid.live(py)?;
        interruptible(py, move || grid.advance(seconds))
    }

    fn compute(&self, py: Python<'_>, work_flops: f64, accessed_bytes: u64) -> PyResult<()> {
        let grid = self.grid.live(py)?;
        interruptible(py, move || grid.compute_on(work_flops, accessed_bytes))
    }

    fn hold_memory(&self, py: Python<'_>, size_bytes: u64) -> PyResult<()> {
        let grid = self.grid.live(py)?;
        detached(py, move || grid.hold_memory(size_bytes));
        Ok(())
    }

    #[getter]
    fn started(&self) -> Option<String> {
        self.started.clone()
    }

    #[getter]
    fn simulated(&self) -> bool {
        self.session.is_simulated
    }

    fn simulation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let grid = self.grid.live(py)?;
        to_plain(py, &detached(py, move || grid.simulation()))
    }

    fn server_processes(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.server_processes()))
    }

    /// Waits until noted calls have ended; returns their serial numbers, each once. Raises `WaitTimedOut` after the
    /// time limit. The call of a worker keeps its slot during this wait.
    fn await_ends(&self, py: Python<'_>, timeout_seconds: f64) -> PyResult<Vec<u64>> {
        let limit = limit_of(Some(timeout_seconds));
        let grid = self.grid.live(py)?;
        let all = |ended: &[TaskId]| (!ended.is_empty()).then(|| ended.iter().map(|task| task.serial).collect());
        detached(py, move || grid.watch_ends(limit, all)).or_raise(py)
    }

    /// Holds back those of the deferred calls of these serial numbers that were not sent, or ends that.
    fn hold_back(&self, py: Python<'_>, serials: Vec<u64>, is_held: bool) -> PyResult<()> {
        let grid = self.grid.live(py)?;
        detached(py, move || grid.hold_back(&serials, is_held));
        Ok(())
    }

    /// Unread errors in groups, as text.
    fn take_unread(&self, py: Python<'_>, all: bool) -> PyResult<Option<String>> {
        let grid = self.grid.live(py)?;
        let unread = detached(py, move || grid.take_unread(all));
        Ok((unread.count > 0).then(|| unread.to_string()))
    }

    /// Passes the output of calls to `listener(server, function, call, is_error, text, done, total)`, on threads that
    /// wait for results.
    fn listen(&self, py: Python<'_>, listener: Py<PyAny>) -> PyResult<()> {
        let tell = move |spoken: &CallOutput| {
            let CallOutput { server, function, call, output } = spoken;
            let (is_error, text, done, total) = match output {
                OutputItem::Text { is_error, text } => (*is_error, Some(text), None, None),
                OutputItem::Progress { done, total } => (false, None, Some(*done), *total),
            };
            // When the interpreter shuts down, nobody listens any more.
            let _ = Python::try_attach(|py| {
                if let Err(error) = listener.call1(py, (server, function, *call, is_error, text, done, total)) {
                    error.write_unraisable(py, Some(listener.bind(py)));
                }
            });
        };
        self.grid.with(py, move |grid| grid.listen(tell))
    }

    /// In a session without an agent: the given servers that cannot be used, with the reasons.
    fn unreachable(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let grid = self.grid.live(py)?;
        Ok(detached(py, move || grid.unreachable()))
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

    /// Ends the session. Objects that refer to it no longer work.
    fn close(&self, py: Python<'_>) {
        let grid = self.grid.live(py).ok();
        py.detach(|| {
            grid.into_iter().for_each(|grid| grid.end_modules());
            self.session.close();
        });
    }
}
