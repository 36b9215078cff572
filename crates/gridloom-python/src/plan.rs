//! Plans, and heuristics that are Python functions.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridloom::{Inside, Mapping, PlanRecord, check_svg_name, took_too_long};
use gridloom_map::{Heuristic, ImposedPlan, MapError, Plan, Problem, Spec};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{OrRaise, error};
use crate::lock;
use crate::plain::{object_of, to_plain};
use crate::session::limit_of;
use crate::wait::detached;

/// A mapped group.
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

    /// What is shown of it.
    fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_plain(py, &self.0)
    }

    /// As it is saved.
    fn file(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    fn moved(&self, py: Python<'_>, task: usize, server: &str) -> PyResult<RawPlan> {
        py.detach(|| self.0.moved(task, server)).or_raise(py).map(RawPlan)
    }

    /// The drawing, for a file of that name.
    fn gantt(&self, py: Python<'_>, path: PathBuf) -> PyResult<String> {
        py.detach(|| check_svg_name(&path).and_then(|()| self.0.gantt_svg())).or_raise(py)
    }

    /// Why a task is where it is, as a record and in words.
    fn explain<'py>(&self, py: Python<'py>, task: usize) -> PyResult<(Bound<'py, PyAny>, String)> {
        let explained = py.detach(|| self.0.explain(task)).or_raise(py)?;
        Ok((to_plain(py, &explained)?, explained.to_string()))
    }

    fn critical_path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_plain(py, &py.detach(|| self.0.critical_path()).or_raise(py)?)
    }
}

/// What a group is mapped by, as Python hands it over.
#[derive(FromPyObject)]
pub(crate) enum RawMapping<'py> {
    Spec(String),
    Plan(PyRef<'py, RawPlan>),
    /// Name of a heuristic, what begins it in a thread of Python's with a [`RawQuestion`], and seconds that it may take.
    Own(String, Py<PyAny>, Option<f64>),
}

/// What a heuristic raised.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

impl RawMapping<'_> {
    /// With the place where what a function raises is kept.
    pub(crate) fn mapping(self, py: Python<'_>) -> PyResult<(Mapping, Raised)> {
        let raised = Raised::default();
        let mapping = match self {
            RawMapping::Spec(spec) => {
                // A mistake in it is told where it stands, not when the group is mapped.
                let parsed = Spec::parse(&spec).and_then(|spec| spec.heuristic().map(drop));
                parsed.map_err(|mistake| error(py, "InputError", &mistake.to_string()))?;
                Mapping::from(spec)
            }
            RawMapping::Plan(plan) => Mapping::from(&plan.0),
            RawMapping::Own(name, begin, seconds) => {
                let limit = limit_of(seconds);
                // It keeps the limit itself.
                Mapping::own(&name, PythonHeuristic { begin, raised: raised.clone(), limit }).map_timeout(None)
            }
        };
        Ok((mapping, raised))
    }
}

/// The error of a launch; what the heuristic raised is its cause, or comes instead if it is no `Exception`: an interrupt, or the
/// end of the program.
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

/// A function of the user's. It runs in a daemonic thread of Python's, which is given up when the limit is past. Neither it nor
/// the thread that waits for it then keeps the interpreter from ending: so the wait is made without Python.
struct PythonHeuristic {
    begin: Py<PyAny>,
    raised: Raised,
    limit: Option<Duration>,
}

/// What a heuristic is asked, for the thread that it runs in.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawQuestion {
    problem: Value,
    inside: Inside,
    answer: Mutex<Sender<PyResult<Returned>>>,
}

#[pymethods]
impl RawQuestion {
    /// The problem, as plain data.
    #[getter]
    fn problem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object_of(py, &self.problem)
    }

    /// The thread that calls this maps; the session refuses to wait for it there.
    fn begin(&self) {
        self.inside.clone().enter();
    }

    /// The server of each task and their order, or what is wrong with what the user's function gave.
    fn answer(&self, returned: Returned) {
        // The thread that asked may have given up.
        let _ = lock(&self.answer).send(Ok(returned));
    }

    /// What the user's function raised.
    fn failed(&self, raised: Bound<'_, PyAny>) {
        let _ = lock(&self.answer).send(Err(PyErr::from_value(raised)));
    }
}

/// What a heuristic gives.
#[derive(FromPyObject)]
enum Returned {
    Wrong(String),
    Places(Vec<usize>, Option<Vec<u32>>),
}

impl Heuristic for PythonHeuristic {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let (send, receive) = channel();
        let question = RawQuestion { problem: described(problem), inside: Inside::current(), answer: Mutex::new(send) };
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
                    (Err(RecvTimeoutError::Timeout), Some(limit)) => return Err(took_too_long(limit)),
                    (Err(_), _) => return Err(MapError::Failed { why: "its thread ended without a word".into() }),
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

/// The problem as Python sees it.
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
