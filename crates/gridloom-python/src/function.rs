//! Functions of a grid, and plain calls in progress.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use gridloom::{Arg, Deferral, Error, Function, Grid, Object, PendingCall, Results, Retry, Value};
use gridloom_base::Priority;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::Target;
use crate::errors::{OrRaise, exception};
use crate::lock;
use crate::results::to_python;
use crate::session::{Session, Slot, closed, limit_of};
use crate::wait::{detached, interruptible, wait_for};

/// A function of the grid.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawFunction {
    pub(crate) session: Arc<Session>,
    pub(crate) function: Slot<(Grid, Function)>,
}

impl RawFunction {
    pub(crate) fn new(session: &Arc<Session>, grid: Grid, function: Function) -> RawFunction {
        RawFunction { session: session.clone(), function: session.slot((grid, function)) }
    }
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

    /// Returns the function bound to that server.
    fn on(&self, py: Python<'_>, server: &str) -> PyResult<RawFunction> {
        let (grid, function) = self.function.live(py)?;
        let server = server.to_string();
        let function = detached(py, move || function.on(&server)).or_raise(py)?;
        Ok(RawFunction::new(&self.session, grid, function))
    }

    /// Returns the function with calls that run again up to `times` times, after crashes and after exceptions of these
    /// classes (`None` for all).
    fn retried(&self, py: Python<'_>, times: u32, crashes: bool, raised: Option<Vec<String>>) -> PyResult<RawFunction> {
        let (grid, function) = self.function.live(py)?;
        let function = function.retried(Retry { times, crashes, raised: raised.map(BTreeSet::from_iter) });
        Ok(RawFunction::new(&self.session, grid, function))
    }

    /// Returns the function with calls that wait in this program until a server has a free slot. `first`: before calls
    /// that wait already, and with a time limit that begins at once. Servers in `failed_on` and `unable`, by name, run
    /// them only if there are no others.
    fn deferred(
        &self,
        py: Python<'_>,
        first: bool,
        failed_on: Vec<String>,
        unable: Vec<String>,
    ) -> PyResult<RawFunction> {
        let (grid, function) = self.function.live(py)?;
        let function = detached(py, move || {
            let failures = function.failures(&failed_on, &unable);
            function.deferred(Deferral { goes_first: first, limit_begins: first, failures })
        });
        Ok(RawFunction::new(&self.session, grid, function))
    }

    /// Names of its result parameters.
    fn results(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.function.with(py, |(_, function)| {
            let results = function.signature().params.iter().filter(|param| param.is_output());
            results.map(|param| param.name.clone()).collect()
        })
    }

    /// True if it has an input of that name.
    fn takes(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.function.with(py, |(_, function)| {
            function.signature().params.iter().any(|param| param.name == name && param.is_input() && !param.hidden)
        })
    }

    /// Returns the function with calls of that priority.
    fn with_priority(&self, py: Python<'_>, priority: i32) -> PyResult<RawFunction> {
        let (grid, function) = self.function.live(py)?;
        Ok(RawFunction::new(&self.session, grid, function.with_priority(Priority(priority))))
    }

    /// Submits a call. `label` is the name shown to people, `repeats` the serial of the call that it repeats.
    #[pyo3(signature = (args, kwargs, timeout_seconds, label=None, repeats=None, priority=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
    fn submit(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        timeout_seconds: Option<f64>,
        label: Option<&str>,
        repeats: Option<u64>,
        priority: Option<i32>,
    ) -> PyResult<RawPending> {
        let limit = limit_of(timeout_seconds);
        let (grid, function) = self.function.live(py)?;
        let function = label.map_or_else(|| function.clone(), |label| function.labelled(label));
        let function = match repeats {
            Some(serial) => function.repeating(serial),
            None => function,
        };
        let function = match priority {
            Some(number) => function.with_priority(Priority(number)),
            None => function,
        };
        let describes_only = self.session.describes_only;
        let target = Target { grid: &grid, signature: function.signature(), describes_only, snapshots: None };
        let (args, named) = target.arguments(args, Some(kwargs))?;
        let has_handle = args.iter().chain(named.iter().map(|(_, arg)| arg)).any(|arg| matches!(arg, Arg::Handle(_)));
        // A handle is fetched first, which may take long.
        let pending = match has_handle {
            true => interruptible(py, move || function.submit(args, &named, limit))?,
            false => detached(py, move || function.submit(args, &named, limit)),
        };
        let pending = pending.or_raise(py)?;
        Ok(RawPending {
            is_simulated: self.session.is_simulated,
            pending: self.session.slot(pending),
            ended: Mutex::default(),
            given: OnceLock::new(),
        })
    }

    /// Makes each worker run this function, a module's `Initialize`, before others of its module.
    fn initialize_module(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> PyResult<()> {
        let (grid, function) = self.function.live(py)?;
        let describes_only = self.session.describes_only;
        let target = Target { grid: &grid, signature: function.signature(), describes_only, snapshots: None };
        let (args, named) = target.arguments(args, Some(kwargs))?;
        let module = function.name().rsplit_once('/').map_or("", |(module, _)| module).to_string();
        interruptible(py, move || grid.initialize_module(&module, &args, &named))?.or_raise(py)
    }
}

/// An object on a server.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawObject {
    session: Arc<Session>,
    object: Slot<(Grid, Object)>,
}

impl RawObject {
    pub(crate) fn new(session: &Arc<Session>, grid: Grid, object: Object) -> RawObject {
        RawObject { session: session.clone(), object: session.slot((grid, object)) }
    }
}

#[pymethods]
impl RawObject {
    fn method(&self, py: Python<'_>, name: &str) -> PyResult<RawFunction> {
        let (grid, object) = self.object.live(py)?;
        Ok(RawFunction::new(&self.session, grid, object.method(name).or_raise(py)?))
    }

    /// Ends the object after the calls already made, without waiting.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let (_, object) = self.object.live(py)?;
        detached(py, move || object.end(None)).or_raise(py).map(drop)
    }
}

/// A call in progress; its slot is empty once its end was taken.
///
/// An interrupt may occur while results are converted to Python, and right after they were returned. So they can be
/// requested again.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawPending {
    is_simulated: bool,
    pending: Slot<PendingCall>,
    /// How it ended, until results were returned.
    ended: Mutex<Option<Arc<Outcome>>>,
    given: OnceLock<Py<PyAny>>,
}

type Outcome = Result<Vec<Value>, Error>;

#[pymethods]
impl RawPending {
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_taken() {
            return Ok(true);
        }
        let watch = self.pending.with(py, PendingCall::watch)?;
        Ok(detached(py, move || watch.is_done()))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_taken() {
            return Ok(());
        }
        let watch = self.pending.with(py, PendingCall::watch)?;
        detached(py, move || watch.cancel());
        Ok(())
    }

    /// Cancels a deferred call that was not sent to a server; true if it is cancelled.
    fn cancel_unsent(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_taken() {
            return Ok(false);
        }
        // Another thread may take its end meanwhile.
        let watch = self.pending.with(py, PendingCall::watch)?;
        Ok(detached(py, move || watch.cancel_unsent()))
    }

    /// When a deferred call was sent, by the session's clock; `None` while it waits, and after its end was taken.
    fn sent_at(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        if self.is_taken() {
            return Ok(None);
        }
        let watch = self.pending.with(py, PendingCall::watch)?;
        Ok(detached(py, move || watch.sent_s()))
    }

    /// Makes [`RawGrid::await_ends`](crate::grid::RawGrid) report its end, immediately if it has ended.
    fn note_end(&self, py: Python<'_>) -> PyResult<()> {
        self.pending.with(py, PendingCall::note_end)
    }

    /// The number by which `await_ends` reports it.
    fn serial(&self, py: Python<'_>) -> PyResult<u64> {
        self.pending.with(py, |pending| pending.task().serial)
    }

    /// The server that had it last, once it has ended; `None` if none had it.
    fn server(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.pending.with(py, |pending| pending.end().and_then(|end| end.server))
    }

    /// Waits for the results; returns the same objects each time.
    fn result<'py>(&self, py: Python<'py>, timeout_seconds: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(given) = self.given.get() {
            return Ok(given.bind(py).clone());
        }
        let waited = self.wait(py, limit_of(timeout_seconds));
        // Another thread may have taken its end meanwhile, and returned the results, too.
        let ended = py.detach(|| lock(&self.ended).clone());
        let made = match (self.given.get(), ended.as_deref()) {
            (Some(given), _) => return Ok(given.bind(py).clone()),
            (None, Some(Ok(values))) => results(py, values)?.unbind(),
            (None, Some(Err(error))) => return Err(exception(py, error)),
            (None, None) => return Err(waited.err().unwrap_or_else(|| closed(py))),
        };
        let given = self.given.get_or_init(|| made).bind(py).clone();
        py.detach(|| drop(lock(&self.ended).take()));
        Ok(given)
    }
}

impl RawPending {
    /// True if its end was taken, or is being taken.
    fn is_taken(&self) -> bool {
        self.given.get().is_some() || self.ended.try_lock().map_or(true, |ended| ended.is_some())
    }

    /// Waits for its end, and takes it.
    fn wait(&self, py: Python<'_>, limit: Option<Duration>) -> PyResult<()> {
        if self.is_taken() {
            return Ok(());
        }
        // The call stays in its slot until it has ended: after an interrupt it can be awaited again.
        let watch = || {
            let watch = self.pending.with(py, PendingCall::watch)?;
            Ok(move |limit| watch.wait(limit))
        };
        let waited = if self.is_simulated {
            // Its limit is virtual time, which is not split into slices.
            let watch = watch()?;
            interruptible(py, move || watch(limit))?
        } else {
            wait_for(py, limit, watch)?
        };
        waited.or_raise(py)?;
        py.detach(|| {
            let mut ended = lock(&self.ended);
            if let Some(pending) = self.pending.taken() {
                *ended = Some(Arc::new(pending.wait().map(Results::into_vec)));
            }
        });
        Ok(())
    }
}

fn results<'py>(py: Python<'py>, values: &[Value]) -> PyResult<Bound<'py, PyAny>> {
    let mut made = values.iter().map(|value| to_python(py, value, false)).collect::<PyResult<Vec<_>>>()?;
    match made.len() {
        0 => Ok(py.None().into_bound(py)),
        1 => Ok(made.remove(0)),
        _ => Ok(PyTuple::new(py, made)?.into_any()),
    }
}
