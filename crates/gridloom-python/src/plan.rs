//! Plans, and heuristics that are Python functions.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridloom::{Mapping, MappingScope, PlanRecord, check_svg_name, timed_out};
use gridloom_map::{Heuristic, ImposedPlan, MapError, Plan, Problem, Spec};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{OrRaise, error};
use crate::lock;
use crate::plain::{object_of, to_plain};
use crate::session::limit_of;
use crate::wait::detached;

/// The plan of a mapped group.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawPlan(pub(crate) PlanRecord);

#[pymethods]
impl RawPlan {
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<RawPlan> {
        detached(py, move || PlanRecord::load(path)).or_raise(py).map(RawPlan)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// The plan as a record.
    fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_plain(py, &self.0)
    }

    /// Returns the plan in the format of its file.
    fn file(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    fn moved(&self, py: Python<'_>, task: usize, server: &str) -> PyResult<RawPlan> {
        py.detach(|| self.0.moved(task, server)).or_raise(py).map(RawPlan)
    }

    /// Returns the drawing, for a file of that name.
    fn gantt(&self, py: Python<'_>, path: PathBuf) -> PyResult<String> {
        py.detach(|| check_svg_name(&path).and_then(|()| self.0.gantt_svg())).or_raise(py)
    }

    /// Explains why a task is on its server, as a record and as text.
    fn explain<'py>(&self, py: Python<'py>, task: usize) -> PyResult<(Bound<'py, PyAny>, String)> {
        let explained = py.detach(|| self.0.explain(task)).or_raise(py)?;
        Ok((to_plain(py, &explained)?, explained.to_string()))
    }

    /// Returns the memory that the client needs, as a record; `None` if the basis of the plan is not known.
    fn client_memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_plain(py, &py.detach(|| self.0.client_memory()))
    }

    fn critical_path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_plain(py, &py.detach(|| self.0.critical_path()).or_raise(py)?)
    }
}

/// How to map a group, as passed by Python.
#[derive(FromPyObject)]
pub(crate) enum RawMapping<'py> {
    Spec(String),
    Plan(PyRef<'py, RawPlan>),
    /// Name of a custom heuristic, a function that starts it in a Python thread with a [`RawQuestion`], and its time
    /// limit in seconds.
    Own(String, Py<PyAny>, Option<f64>),
}

/// The exception that a heuristic raised.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

impl RawMapping<'_> {
    /// Returns the mapping, and the place for exceptions raised by its function.
    pub(crate) fn mapping(self, py: Python<'_>) -> PyResult<(Mapping, Raised)> {
        let raised = Raised::default();
        let mapping = match self {
            RawMapping::Spec(spec) => {
                // A mistake in the spec is reported here, not when the group is mapped.
                let parsed = Spec::parse(&spec).and_then(|spec| spec.heuristic().map(drop));
                parsed.map_err(|mistake| error(py, "InputError", &mistake.to_string()))?;
                Mapping::from(spec)
            }
            RawMapping::Plan(plan) => Mapping::from(&plan.0),
            RawMapping::Own(name, begin, seconds) => {
                let limit = limit_of(seconds);
                // The heuristic enforces the limit itself.
                Mapping::custom(&name, PythonHeuristic { begin, raised: raised.clone(), limit }).map_timeout(None)
            }
        };
        Ok((mapping, raised))
    }
}

/// Returns the error of a launch. The heuristic's exception is its cause, or replaces it if it is not an `Exception`:
/// an interrupt, or the end of the program.
pub(crate) fn with_cause<T>(py: Python<'_>, outcome: PyResult<T>, raised: &Raised) -> PyResult<T> {
    outcome.map_err(|error| {
        let Some(cause) = lock(raised).take() else { return error };
        if !cause.is_instance_of::<PyException>(py) {
            return cause;
        }
        error.set_cause(py, Some(cause));
        error
    })
}

/// A function of the user. It runs in a daemon thread of Python, which is abandoned after the limit. Neither it nor
/// the thread that waits for it may then keep the interpreter from shutting down, so the wait does not use Python.
struct PythonHeuristic {
    begin: Py<PyAny>,
    raised: Raised,
    limit: Option<Duration>,
}

/// The request to a heuristic, for the thread in which it runs.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawQuestion {
    problem: Value,
    inside: MappingScope,
    answer: Mutex<Sender<PyResult<Returned>>>,
}

#[pymethods]
impl RawQuestion {
    /// The problem, as plain data.
    #[getter]
    fn problem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object_of(py, &self.problem)
    }

    /// Marks the calling thread as mapping: the session then refuses to wait there.
    fn begin(&self) {
        self.inside.clone().enter();
    }

    /// Returns the server of each task and their order, or the error in the return value of the user's function.
    fn answer(&self, returned: Returned) {
        // The requesting thread may have given up.
        let _ = lock(&self.answer).send(Ok(returned));
    }

    /// Returns the exception that the user's function raised.
    fn failed(&self, raised: Bound<'_, PyAny>) {
        let _ = lock(&self.answer).send(Err(PyErr::from_value(raised)));
    }
}

/// The return value of a heuristic.
#[derive(FromPyObject)]
enum Returned {
    Wrong(String),
    Places(Vec<usize>, Option<Vec<u32>>),
}

impl Heuristic for PythonHeuristic {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let (send, receive) = channel();
        let question =
            RawQuestion { problem: described(problem), inside: MappingScope::current(), answer: Mutex::new(send) };
        let begun = Python::try_attach(|py| self.begin.call1(py, (question,)).map(drop));
        let answered = match begun {
            None => return Err(MapError::Failed { why: "Python is ending".into() }),
            Some(Err(raised)) => Err(raised),
            Some(Ok(())) => {
                let received = match self.limit {
                    Some(limit) => receive.recv_timeout(limit),
                    None => receive.recv().map_err(RecvTimeoutError::from),
                };
                match (received, self.limit) {
                    (Ok(answered), _) => answered,
                    (Err(RecvTimeoutError::Timeout), Some(limit)) => return Err(timed_out(limit)),
                    (Err(_), _) => return Err(MapError::Failed { why: "its thread ended without a result".into() }),
                }
            }
        };
        let returned = answered.map_err(|raised| {
            let repr = Python::try_attach(|py| raised.value(py).repr().map(|text| text.to_string()));
            let text = repr.and_then(Result::ok).unwrap_or_else(|| "?".into());
            *lock(&self.raised) = Some(raised);
            MapError::Failed { why: format!("it raised {text}") }
        })?;
        let (places, order) = match returned {
            Returned::Wrong(why) => return Err(MapError::Unfit { subject: String::new(), why }),
            Returned::Places(places, order) => (places, order),
        };
        let given = ImposedPlan::of_places(&places, problem);
        ImposedPlan { order: order.unwrap_or(given.order), ..given }.plan(problem)
    }
}

/// Converts the problem for Python.
fn described(problem: &Problem) -> Value {
    let finite = |number: f64| number.is_finite().then_some(number);
    let servers = 0..problem.client();
    let tasks = (0..problem.task_count()).map(|task| {
        json!({
            "function": problem.function(task),
            "work_flops": problem.work_flops(task),
            "inputs": problem.inputs(task),
            "outputs": problem.outputs(task),
            "seconds": servers.clone().map(|server| problem.seconds(task, server)).collect::<Vec<_>>(),
        })
    });
    let data = problem.data().iter().enumerate().map(|(number, datum)| {
        json!({
            "size_bytes": datum.size_bytes,
            "producer": datum.producer,
            "readers": datum.readers,
            "wanted": datum.wanted,
            "held_by": problem.holders(number),
        })
    });
    let described = problem.servers().iter().map(|server| {
        json!({
            "name": server.name,
            "slots": server.slots,
            "busy_seconds": server.busy_s,
            "memory_bytes": server.memory_bytes,
        })
    });
    let link = |from: usize| {
        let links = problem.links_from(from).iter().map(|link| (finite(link.latency_s), finite(link.bandwidth)));
        links.collect::<Vec<_>>()
    };
    json!({
        "tasks": tasks.collect::<Vec<_>>(),
        "data": data.collect::<Vec<_>>(),
        "servers": described.collect::<Vec<_>>(),
        "links": (0..=problem.client()).map(link).collect::<Vec<_>>(),
    })
}
